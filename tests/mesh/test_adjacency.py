from itertools import combinations

import numpy as np
import pytest
import torch

from tensormesh.element.facet import local_facets
from tensormesh.mesh.adjacency import cell_adjacency, node_graph
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.mesh import Mesh

MESHES = {
    "tri": gen_rectangle(n=(3, 4)),
    "quad9": gen_rectangle(element_type="quad", order=2, n=(3, 4)),
    "mixed": gen_rectangle(element_type="mixed", n=(4, 3)),
    "tet": gen_cube(n=(2, 3, 2)),
    "tet10": gen_cube(order=2, n=(2, 2, 2)),
    "hex": gen_cube(element_type="hex", n=(3, 2, 2)),
    "wedge": gen_cube(element_type="wedge", n=(2, 3, 2)),
}


@pytest.fixture(params=MESHES)
def mesh(request):
    return MESHES[request.param]


def neighbours_by_definition(mesh):
    owners, number = {}, 0
    for kind, conn in mesh.top_cells().items():
        for nodes in conn.tolist():
            for facet in local_facets(kind):
                owners.setdefault(frozenset(nodes[v] for v in facet.vertices), []).append(number)
            number += 1
    return {pair for cells in owners.values() for pair in combinations(cells, 2)}


def pairs(matrix):
    coo = matrix.tocoo()
    return {(i, j) for i, j in zip(coo.row.tolist(), coo.col.tolist(), strict=True) if i < j}


def test_cells_are_neighbours_if_they_share_a_facet(mesh):
    adjacency = cell_adjacency(mesh)
    assert pairs(adjacency) == neighbours_by_definition(mesh)
    assert adjacency.shape == (mesh.n_elements, mesh.n_elements)
    assert abs(adjacency - adjacency.T).nnz == 0
    assert not adjacency.diagonal().any()
    assert set(adjacency.data.tolist()) == {1}


@pytest.mark.parametrize("n", [1, 2, 5])
def test_number_of_interior_facets_of_a_cube(n):
    # Four faces a tetrahedron, of which 12 n^2 are on the boundary; both sides are stored.
    assert cell_adjacency(gen_cube(n=(n, n, n))).nnz == 4 * 6 * n**3 - 12 * n**2
    assert cell_adjacency(gen_cube(element_type="hex", n=(n, n, n))).nnz == 6 * n**3 - 6 * n**2


def test_wedge_and_hexahedron_meet_in_a_quad():
    points = torch.tensor(
        [[x, y, z] for z in (0.0, 1.0) for x, y in [(0, 0), (1, 0), (1, 1), (0, 1), (2, 0)]]
    )
    cells = {
        "hexahedron": torch.tensor([[0, 1, 2, 3, 5, 6, 7, 8]]),
        "wedge": torch.tensor([[1, 4, 2, 6, 9, 7]]),
    }
    assert pairs(cell_adjacency(Mesh.from_arrays(points, cells))) == {(0, 1)}


def test_facet_of_three_cells_makes_each_two_of_them_neighbours():
    points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 1.0]])
    cells = {"triangle": torch.tensor([[0, 1, 2], [1, 0, 3], [0, 1, 4]])}
    mesh = Mesh.from_arrays(points, cells)
    assert pairs(cell_adjacency(mesh)) == {(0, 1), (0, 2), (1, 2)}


def test_cells_of_a_line_meet_in_their_ends():
    mesh = Mesh.from_arrays(
        torch.arange(4.0)[:, None], {"line": torch.tensor([[0, 1], [2, 1], [2, 3]])}
    )
    assert pairs(cell_adjacency(mesh)) == {(0, 1), (1, 2)}


def test_single_cell_has_no_neighbour():
    mesh = gen_rectangle(element_type="quad", n=(1, 1))
    assert cell_adjacency(mesh).nnz == 0
    assert cell_adjacency(mesh).shape == (1, 1)


def test_nodes_are_adjacent_if_they_share_a_cell(mesh):
    expected = np.zeros((mesh.n_points, mesh.n_points), np.int64)
    for conn in mesh.top_cells().values():
        for nodes in conn.numpy():
            expected[np.ix_(nodes, nodes)] = 1
    assert np.array_equal(node_graph(mesh).toarray(), expected)


def test_point_without_a_cell_has_an_empty_row():
    points = torch.tensor([[5.0, 5.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    mesh = Mesh.from_arrays(points, {"triangle": torch.tensor([[1, 2, 3]])})
    assert node_graph(mesh).sum(axis=1).tolist() == [0, 3, 3, 3]
