"""Laws that hold on every cell type, straight and distorted, against closed forms."""

import pytest
import torch

from tensormesh.assemble import LaplaceElementAssembler, MassElementAssembler
from tensormesh.element.cell_type import cell_type
from tensormesh.operator import Condenser
from tests.assemble.meshes import (
    CELL_TYPES,
    FIRST_ORDER,
    HIGH_ORDER,
    SECOND_ORDER,
    SHEAR_VOLUME,
    bulged,
    distorted,
    filled,
    raised,
    sheared,
)

ALL = CELL_TYPES + HIGH_ORDER
VARIANTS = {"straight": lambda kind: sheared(filled(kind)), "distorted": distorted}


def linear(x):
    """1 + a . x and the square of its gradient."""
    a = torch.tensor([2.0, -1.0, 0.5], dtype=x.dtype)[: x.shape[1]]
    return 1 + x @ a, float(a @ a)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("variant", VARIANTS)
def test_mass_sums_to_the_volume(kind, variant):
    """known-faults | 6: mass sums to the volume, orders one to four."""
    mesh = VARIANTS[variant](kind)
    M = MassElementAssembler.from_mesh(mesh)()
    assert float(M.values.sum()) == pytest.approx(SHEAR_VOLUME[mesh.dim], rel=1e-12)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("variant", VARIANTS)
def test_mass_is_symmetric_and_positive_definite_by_default(kind, variant):
    """known-faults | 5: mass is positive definite by default.

    features | line, triangle, quad, tetra, hexahedron, wedge, pyramid, line3, triangle6: serial.
    features | quad9, tetra10, hexahedron27, wedge18, pyramid14, line4, line5, triangle10: serial.
    features | triangle15, quad16, quad25, tetra20, tetra35, hexahedron64, hexahedron125: serial.
    features | wedge40, wedge75: serial.
    """
    M = MassElementAssembler.from_mesh(VARIANTS[variant](kind))().to_dense()
    assert torch.allclose(M, M.T, rtol=0, atol=1e-15)
    assert torch.linalg.eigvalsh(M).min() > 1e-3 * M.abs().max()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("variant", VARIANTS)
def test_constants_have_no_stiffness_and_nothing_else_has_none(kind, variant):
    K = LaplaceElementAssembler.from_mesh(VARIANTS[variant](kind))()
    one = torch.ones(K.shape[0], dtype=K.dtype)
    assert (K @ one).abs().max() < 1e-13 * K.values.abs().max()
    eigenvalues = torch.linalg.eigvalsh(K.to_dense())
    assert int((eigenvalues < 1e-10).sum()) == 1


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("variant", VARIANTS)
def test_energy_of_a_linear_field(kind, variant):
    mesh = VARIANTS[variant](kind)
    u, square = linear(mesh.points)
    K = LaplaceElementAssembler.from_mesh(mesh)()
    assert float(u @ (K @ u)) == pytest.approx(square * SHEAR_VOLUME[mesh.dim], rel=1e-12)


@pytest.mark.parametrize("kind", ALL)
def test_patch(kind):
    # A linear field is in every isoparametric space: prescribed on the boundary, it solves.
    mesh = distorted(kind)
    mask = mesh.topological_boundary_mask()
    assert 0 < int(mask.sum()) < mesh.n_points
    u, _ = linear(mesh.points)
    condenser = Condenser(mask, u)
    K, f = condenser(LaplaceElementAssembler.from_mesh(mesh)())
    assert torch.allclose(condenser.recover(K.solve(f)), u, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", SECOND_ORDER + HIGH_ORDER)
def test_energy_of_a_quadratic_field_from_order_2(kind):
    # u = x0^2 + sum_k x0 xk on the unit box: with m = D - 1 and S the sum of the m others,
    # |grad u|^2 = (2 x0 + S)^2 + m x0^2, whose mean is 4/3 + m + (m/12 + m^2/4) + m/3.
    mesh = filled(kind)
    x = mesh.points
    u = x[:, 0] ** 2 + x[:, 0] * x[:, 1:].sum(1)
    m = mesh.dim - 1
    exact = 4 / 3 + m + m / 12 + m**2 / 4 + m / 3
    K = LaplaceElementAssembler.from_mesh(mesh)()
    assert float(u @ (K @ u)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("kind", ["triangle", "tetra"])
def test_energy_of_a_quadratic_field_on_unequal_straight_simplices(kind):
    mesh = raised(bulged(filled(kind)))
    x = mesh.points
    K = LaplaceElementAssembler.from_mesh(mesh)()
    u = x[:, 0] ** 2 - x[:, 1] ** 2  # |grad u|^2 = 4 x^2 + 4 y^2
    assert float(u @ (K @ u)) == pytest.approx(8 / 3, rel=1e-12)


@pytest.mark.parametrize("kind", SECOND_ORDER + HIGH_ORDER)
def test_mass_integrates_products_of_quadratics(kind):
    # int x0^4 = 1/5, int x0^2 = 1/3.
    mesh = filled(kind)
    M = MassElementAssembler.from_mesh(mesh)()
    u = mesh.points[:, 0] ** 2
    assert float(u @ (M @ u)) == pytest.approx(1 / 5, rel=1e-12)
    assert float(u @ (M @ torch.ones_like(u))) == pytest.approx(1 / 3, rel=1e-12)


@pytest.mark.parametrize("kind", FIRST_ORDER)
def test_mass_integrates_products_of_linear_fields(kind):
    mesh = filled(kind)
    M = MassElementAssembler.from_mesh(mesh)()
    u = mesh.points[:, 0]
    assert float(u @ (M @ u)) == pytest.approx(1 / 3, rel=1e-12)
    assert float(u @ (M @ torch.ones_like(u))) == pytest.approx(1 / 2, rel=1e-12)


def test_pyramid_integrates_height():
    # Base unit square, apex (.5, .5, 1): the section at z has area (1 - z)^2.
    """known-faults | 3: a pyramid integrates z."""
    from tensormesh.assemble import func_node_assembler
    from tensormesh.mesh.mesh import Mesh

    points = torch.tensor(
        [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 1]], dtype=torch.float64
    )
    mesh = Mesh.from_arrays(points, {"pyramid": torch.arange(5).unsqueeze(0)})
    height = func_node_assembler(lambda x: x[2]).from_mesh(mesh)()
    assert float(height.sum()) == pytest.approx(1 / 12, rel=1e-12)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("degree", [1, 3, 5])
def test_quadrature_order_is_a_degree_of_exactness(kind, degree):
    # int x0^degree over the unit box, whatever the order of the cells.
    from tensormesh.assemble import func_node_assembler

    mesh = filled(kind)
    form = func_node_assembler(lambda x: x[0] ** degree)
    # The test function, which sums to one, is integrated along.
    total = degree + cell_type(kind).order
    value = form.from_mesh(mesh, quadrature_order=total)().sum()
    assert float(value) == pytest.approx(1 / (degree + 1), rel=1e-12)
