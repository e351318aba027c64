"""Internal forces and tangents against derivatives of what is assembled without them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tensormesh.functional import determinant
from tests.assemble.meshes import filled

f64 = torch.float64
KINDS = ("triangle", "triangle6", "quad", "tetra", "hexahedron")


class Stored(tm.ElementAssembler):
    """Density of a vector field with value, gradient, coordinate, cell and constant arguments."""

    def element_energy(self, a, grada, x, k, s):
        stretch = determinant(torch.eye(len(x), dtype=x.dtype) + grada)
        return k * torch.log(stretch) ** 2 + s * (a @ a) ** 2 + x[0] * (grada * grada).sum()


class Diffusion(tm.NodeAssembler):
    """Residual of ``-div((1 + u^2) grad u) + u^3 = 0``."""

    def forward(self, v, gradv, u, gradu):
        return (1 + u**2) * (gradu @ gradv) + u**3 * v


class Convection(tm.NodeAssembler):
    """Residual ``(w . grad) w . v``: its tangent is not symmetric."""

    def forward(self, v, w, gradw):
        return (gradw @ w) * v


class Radiation(tm.FacetAssembler):
    def forward(self, v, T, n, s):
        return s * T**4 * v * (2 + n[0])


class Pressure(tm.FacetAssembler):
    """A pressure that follows the deformed surface, ``p cof(I + grad w) n``."""

    def forward(self, v, n, gradw):
        F = torch.eye(len(n), dtype=n.dtype) + gradw
        return v[:, None] * (determinant(F) * torch.linalg.inv(F).T @ n)


def vector_field(mesh: tm.Mesh, seed: int = 0) -> Tensor:
    noise = torch.rand(mesh.points.shape, generator=torch.Generator().manual_seed(seed), dtype=f64)
    return 0.05 * noise


def stored_data(mesh: tm.Mesh) -> dict[str, Any]:
    cells = {k: 1 + torch.arange(len(c), dtype=f64) / 9 for k, c in mesh.top_cells().items()}
    return {"element_data": {"k": cells}, "scalar_data": {"s": 0.7}}


@pytest.mark.parametrize("kind", KINDS)
def test_force_and_tangent_are_the_derivatives_of_the_energy(kind: str) -> None:
    """features | NeoHookeanModel, forces and tangents: serial, differentiable."""
    mesh = filled(kind)
    made, given, a = Stored.from_mesh(mesh), stored_data(mesh), vector_field(mesh)

    def energy(flat: Tensor) -> Tensor:
        return made.energy(point_data={"a": flat.view_as(a)}, **given)

    force = made.internal_force(point_data={"a": a}, **given)
    expected = torch.autograd.functional.jacobian(energy, a.flatten())
    torch.testing.assert_close(force, expected, rtol=1e-11, atol=1e-13)
    K = made.tangent(point_data={"a": a}, **given)
    assert K.has_same_layout(tm.LinearElasticityElementAssembler.from_mesh(mesh)())
    hessian = torch.autograd.functional.hessian(energy, a.flatten())
    torch.testing.assert_close(K.to_dense(), hessian, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("form", [Diffusion, Convection, Radiation, Pressure])
def test_the_tangent_of_a_residual_is_its_derivative(form: Any) -> None:
    mesh = filled("tetra")
    made = form.from_mesh(mesh)
    w = vector_field(mesh)
    name, field = {
        Diffusion: ("u", 1 + w[:, 0]),
        Convection: ("w", w),
        Radiation: ("T", 1 + w[:, 0]),
        Pressure: ("w", w),
    }[form]
    given = {"scalar_data": {"s": 0.3}} if form is Radiation else {}

    def residual(flat: Tensor) -> Tensor:
        return made(point_data={name: flat.view_as(field)}, **given)

    K = made.tangent(point_data={name: field}, **given)
    expected = torch.autograd.functional.jacobian(residual, field.flatten())
    torch.testing.assert_close(K.to_dense(), expected, rtol=1e-11, atol=1e-12)


def test_a_quadratic_energy_has_the_matrix_of_its_bilinear_form() -> None:
    mesh = filled("hexahedron")
    hooke = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=3.0, nu=0.2)
    K, u = hooke(), vector_field(mesh)
    assert torch.allclose(hooke.tangent(point_data={"displacement": u}).values, K.values)
    force = hooke.internal_force(point_data={"displacement": u})
    assert torch.allclose(force, K @ u.flatten())


def test_neo_hookean_at_rest_is_linear_elasticity_and_turns_with_the_body() -> None:
    mesh = filled("tetra")
    model = NeoHookeanModel.from_mesh(mesh, E=2.0, nu=0.35)
    K = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=2.0, nu=0.35)()
    rest = torch.zeros(mesh.n_points * 3, dtype=f64)
    assert torch.allclose(model.tangent(rest).to_dense(), K.to_dense(), atol=1e-13)
    angle = torch.tensor(0.8, dtype=f64)
    Q = torch.eye(3, dtype=f64)
    Q[:2, :2] = torch.stack(
        [torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])]
    )
    turned = mesh.points @ Q.T - mesh.points
    assert float(model.internal_force(turned).abs().max()) < 1e-13
    by_node = torch.kron(torch.eye(mesh.n_points, dtype=f64), Q)
    expected = by_node @ K.to_dense() @ by_node.T
    assert torch.allclose(model.tangent(turned).to_dense(), expected, atol=1e-12)


def test_force_and_tangent_are_differentiable_in_data() -> None:
    mesh = tm.Mesh.gen_rectangle(n=(2, 1)).double()
    made = tm.ElementAssembler.from_mesh(mesh)

    def density(gradu: Tensor, k: Tensor) -> Tensor:
        return k * torch.sqrt(1 + gradu @ gradu)

    def both(k: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        given = {"func": density, "point_data": {"u": u, "k": k}, "unknown": "u"}
        return made.internal_force(**given), made.tangent(**given).values

    k = torch.linspace(1, 2, mesh.n_points, dtype=f64, requires_grad=True)
    assert gradcheck(both, (k, (mesh.points[:, 0] ** 2).requires_grad_()))


def test_history_at_quadrature_points() -> None:
    """Values at points go into a density, and what a function makes of them comes out again.

    features | history at quadrature points: serial.
    """
    mesh = filled("triangle6")
    made = tm.ElementAssembler.from_mesh(mesh)
    u = mesh.points[:, 0] ** 2

    def stretched(gradu: Tensor, old: Tensor) -> Tensor:
        return old + torch.outer(gradu, gradu)

    at = made.transformation["triangle6"]
    x = torch.einsum("qb,ebd->eqd", at.shape_val, at.element_coords)
    zero = tm.PerQuadraturePoint(torch.zeros(*x.shape[:2], 2, 2, dtype=f64))
    state = made.at_quadrature_points(stretched, point_data={"u": u}, element_data={"old": zero})
    expected = torch.zeros_like(zero.values)
    expected[..., 0, 0] = 4 * x[..., 0] ** 2
    torch.testing.assert_close(state["triangle6"].values, expected)
    again = made.at_quadrature_points(stretched, point_data={"u": u}, element_data={"old": state})
    torch.testing.assert_close(again["triangle6"].values, 2 * expected)
    E = made.energy(func=lambda old: old[0, 0], element_data={"old": state})
    assert float(E) == pytest.approx(4 / 3)


def test_what_is_no_unknown_is_refused() -> None:
    mesh = filled("triangle")
    made, a = Stored.from_mesh(mesh), vector_field(mesh)
    given = stored_data(mesh)
    with pytest.raises(tm.FormError, match="unknown = 'b'"):
        made.tangent(point_data={"a": a}, unknown="b", **given)
    with pytest.raises(tm.FormError, match="the form has p, q"):
        made.internal_force(func=lambda p, q: p * q, point_data={"p": a[:, 0], "q": a[:, 0]})
    with pytest.raises(ValueError, match=r"must be \[n\] or \[n, H\]"):
        made.tangent(func=lambda p: p.sum(), point_data={"p": a[:, :, None]})
    with pytest.raises(tm.FormError, match="expected a number"):
        made.internal_force(func=lambda p: p, point_data={"p": a})
    with pytest.raises(tm.FormError, match="2 components and its unknown 1"):
        tm.NodeAssembler.from_mesh(mesh).tangent(
            func=lambda v, p: v * p * torch.ones(2, dtype=f64), point_data={"p": a[:, 0]}
        )
    with pytest.raises(tm.FormError, match="not linear"):
        tm.NodeAssembler.from_mesh(mesh).tangent(
            func=lambda v, p: v**2 * p, point_data={"p": a[:, 0]}
        )
    with pytest.raises(NotImplementedError, match="no energy"):
        tm.ElementAssembler.from_mesh(mesh).internal_force(point_data={"p": a})
    with pytest.raises(ValueError, match="determinant"):
        determinant(torch.eye(4))
