"""Element classes and tables: the rows of the contract, checked against geometry."""

import itertools
import math

import pytest
import torch

import tensormesh as tm
from tensormesh.element import (
    Element,
    Hexahedron,
    Line,
    Prism,
    Pyramid,
    Quadrilateral,
    Tetrahedron,
    Triangle,
    element_type2dimension,
    element_type2element,
    element_type2order,
    element_types,
)

CLASSES = [Line, Triangle, Quadrilateral, Tetrahedron, Hexahedron, Prism, Pyramid]
MEASURE = {
    Line: 1.0,
    Triangle: 1 / 2,
    Quadrilateral: 1.0,
    Tetrahedron: 1 / 6,
    Hexahedron: 1.0,
    Prism: 1 / 2,
    Pyramid: 1 / 3,
}
# Vertices, edges, facets; nodes of order 1 and 2.
COUNTS = {
    Line: (2, 1, 2, 2, 3),
    Triangle: (3, 3, 3, 3, 6),
    Quadrilateral: (4, 4, 4, 4, 9),
    Tetrahedron: (4, 6, 4, 4, 10),
    Hexahedron: (8, 12, 6, 8, 27),
    Prism: (6, 9, 5, 6, 18),
    Pyramid: (5, 8, 5, 5, 14),
}
NAMES = {
    Line: ("line", "line3", "line4", "line5"),
    Triangle: ("triangle", "triangle6", "triangle10", "triangle15"),
    Quadrilateral: ("quad", "quad9", "quad16", "quad25"),
    Tetrahedron: ("tetra", "tetra10", "tetra20", "tetra35"),
    Hexahedron: ("hexahedron", "hexahedron27", "hexahedron64", "hexahedron125"),
    Prism: ("wedge", "wedge18", "wedge40", "wedge75"),
    Pyramid: ("pyramid", "pyramid14"),
}
every_class = pytest.mark.parametrize("element", CLASSES, ids=lambda c: c.__name__)
every_order = pytest.mark.parametrize("order", [1, 2])


def test_row_exports_of_elements():
    """base-api 1 | elements: `Element`, `Line`, ..., `element_type2dimension`."""
    for name in [*(c.__name__ for c in [Element, *CLASSES]), "element_types"]:
        assert getattr(tm, name) is getattr(tm.element, name)
    assert all(issubclass(c, Element) for c in CLASSES)


def test_row_element_tables():
    """base-api 1 | `element_types`, `element_type2element(name)`, `..2order`, `..2dimension`.

    features | element_type2element: serial.
    """
    assert sorted(element_types) == sorted(itertools.chain(*NAMES.values()))
    for element, names in NAMES.items():
        for order, name in enumerate(names, start=1):
            assert element_type2element(name) is element
            assert element_type2order[name] == order
            assert element_type2dimension[name] == element.dim
    with pytest.raises(KeyError, match="tetra99"):
        element_type2element("tetra99")
    with pytest.raises(KeyError, match="no class"):
        element_type2element("vertex")


@every_class
def test_row_attributes(element):
    """base-api 2 | class attributes `dim, n_vertex, n_edge, edge, points, is_mix_facet`.

    features | Element, Line, Triangle, Quadrilateral, Tetrahedron, Hexahedron, Prism: serial.
    features | Pyramid: serial.
    """
    n_vertex, n_edge, n_facet, _, _ = COUNTS[element]
    assert (element.n_vertex, element.n_edge, element.get_n_facet()) == (n_vertex, n_edge, n_facet)
    assert len(element.points) == n_vertex
    assert {len(p) for p in element.points} == {element.dim}
    assert len({frozenset(e) for e in element.edge}) == n_edge
    assert element.is_mix_facet == (element in (Prism, Pyramid))
    if element.dim == 3:  # Euler's formula for polyhedra.
        assert n_vertex - n_edge + n_facet == 2


@every_class
@every_order
def test_row_get_basis_lists_vertices_then_middles_of_edges(element, order):
    """base-api 2 | `get_basis(order=1, dtype=float32, device)` -> `[B, D]`; node sequence."""
    nodes = element.get_basis(order, torch.float64)
    assert nodes.shape == (COUNTS[element][2 + order], element.dim)
    assert element.get_n_basis(order) == len(nodes)
    corners = torch.tensor(element.points, dtype=torch.float64)
    assert torch.equal(nodes[: element.n_vertex], corners)
    if order == 2:
        middles = corners[torch.tensor(element.edge)].mean(dim=1)
        assert torch.allclose(nodes[element.n_vertex :][: element.n_edge], middles)
    assert element.get_basis().dtype == torch.float32


@every_class
def test_row_orders_beyond_four_are_refused(element):
    """base-api 2 | cell types: orders 1 to 4 are supported, others are a `KeyError`."""
    with pytest.raises(KeyError, match="order 5"):
        element.get_basis(5)


def monomial_integral(element, powers):
    """Integral of x^a y^b z^c over the reference cell, in closed form."""
    f = math.factorial
    a = powers
    if element in (Line, Quadrilateral, Hexahedron):
        return math.prod(1 / (p + 1) for p in a)
    if element in (Triangle, Tetrahedron):
        return math.prod(map(f, a)) / f(sum(a) + element.dim)
    if element is Prism:
        return f(a[0]) * f(a[1]) / f(a[0] + a[1] + 2) / (a[2] + 1)
    # Pyramid: x and y go from 0 to 1 - z; a beta function remains.
    n = a[0] + a[1] + 2
    return f(n) * f(a[2]) / f(n + a[2] + 1) / ((a[0] + 1) * (a[1] + 1))


@every_class
@pytest.mark.parametrize("degree", range(1, 8))
def test_row_quadrature_is_exact_and_positive(element, degree):
    """base-api 2 | `get_quadrature(order=1, ...)` -> `(w [Q], p [Q, D])`; the quadrature table."""
    weights, points = element.get_quadrature(degree, torch.float64)
    assert points.shape == (len(weights), element.dim)
    assert weights.min() > 0
    for powers in itertools.product(range(degree + 1), repeat=element.dim):
        if sum(powers) <= degree:
            found = (weights * (points ** torch.tensor(powers)).prod(dim=1)).sum()
            assert found == pytest.approx(monomial_integral(element, powers), rel=1e-11)
    assert element.get_quadrature(degree)[0].dtype == torch.float32


@every_class
@every_order
def test_row_facets_lie_on_the_boundary(element, order):
    """base-api 2 | `get_facet(order=1)`, `get_facet_type()`, `get_n_facet()`."""
    facets = element.get_facet(order)
    tables = facets if isinstance(facets, dict) else {"": facets}
    assert isinstance(facets, dict) == element.is_mix_facet
    assert sum(map(len, tables.values())) == element.get_n_facet()
    nodes = element.get_basis(order, torch.float64)
    for table in tables.values():
        for facet in nodes[table]:
            # All nodes of the cell are on one side of the plane of the facet.
            if element.dim == 1:
                assert facet.item() in (0.0, 1.0)
                continue
            axes = facet - facet[0]
            normal = torch.linalg.svd(axes)[2][-1]
            assert (axes @ normal).abs().max() < 1e-12
            heights = (nodes - facet[0]) @ normal
            assert heights.min() > -1e-12 or heights.max() < 1e-12


def test_row_facet_types():
    """base-api 2 | `get_facet_type()`: the class of the facets, a tuple of two shapes."""
    assert Triangle.get_facet_type() is Quadrilateral.get_facet_type() is Line
    assert Tetrahedron.get_facet_type() is Triangle
    assert Hexahedron.get_facet_type() is Quadrilateral
    for mixed, n_triangles in [(Prism, 2), (Pyramid, 4)]:
        kinds = mixed.get_facet_type()
        assert kinds.count(Triangle) == n_triangles
        assert kinds.count(Quadrilateral) == 5 - n_triangles
    with pytest.raises(NotImplementedError, match="points"):
        Line.get_facet_type()


@every_class
@every_order
def test_row_reorder_changes_nothing(element, order):
    """base-api 2 | `reorder(conn, to_gmsh=True)`, `get_gmsh_permutation(n_nodes)`."""
    n = element.get_n_basis(order)
    conn = torch.arange(3 * n).reshape(3, n)
    for to_gmsh in (True, False):
        assert torch.equal(element.reorder(conn, to_gmsh=to_gmsh), conn)
    assert torch.equal(conn[:, element.get_gmsh_permutation(n)], conn)
    with pytest.raises(ValueError, match="nodes"):
        element.get_gmsh_permutation(99)


@every_class
@every_order
def test_row_eval_shape_val_is_one_at_its_node(element, order):
    """base-api 2 | `eval_shape_val(p, order)`: Lagrange basis, a partition of unity."""
    nodes = element.get_basis(order, torch.float64)
    identity = torch.eye(len(nodes), dtype=torch.float64)
    assert torch.allclose(element.eval_shape_val(nodes, order), identity, atol=1e-12)
    _, p = element.get_quadrature(3, torch.float64)
    assert torch.allclose(element.eval_shape_val(p, order).sum(dim=1), torch.ones(len(p)).double())


@every_class
@every_order
def test_row_eval_shape_grad_differentiates_linear_fields(element, order):
    """base-api 2 | `eval_shape_grad(coords, p, order)` -> `(grad [E, Q, B, D], jacobian)`."""
    d = element.dim
    A = torch.eye(d, dtype=torch.float64) + 0.3 * torch.arange(d * d).reshape(d, d) / (d * d)
    nodes = element.get_basis(order, torch.float64)
    coords = torch.stack([nodes @ A.T, 2 * nodes])
    _, p = element.get_quadrature(3, torch.float64)
    grad, jacobian = element.eval_shape_grad(coords, p, order)
    assert grad.shape == (2, len(p), element.get_n_basis(order), d)
    assert torch.allclose(jacobian[0], A.expand(len(p), d, d))
    assert torch.allclose(jacobian[1], 2 * torch.eye(d).double().expand(len(p), d, d))
    slope = torch.arange(1.0, d + 1).double()
    found = torch.einsum("eqbd,eb->eqd", grad, coords @ slope)
    assert torch.allclose(found, slope.expand_as(found))
    with pytest.raises(ValueError, match="coords"):
        element.eval_shape_grad(coords[0], p, order)


@every_class
def test_row_reference_cells(element):
    """base-api 2 | reference cell of each class: its measure is the sum of the weights."""
    assert element.get_quadrature(1, torch.float64)[0].sum() == pytest.approx(MEASURE[element])
