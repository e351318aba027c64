"""`Transformation`: integrals over cells and facets against closed forms."""

import pytest
import torch

import tensormesh as tm
from tensormesh import Mesh, Transformation

SIZES = dict(left=-1.0, right=2.0, bottom=0.5, top=1.5)
BOX = dict(**SIZES, front=0.0, back=0.5)
MESHES = {
    "triangle": Mesh.gen_rectangle(n=(2, 3), **SIZES),
    "triangle6": Mesh.gen_rectangle(order=2, n=(2, 3), **SIZES),
    "quad": Mesh.gen_rectangle(element_type="quad", n=(2, 3), **SIZES),
    "quad9": Mesh.gen_rectangle(element_type="quad", order=2, n=(2, 3), **SIZES),
    "tetra": Mesh.gen_cube(n=(2, 1, 1), **BOX),
    "tetra10": Mesh.gen_cube(order=2, n=(2, 1, 1), **BOX),
    "hexahedron": Mesh.gen_cube(element_type="hex", n=(2, 1, 1), **BOX),
    "hexahedron27": Mesh.gen_cube(element_type="hex", order=2, n=(2, 1, 1), **BOX),
    "wedge": Mesh.gen_cube(element_type="wedge", n=(2, 1, 1), **BOX),
}


def transformation(kind, **kwargs):
    mesh = MESHES[kind]
    return Transformation(mesh.points, mesh.elements(), kind, **kwargs)


@pytest.fixture(params=MESHES)
def cells(request):
    return transformation(request.param)


def test_row_transformation_shapes(cells):
    """base-api 2 | `Transformation(...)`: `shape_val [Q, B]`, `jacobian [E, Q, D, D]`, sizes."""
    E, Q, B, D = cells.n_elements, cells.n_quadrature, cells.n_basis, cells.dim
    assert cells.shape_val.shape == (Q, B)
    assert cells.shape_grad.shape == (E, Q, B, D)
    assert cells.jacobian.shape == (E, Q, D, D)
    assert cells.detJ.shape == cells.JxW.shape == (E, Q)
    assert [len(part) for part in cells.quadrature] == [Q, Q]
    assert cells.basis.shape == (B, D)
    assert cells.element_coords.shape == (E, B, D)
    assert cells.n_points == len(cells.points)


def test_row_transformation_integrates(cells):
    """base-api 2 | `Transformation`: `JxW` is positive and sums to the measure; moments of x.

    features | Transformation: serial.
    """
    volume = 3.0 if cells.dim == 2 else 1.5
    assert cells.JxW.min() > 0
    assert cells.JxW.sum() == pytest.approx(volume)
    x = torch.einsum("qb,ebd->eqd", cells.shape_val, cells.element_coords)[..., 0]
    # The mean of x^2 over [-1, 2] is (8 + 1) / 9.
    assert (cells.JxW * x**2).sum() == pytest.approx(volume)
    assert torch.allclose(cells.detJ.abs() * cells.quadrature[0], cells.JxW)


def test_row_transformation_gradients(cells):
    """base-api 2 | `Transformation`: `shape_grad` differentiates a linear field exactly."""
    slope = torch.arange(1.0, cells.dim + 1, dtype=torch.float64)
    grad = torch.einsum("eqbd,eb->eqd", cells.shape_grad, cells.element_coords @ slope)
    assert torch.allclose(grad, slope.expand_as(grad))


@pytest.mark.parametrize("kind", [kind for kind in MESHES if kind != "wedge"])
def test_row_transformation_facets(kind):
    """base-api 2 | `Transformation`: `facets [E, nf, Bf]`, `facet_shape_val`, `FxW`."""
    cells, mesh = transformation(kind), MESHES[kind]
    n_facet = tm.element_type2element(kind).get_n_facet()
    assert cells.facets.shape[:2] == (cells.n_elements, n_facet)
    assert cells.facet_shape_val.shape[::2] == (n_facet, cells.n_basis)
    assert cells.FxW.shape == (cells.n_elements, *cells.facet_shape_val.shape[:2])
    cell, local = mesh.boundary_facets()[kind]
    boundary = 8.0 if mesh.dim == 2 else 2 * (3 * 1 + 3 * 0.5 + 1 * 0.5)
    assert cells.FxW[cell, local].sum() == pytest.approx(boundary)
    # On a facet only its own nodes have values, and these sum to one.
    on_facet = cells.facet_shape_val.abs().amax(dim=1) > 1e-12
    for number, nodes in enumerate(cells.facets[0]):
        assert set(cells.elements[0][on_facet[number]].tolist()) <= set(nodes.tolist())


def test_row_transformation_of_mixed_facets():
    """base-api 2 | `Transformation`: facets of two shapes do not fit one tensor."""
    with pytest.raises(NotImplementedError, match="two shapes"):
        _ = transformation("wedge").FxW


def test_row_transformation_quadrature_order():
    """base-api 2 | `Transformation(quadrature_order=2)`: at least twice the order of the cells."""
    mass_degree = tm.Triangle.get_quadrature(4)[0]
    assert transformation("triangle6").n_quadrature == len(mass_degree)
    assert transformation("triangle", quadrature_order=4).n_quadrature == len(mass_degree)
    with pytest.raises(ValueError, match="quadrature_order"):
        transformation("triangle", quadrature_order=0)


def test_row_update_points_forgets_what_was_computed():
    """base-api 2 | `update_points(points)`: everything follows the new points."""
    cells = transformation("triangle")
    before, gradients = cells.JxW, cells.shape_grad
    cells.update_points(2 * cells.points)
    assert torch.allclose(cells.JxW, 4 * before)
    assert torch.allclose(cells.shape_grad, gradients / 2)
    with pytest.raises(ValueError, match="shape"):
        cells.update_points(cells.points[:3])


def test_row_transformation_is_differentiable_in_points():
    """base-api 2 | `Transformation`: the gradient of the area is the boundary's normal.

    features | Transformation: differentiable.
    """
    points = MESHES["quad"].points.clone().requires_grad_()
    cells = Transformation(points, MESHES["quad"].elements(), "quad")
    (gradient,) = torch.autograd.grad(cells.JxW.sum(), points)
    inside = ~MESHES["quad"].boundary_mask
    assert gradient[inside].abs().max() < 1e-12
    right = MESHES["quad"].point_data["is_right_boundary"]
    assert gradient[right, 0].sum() == pytest.approx(1.0)  # the length of the right side


def test_row_transformation_of_a_surface():
    """base-api 2 | `Transformation`: a line in the plane has its length."""
    mesh = MESHES["triangle"]
    lines = Transformation(mesh.points, mesh.cells["line"], "line")
    assert lines.JxW.sum() == pytest.approx(8.0)


def test_row_transformation_refuses_wrong_shapes():
    """base-api 2 | `Transformation`: wrong shapes are errors."""
    with pytest.raises(ValueError, match="elements"):
        Transformation(torch.zeros(3, 2), torch.zeros(1, 4, dtype=torch.int64), "triangle")
    with pytest.raises(ValueError, match="points"):
        Transformation(torch.zeros(3, 1), torch.zeros(1, 3, dtype=torch.int64), "triangle")
