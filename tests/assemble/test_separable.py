"""Coefficients ``s(x) P`` take a short cut: it gives what the general way does, or is not taken."""

import pytest
import torch
from torch import Tensor, nn

from tensormesh import ElementAssembler, LinearElasticityElementAssembler, Mesh
from tensormesh.assemble import base, short_cut
from tensormesh.assemble.separable import separate
from tests.assemble.meshes import distorted

f64 = torch.float64


class Conduction(ElementAssembler):
    def forward(self, gradu, gradv, k):
        return k * (gradu @ gradv)


class Layered(ElementAssembler):
    """Another tensor in each half of the domain, hidden from most probes."""

    def forward(self, gradu, gradv, x):
        across = gradu[0] * gradv[0]
        return torch.where(x[0] > 0.9, gradu @ gradv, 2 * across)


class Everything(ElementAssembler):
    def forward(self, u, v, gradu, gradv, k):
        return k * (u * v + gradu @ gradv + 0.3 * gradu[0] * v - 0.1 * u * gradv[0])


class Symmetric(ElementAssembler):
    """Every product of inputs, those of values with derivatives too, for two unknowns."""

    def forward(self, u, v, gradu, gradv, k):
        mixed = 0.3 * (gradu[0] * v + u * gradv[0]) + 0.1 * (
            gradu[0] * gradv[1] + gradu[1] * gradv[0]
        )
        blocks = torch.tensor([[2.0, 0.0], [0.5, 1.0]], dtype=gradu.dtype)
        return k * (u * v + gradu @ gradv + mixed) * blocks


class Stiffness(ElementAssembler):
    """Vector form with a field as Young's modulus."""

    def forward(self, gradu, gradv, E):
        eye = torch.eye(gradu.shape[0], dtype=gradu.dtype)
        return E * ((gradu @ gradv) * eye + 0.5 * torch.outer(gradv, gradu))


def values(form, mesh, data, monkeypatch=None):
    if monkeypatch is not None:
        monkeypatch.setattr(base, "separate", lambda c: None)
    assembler = form.from_mesh(mesh)
    return [assembler(**data).values for _ in range(3)]  # the third uses what the second has kept


@pytest.mark.parametrize(
    "kind", ["triangle", "tetra", "quad", "hexahedron", "tetra10", "wedge", "pyramid"]
)
@pytest.mark.parametrize("form", [Conduction, Everything, Symmetric, Stiffness])
@pytest.mark.parametrize("by_cell", [True, False])
def test_short_cut_gives_what_the_general_way_gives(kind, form, by_cell, monkeypatch):
    mesh = distorted(kind)
    name = "E" if form is Stiffness else "k"
    n = mesh.n_elements if by_cell else mesh.n_points
    data = {"element_data" if by_cell else "point_data": {name: 0.5 + torch.rand(n, dtype=f64)}}
    short = values(form, mesh, data)
    (general, *_) = values(form, mesh, data, monkeypatch)
    for found in short:
        assert torch.allclose(found, general, rtol=0, atol=1e-14 * float(general.abs().max()))


def test_short_cut_is_taken(monkeypatch):
    seen = []
    monkeypatch.setattr(short_cut, "factor", lambda *a: seen.append(1) or original(*a))
    mesh = distorted("tetra")
    Conduction.from_mesh(mesh)(element_data={"k": torch.rand(mesh.n_elements, dtype=f64)})
    assert seen


original = short_cut.factor


def test_structure_that_changes_between_the_probes_is_noticed(monkeypatch):
    mesh = Mesh.gen_rectangle(n=(40, 3))
    short = values(Layered, mesh, {})
    (general, *_) = values(Layered, mesh, {}, monkeypatch)
    assert torch.allclose(short[0], general, rtol=0, atol=1e-14)
    x = mesh.points[:, 1]
    K = Layered.from_mesh(mesh)()
    assert float(x @ (K @ x)) == pytest.approx(0.1)  # only where x > 0.9 does y matter


def test_coefficient_that_is_zero_at_the_probes():
    mesh = Mesh.gen_rectangle(n=(10, 10))
    k = torch.zeros(mesh.n_elements, dtype=f64)
    k[17] = 3.0
    K = Conduction.from_mesh(mesh)(element_data={"k": k})
    x = mesh.points[:, 0]
    assert float(x @ (K @ x)) == pytest.approx(3 * 0.005)  # k times the area of one triangle


def test_parameters_of_the_form_get_their_gradient():
    class Anisotropic(ElementAssembler):
        def __post_init__(self):
            self.A = nn.Parameter(torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=f64))

        def forward(self, gradu, gradv, k):
            return k * (gradv @ (self.A @ gradu))

    mesh = Mesh.gen_rectangle(n=(4, 4))
    form = Anisotropic.from_mesh(mesh)
    x, y = mesh.points.unbind(1)
    k = torch.full((mesh.n_elements,), 3.0, dtype=f64)
    for _ in range(3):
        form.A.grad = None
        (x @ (form(element_data={"k": k}) @ y)).backward()
        # The integral of k (grad x) . A (grad y) is 3 A_01.
        assert torch.allclose(form.A.grad, torch.tensor([[0.0, 3.0], [0.0, 0.0]], dtype=f64))


def test_gradients_of_coefficient_and_points():
    mesh = distorted("tetra")
    form = Conduction.from_mesh(mesh)
    k = (0.5 + torch.rand(mesh.n_elements, dtype=f64)).requires_grad_()
    points = mesh.points.clone().requires_grad_()

    def energy(k: Tensor, points: Tensor) -> Tensor:
        return form(points=points, element_data={"k": k}).values.square().sum()

    assert torch.autograd.gradcheck(energy, (k, points))


@pytest.mark.parametrize("group", ["scalar_data", "element_data", "point_data"])
@pytest.mark.parametrize(
    "form",
    [
        lambda u, v, gradu, gradv, k: k * u * v + gradu @ gradv,
        lambda u, v, gradu, gradv, k: u * v + (1 + (k - 2) ** 2) * (gradu @ gradv),
        lambda gradu, gradv, k: gradv @ (k * gradu + (k - 2) * gradu.flip(0)),
        lambda u, v, k: (k**2 + 1j * k) * u * v,
    ],
)
def test_gradients_where_only_the_values_are_one_function_times_a_tensor(form, group):
    """A constant coefficient, as at the start of an optimisation: derivatives have another one."""
    mesh = distorted("triangle")
    assembler = ElementAssembler.from_mesh(mesh)
    sizes = {"scalar_data": (), "element_data": (mesh.n_elements,), "point_data": (mesh.n_points,)}
    torch.manual_seed(0)
    x = torch.randn(mesh.n_points, dtype=f64)

    def energy(k: Tensor) -> Tensor:
        K = assembler(func=form, **{group: {"k": k}})
        return (x.to(K.dtype) @ (K @ x.to(K.dtype))).abs()

    k = torch.full(sizes[group], 2.0, dtype=f64, requires_grad=True)
    assert torch.autograd.gradcheck(energy, k)
    assert torch.autograd.gradgradcheck(energy, k)


def test_what_is_kept_follows_the_points():
    mesh = Mesh.gen_cube(n=(2, 2, 2))
    form = Conduction.from_mesh(mesh)
    k = torch.ones(mesh.n_elements, dtype=f64)
    before = [form(element_data={"k": k}).values for _ in range(3)][-1]
    after = [form(points=2 * mesh.points, element_data={"k": k}).values for _ in range(3)]
    for found in after:
        assert torch.allclose(found, 2 * before)  # h^3 / h^2


def test_constant_tensor_follows_the_parameters():
    mesh = Mesh.gen_cube(n=(2, 2, 2))
    form = LinearElasticityElementAssembler.from_mesh(mesh, E=1.0, nu=0.3)
    first = [form().values for _ in range(3)][-1]
    form.lam, form.mu = 0.0, 2.0 * form.mu
    other = LinearElasticityElementAssembler.from_mesh(mesh, E=1.0, nu=0.3)
    other.lam, other.mu = form.lam, form.mu
    assert torch.allclose(form().values, other().values)
    assert not torch.allclose(form().values, first)


def test_structure_of_samples():
    P = torch.tensor([[1.0, -0.5], [0.0, 0.25]], dtype=f64)
    s = torch.tensor([2.0, -3.0, 0.0], dtype=f64)
    found = separate(s[:, None, None] * P)
    assert found is not None
    assert found.pick == (0, 0, 0)
    assert torch.equal(found.tensor[..., 0], P)
    assert separate(torch.rand(3, 2, 2, dtype=f64)) is None
    assert separate(torch.zeros(3, 2, 2, dtype=f64)) is None
    assert separate(torch.full((3, 2, 2), torch.nan, dtype=f64)) is None
