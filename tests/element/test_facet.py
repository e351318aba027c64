"""Facets of cells: which nodes, which way they face, and the divergence theorem."""

import pytest
import torch

from tensormesh.element import (
    cell_type,
    facet_quadrature,
    local_facets,
    quadrature,
    reference_nodes,
    tabulate,
)
from tensormesh.element.cell_type import NAMES

CELLS = [name for name in NAMES if name != "vertex"]
N_FACETS = {"line": 2, "triangle": 3, "quad": 4, "tetra": 4, "hexahedron": 6, "wedge": 5}


def moved_nodes(name, bend):
    """Nodes of a cell under an affine map, and with `bend` also under a small quadratic one.

    The field below is integrated exactly for all of these: what is integrated is polynomial in the
    reference coordinates.
    """
    x = reference_nodes(name)
    d = x.shape[1]
    generator = torch.Generator().manual_seed(d)
    A = torch.eye(d, dtype=torch.float64) * 1.3
    A += 0.3 * torch.rand(d, d, dtype=torch.float64, generator=generator)
    y = x @ A.T + 0.7
    return y + bend * x.prod(dim=1, keepdim=True) * torch.arange(1, d + 1, dtype=torch.float64)


def field(x):
    """The field x s, where s is the sum of the d coordinates, and its divergence (d + 1) s."""
    s = x.sum(dim=1)
    return x * s.unsqueeze(1), (x.shape[1] + 1) * s


def volume_side(name, nodes, degree):
    points, weights = quadrature(name, degree)
    values, gradients = tabulate(name, points)
    J = torch.einsum("bd,qbk->qdk", nodes, gradients)
    _, divergence = field(values @ nodes)
    return float((weights * torch.linalg.det(J).abs() * divergence).sum())


def surface_side(name, nodes, degree):
    total = 0.0
    for number, facet in enumerate(local_facets(name)):
        points, weights = facet_quadrature(name, number, degree)
        values, gradients = tabulate(name, points)
        J = torch.einsum("bd,qbk->qdk", nodes, gradients)
        normal = torch.tensor(facet.normal, dtype=torch.float64)
        scaled = torch.linalg.inv(J).mT @ normal * torch.linalg.det(J).abs().unsqueeze(1)
        total += float((weights * (field(values @ nodes)[0] * scaled).sum(dim=1)).sum())
    return total


# The Jacobian of a bent pyramid is no polynomial, and its integral not exact.
@pytest.mark.parametrize(
    ("name", "bend"),
    [(n, b) for n in CELLS for b in (0.0, 0.15) if not (b and cell_type(n).shape == "pyramid")],
)
def test_divergence_theorem(name, bend):
    """features | LocalFacet, local_facets, facet_quadrature: serial."""
    nodes = moved_nodes(name, bend)
    inside = volume_side(name, nodes, 12)
    assert surface_side(name, nodes, 12) == pytest.approx(inside, rel=1e-11)
    assert abs(inside) > 0.1


@pytest.mark.parametrize("name", CELLS)
def test_facets_are_closed_and_have_the_measure_of_the_reference_cell(name):
    """The normals times measures sum to zero; each points away from the middle."""
    d = cell_type(name).dim
    total = torch.zeros(d, dtype=torch.float64)
    middle = reference_nodes(name)[: cell_type(name).n_vertices].mean(dim=0)
    for number, facet in enumerate(local_facets(name)):
        points, weights = facet_quadrature(name, number, 1)
        normal = torch.tensor(facet.normal, dtype=torch.float64)
        total += weights.sum() * normal
        assert ((points - middle) @ normal > 0).all()
        assert float(normal.norm()) == pytest.approx(1.0)
    assert total.abs().max() < 1e-14


@pytest.mark.parametrize("name", CELLS)
def test_nodes_of_a_facet_are_in_its_own_file_order(name):
    """Interpolating on the facet with its own basis gives the points of the facet's rule."""
    for number, facet in enumerate(local_facets(name)):
        own_points, _ = quadrature(facet.cell_name, 3)
        values, _ = tabulate(facet.cell_name, own_points)
        on_cell = values @ reference_nodes(name)[list(facet.nodes)]
        assert torch.allclose(on_cell, facet_quadrature(name, number, 3)[0], atol=1e-14)
        assert facet.nodes[: len(facet.vertices)] == facet.vertices


@pytest.mark.parametrize("name", [n for n in CELLS if cell_type(n).dim == 3])
def test_vertices_turn_around_the_outward_normal(name):
    nodes = reference_nodes(name)
    for facet in local_facets(name):
        a, b, c = nodes[list(facet.vertices[:3])]
        assert torch.linalg.cross(b - a, c - a) @ torch.tensor(facet.normal).double() > 0


@pytest.mark.parametrize("name", [n for n in CELLS if cell_type(n).order > 1])
def test_facets_hold_every_node_that_lies_on_them(name):
    nodes = reference_nodes(name)
    for facet in local_facets(name):
        normal = torch.tensor(facet.normal, dtype=torch.float64)
        offset = (nodes - nodes[facet.vertices[0]]) @ normal
        assert set(facet.nodes) == set((offset.abs() < 1e-12).nonzero().flatten().tolist())


def test_number_of_facets():
    assert {name: len(local_facets(name)) for name in N_FACETS} == N_FACETS
    assert len(local_facets("pyramid14")) == 5
    assert local_facets("vertex") == ()


def test_ends_of_a_line_are_vertices_of_weight_one():
    assert [f.cell_name for f in local_facets("line3")] == ["vertex", "vertex"]
    points, weights = facet_quadrature("line3", 1, 4)
    assert points.tolist() == [[1.0]]
    assert weights.tolist() == [1.0]


@pytest.mark.parametrize("facet", [-1, 4])
def test_facet_that_is_not_there_is_refused(facet):
    with pytest.raises(ValueError, match="4 facets"):
        facet_quadrature("quad", facet, 2)
