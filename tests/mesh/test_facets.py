"""Boundary facets, and the sides that groups of lower-dimension cells lie on."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensormesh.mesh import Mesh
from tensormesh.mesh.facets import FacetSet, boundary_facets, facets_of_cells
from tensormesh.mesh.row_keys import row_keys


def grid(n, dim):
    """Points of a unit cube cut in n parts a side, and its cells as corner numbers (x fastest)."""
    steps = torch.linspace(0, 1, n + 1, dtype=torch.float64)
    axes = torch.meshgrid(*[steps] * dim, indexing="ij")
    points = torch.stack([a.flatten() for a in reversed(axes)], dim=1)
    number = torch.arange((n + 1) ** dim).reshape([n + 1] * dim)
    corners = []
    for corner in range(2**dim):
        bits = [corner >> axis & 1 for axis in reversed(range(dim))]
        corners.append(number[tuple(slice(b, n + b) for b in bits)].flatten())
    return points, torch.stack(corners, dim=1)


def quads(n):
    points, corners = grid(n, 2)
    return Mesh.from_arrays(points, {"quad": corners[:, [0, 1, 3, 2]]})


def hexahedra(n):
    points, corners = grid(n, 3)
    return Mesh.from_arrays(points, {"hexahedron": corners[:, [0, 1, 3, 2, 4, 5, 7, 6]]})


def tetrahedra(n):
    points, corners = grid(n, 3)
    paths = [(1, 3), (1, 5), (2, 3), (2, 6), (4, 5), (4, 6)]
    cells = torch.cat([corners[:, [0, a, b, 7]] for a, b in paths])
    return Mesh.from_arrays(points, {"tetra": cells})


def mixed():
    """One hexahedron, on it a pyramid, beside it two wedges: 4 types' facets meet."""
    points = torch.tensor(
        [
            *[(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)],
            *[(0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)],
            (0.5, 0.5, 2),
            *[(2, 0, 0), (2, 1, 0), (2, 0, 1), (2, 1, 1)],
            (0.5, -1, 2),
        ],
        dtype=torch.float64,
    )
    cells = {
        "hexahedron": torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7]]),
        "pyramid": torch.tensor([[4, 5, 6, 7, 8]]),
        "wedge": torch.tensor([[1, 9, 2, 5, 11, 6], [9, 10, 2, 11, 12, 6]]),
        "tetra": torch.tensor([[4, 5, 8, 13]]),
    }
    return Mesh.from_arrays(points, cells)


def test_a_square_of_quads_has_the_facets_of_its_sides():
    facets = quads(5).boundary_facets()
    assert len(facets) == 20
    cell, local = facets["quad"]
    bottom = local == 0
    assert cell[bottom].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("mesh", "n_facets"), [(hexahedra(3), 54), (tetrahedra(3), 108)])
def test_a_cube_has_the_facets_of_its_six_sides(mesh, n_facets):
    """features | facets and boundary: serial."""
    assert len(mesh.boundary_facets()) == n_facets
    outside = ((mesh.points == 0) | (mesh.points == 1)).any(dim=1)
    assert torch.equal(mesh.topological_boundary_mask(), outside)


def test_cells_of_different_types_share_facets():
    """4 + 5 + 2 * 5 + 6 facets, less two for each of 5 that are shared (4 quads or triangles)."""
    facets = mixed().boundary_facets()
    shared = {"hexahedron-pyramid", "hexahedron-wedge", "wedge-wedge", "pyramid-tetra"}
    assert len(facets) == (6 + 5 + 2 * 5 + 4) - 2 * len(shared)
    assert list(facets) == ["hexahedron", "pyramid", "wedge", "tetra"]
    assert len(facets["pyramid"][0]) == 3


def test_hexahedra_and_tetrahedra_that_meet_without_pyramids_share_nothing():
    mesh = hexahedra(1)
    extra = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64)
    tetra = torch.tensor([[1, 3, 7, 8], [1, 7, 5, 8]])
    joined = Mesh.from_arrays(
        torch.cat([mesh.points, extra]),
        {"hexahedron": mesh.cells["hexahedron"], "tetra": tetra},
    )
    assert len(joined.boundary_facets()) == 6 + (2 * 4 - 2)


def test_a_facet_of_three_cells_is_no_boundary():
    points = torch.tensor([[0.0, 0], [1, 0], [0, 1], [0, -1], [1, 1]])
    fins = torch.tensor([[0, 1, 2], [0, 1, 3], [0, 1, 4]])
    assert len(Mesh.from_arrays(points, {"triangle": fins}).boundary_facets()) == 6


def test_ends_of_a_line_are_its_boundary():
    points = torch.linspace(0, 1, 4).unsqueeze(1)
    cells = torch.tensor([[2, 1], [0, 1], [2, 3]])
    mesh = Mesh.from_arrays(points, {"line": cells})
    assert mesh.topological_boundary_mask().tolist() == [True, False, False, True]
    cell, local = mesh.boundary_facets()["line"]
    assert (cell.tolist(), local.tolist()) == ([1, 2], [0, 1])


def test_mid_nodes_of_boundary_facets_are_on_the_boundary():
    points = torch.tensor([[0.0, 0], [1, 0], [0, 1], [0.5, 0], [0.5, 0.5], [0, 0.5]])
    mesh = Mesh.from_arrays(points, {"triangle6": torch.tensor([[0, 1, 2, 3, 4, 5]])})
    assert mesh.topological_boundary_mask().all()


def test_an_empty_part_has_an_empty_boundary():
    mesh = Mesh.from_arrays(torch.zeros(0, 3), {"tetra": torch.zeros(0, 4, dtype=torch.int64)})
    facets = mesh.boundary_facets()
    assert len(facets) == 0
    assert list(facets) == ["tetra"]
    assert mesh.topological_boundary_mask().shape == (0,)


@pytest.mark.parametrize("cells", [{}, {"vertex": torch.tensor([[0]])}])
def test_without_cells_facets_are_refused(cells):
    mesh = Mesh.from_arrays(torch.zeros(2, 2), cells)
    with pytest.raises(ValueError, match="need cells"):
        mesh.boundary_facets()


def test_the_boundary_is_found_once_and_again_after_a_change_of_cells():
    mesh = quads(3)
    first = mesh.boundary_facets()
    assert mesh.boundary_facets() is first
    mesh.cells["quad"] = mesh.cells["quad"][:1]
    assert len(mesh.boundary_facets()) == 4


def test_a_part_can_be_told_its_boundary():
    mesh = quads(2)
    given_facets = FacetSet({"quad": (torch.tensor([0]), torch.tensor([3]))})
    mesh._set_boundary_facets(given_facets)
    assert len(mesh.boundary_facets()) == 1
    assert mesh.topological_boundary_mask().nonzero().flatten().tolist() == [0, 3]
    assert len(mesh.clone().boundary_facets()) == 1


def test_lines_find_the_first_cell_that_has_them():
    mesh = quads(2)
    lines = torch.tensor([[4, 1], [0, 3], [7, 8]])
    mesh = Mesh.from_arrays(mesh.points, {"line": lines, "quad": mesh.cells["quad"]})
    cell, local = facets_of_cells(mesh, {"line": torch.tensor([0, 1, 2])})["quad"]
    assert cell.tolist() == [0, 0, 3]
    assert local.tolist() == [1, 3, 2]
    assert len(facets_of_cells(mesh, {"line": torch.tensor([1])})) == 1


def test_facets_of_cells_finds_triangles_and_quads_of_mixed_meshes():
    mesh = mixed()
    mesh = Mesh.from_arrays(
        mesh.points,
        {
            **mesh.cells.to_dict(),
            "quad": torch.tensor([[2, 6, 5, 1], [10, 9, 11, 12]]),
            "triangle": torch.tensor([[8, 5, 4], [12, 6, 11]]),
        },
    )
    every = {"triangle": torch.tensor([0, 1]), "quad": torch.tensor([0, 1])}
    found = facets_of_cells(mesh, every)
    assert {kind: cell.tolist() for kind, (cell, _) in found.items()} == {
        "hexahedron": [0],
        "pyramid": [0],
        "wedge": [1, 1],
        "tetra": [],
    }


def test_a_line_that_no_cell_has_is_named():
    mesh = quads(2)
    lines = torch.tensor([[0, 1], [0, 8]])
    mesh = Mesh.from_arrays(mesh.points, {"quad": mesh.cells["quad"], "line": lines})
    with pytest.raises(ValueError, match=r"'line'.*cell 1"):
        facets_of_cells(mesh, {"line": torch.tensor([0, 1])})


def test_cells_that_are_no_facets_are_refused():
    mesh = quads(2)
    with pytest.raises(ValueError, match="dimension 1, 'quad' has 2"):
        facets_of_cells(mesh, {"quad": torch.tensor([0])})
    points, cells = mesh.points, mesh.cells["quad"]
    tri = Mesh.from_arrays(
        torch.nn.functional.pad(points, (0, 1)),
        {"tetra": torch.tensor([[0, 1, 3, 4]]), "quad": cells},
    )
    with pytest.raises(ValueError, match="no facet"):
        facets_of_cells(tri, {"quad": torch.tensor([0])})


@given(
    rows=st.lists(st.tuples(*[st.integers(0, 5)] * 4), min_size=1, max_size=30),
    bound=st.sampled_from([6, 2**20, 2**40]),
)
def test_keys_are_equal_exactly_if_rows_are(rows, bound):
    """Whether the digits fit into one number or not; the largest entries decide that."""
    spread = torch.tensor(rows) * ((bound - 1) // 5)
    keys = row_keys(spread, bound)
    expected = (spread.unsqueeze(0) == spread.unsqueeze(1)).all(dim=2)
    assert torch.equal(keys.unsqueeze(0) == keys.unsqueeze(1), expected)


@given(seed=st.integers(0, 2**16), n=st.integers(1, 3))
def test_renumbering_points_and_cells_moves_the_boundary_along(seed, n):
    mesh = tetrahedra(n)
    generator = torch.Generator().manual_seed(seed)
    new_of_old = torch.randperm(mesh.n_points, generator=generator)
    shuffle = torch.randperm(mesh.n_elements, generator=generator)
    points = torch.empty_like(mesh.points)
    points[new_of_old] = mesh.points
    other = Mesh.from_arrays(points, {"tetra": new_of_old[mesh.cells["tetra"]][shuffle]})
    expected = mesh.topological_boundary_mask()
    assert torch.equal(other.topological_boundary_mask()[new_of_old], expected)
    assert len(boundary_facets(other)) == 12 * n * n
