"""The rows of the ready-made forms."""

import pytest
import torch
from torch.autograd import gradcheck

import tensormesh as tm
from tensormesh.assemble import NeoHookeanModel
from tests.assemble.meshes import distorted, filled

f64, c128 = torch.float64, torch.complex128


def bilinear(K, u, v):
    return v @ (K @ u)


def test_row_exports():
    """base-api 1 | ready-made forms at top level and in `tensormesh.assemble`."""
    for name in (
        "LaplaceElementAssembler",
        "AnisotropicLaplaceElementAssembler",
        "MassElementAssembler",
        "ScaledMassElementAssembler",
        "LinearElasticityElementAssembler",
        "const_node_assembler",
        "func_node_assembler",
        "FacetBilinearAssembler",
        "robin_operator",
        "port_source",
    ):
        assert getattr(tm, name) is getattr(tm.assemble, name)


def test_row_laplace_and_mass():
    """base-api 3 | `LaplaceElementAssembler`: grad u . grad v; `MassElementAssembler`: u v.

    features | LaplaceElementAssembler, MassElementAssembler: serial.
    """
    mesh = filled("tetra")
    x, y = mesh.points[:, 0], mesh.points[:, 1]
    K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    M = tm.MassElementAssembler.from_mesh(mesh)()
    assert float(bilinear(K, x + 2 * y, 3 * x - y)) == pytest.approx(3 - 2)
    assert float(bilinear(M, x, y)) == pytest.approx(1 / 4)


def test_row_scaled_mass():
    """base-api 3 | `ScaledMassElementAssembler`: c u v, `c` from point_data or element_data.

    features | ScaledMassElementAssembler: serial.
    """
    mesh = filled("triangle6")
    x = mesh.points[:, 0]
    asm = tm.ScaledMassElementAssembler.from_mesh(mesh)
    one = torch.ones(mesh.n_points, dtype=f64)
    assert float(asm(point_data={"c": x**2}).sum()) == pytest.approx(1 / 3)
    by_cell = asm(element_data={"c": torch.full((mesh.n_elements,), 5.0)})
    assert float(bilinear(by_cell, x, one)) == pytest.approx(5 / 2)
    assert asm(point_data={"c": x + 1j}).dtype == c128


def test_row_anisotropic_laplace():
    """base-api 3 | `AnisotropicLaplaceElementAssembler`: `A [n, D, D]`, `[E, D, D]`, complex.

    features | AnisotropicLaplaceElementAssembler: serial.
    """
    mesh = distorted("triangle")
    volume = float(tm.MassElementAssembler.from_mesh(mesh)().sum())
    x, y = mesh.points.T
    A = torch.tensor([[2.0, 1.0], [-0.5, 3.0]], dtype=f64)
    asm = tm.AnisotropicLaplaceElementAssembler.from_mesh(mesh)
    for data, factor in (
        ({"point_data": {"A": A.expand(mesh.n_points, 2, 2)}}, 1),
        ({"element_data": {"A": A.expand(mesh.n_elements, 2, 2)}}, 1),
        ({"scalar_data": {"A": (1 + 2j) * A}}, 1 + 2j),
    ):
        K = asm(**data)
        # (A grad u) . grad v with u = y, v = x is A[0, 1]: A acts on the solution.
        u, v = y.to(K.dtype), x.to(K.dtype)
        assert complex(bilinear(K, u, v)) == pytest.approx(factor * 1.0 * volume)
        assert complex(bilinear(K, v, u)) == pytest.approx(factor * -0.5 * volume)


@pytest.mark.parametrize("kind", ["triangle", "quad9", "tetra", "hexahedron"])
def test_row_elasticity(kind):
    """base-api 3 | `LinearElasticityElementAssembler(E, nu)`: B^T C B with Voigt's matrices."""
    mesh = distorted(kind)
    E, nu, dim = 3.0, 0.2, mesh.dim
    asm = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=E, nu=nu)
    C = tm.voigt_stiffness(torch.tensor(E, dtype=f64), nu, dim)

    def voigt(gradu, gradv):
        return tm.voigt_shape_grad(gradv).T @ C @ tm.voigt_shape_grad(gradu)

    assert torch.allclose(asm().values, asm(func=voigt).values, atol=1e-12)


@pytest.mark.parametrize("kind", ["triangle6", "tetra"])
def test_row_elastic_energy(kind):
    """base-api 3 | `element_energy(graddisplacement)`: half of u K u; its gradient is K u."""
    mesh = distorted(kind)
    asm = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=2.0, nu=0.25)
    u = torch.sin(torch.arange(mesh.n_points * mesh.dim, dtype=f64)).view(-1, mesh.dim)
    u.requires_grad_()
    energy = asm.energy(point_data={"displacement": u})
    Ku = asm() @ u.detach().flatten()
    assert float(energy.detach()) == pytest.approx(float(u.detach().flatten() @ Ku) / 2)
    (force,) = torch.autograd.grad(energy, u)
    assert torch.allclose(force.flatten(), Ku, atol=1e-10)


def test_row_const_and_func_node_assembler():
    """base-api 3 | `const_node_assembler(c)`, `func_node_assembler(f)`: classes; overrides.

    features | const_node_assembler, func_node_assembler: serial.
    """
    mesh = filled("quad")
    const, func = tm.const_node_assembler(2.0), tm.func_node_assembler(lambda x: x[0])
    assert isinstance(const, type)
    assert issubclass(func, tm.NodeAssembler)
    assert float(const.from_mesh(mesh)().sum()) == pytest.approx(2)
    by_component = const.from_mesh(mesh, c=[1.0, -3.0])().view(-1, 2).sum(0)
    assert by_component.tolist() == pytest.approx([1, -3])
    assert float(func.from_mesh(mesh)().sum()) == pytest.approx(0.5)
    assert float(func.from_mesh(mesh, f=lambda x: x @ x)().sum()) == pytest.approx(2 / 3)


@pytest.mark.parametrize("kind", ["triangle", "hexahedron"])
def test_row_neo_hooke(kind):
    """base-api 3 | `NeoHookeanModel(E, nu)`, `energy(u)`: closed form of a homogeneous stretch.

    features | NeoHookeanModel: serial.
    """
    mesh = filled(kind)
    E, nu, stretch = 2.0, 0.3, 1.2
    model = NeoHookeanModel.from_mesh(mesh, E=E, nu=nu)
    lam, mu = E * nu / ((1 + nu) * (1 - 2 * nu)), E / (2 * (1 + nu))
    u = torch.zeros(mesh.n_points, mesh.dim, dtype=f64)
    u[:, 0] = (stretch - 1) * mesh.points[:, 0]
    log_j = torch.tensor(stretch, dtype=f64).log()
    expected = mu / 2 * (stretch**2 - 1) - mu * log_j + lam / 2 * log_j**2
    assert float(model.energy(u)) == pytest.approx(float(expected))


def test_neo_hooke_is_objective_and_linearises():
    """base-api 3 | `NeoHookeanModel`: rotations cost nothing; small strains are elasticity."""
    mesh = distorted("triangle")
    model = NeoHookeanModel.from_mesh(mesh, E=2.0, nu=0.3)
    c, s = torch.cos(torch.tensor(0.7)), torch.sin(torch.tensor(0.7))
    Q = torch.stack([torch.stack([c, -s]), torch.stack([s, c])]).to(f64)
    Q = torch.linalg.qr(Q).Q * torch.sign(torch.linalg.qr(Q).R.diagonal())
    assert abs(float(model.energy(mesh.points @ Q.T - mesh.points))) < 1e-14
    rest = torch.zeros_like(mesh.points)
    force = torch.func.grad(lambda u: model.energy(u.view_as(rest)))
    assert float(force(rest.flatten()).abs().max()) < 1e-14
    tangent = torch.autograd.functional.hessian(
        lambda u: model.energy(u.view_as(rest)), rest.flatten()
    )
    K = tm.LinearElasticityElementAssembler.from_mesh(mesh, E=2.0, nu=0.3)()
    assert torch.allclose(tangent, K.to_dense(), atol=1e-12)
    u = (0.01 * torch.randn_like(rest)).requires_grad_()
    assert gradcheck(model.energy, u)


def test_neo_hooke_has_no_matrix():
    """base-api 3 | `NeoHookeanModel`: `energy(u)` only."""
    with pytest.raises(NotImplementedError, match="no weak form"):
        NeoHookeanModel.from_mesh(filled("triangle"))()
