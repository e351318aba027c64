import logging

import numpy as np
import pytest
import torch

from tensormesh.mesh.adjacency import cell_adjacency
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.mesh import Mesh
from tensormesh.mesh.partition import partition_cells, partition_mesh
from tests.mesh.measure import volumes

METHODS = ["coordinate", "spectral", "metis"]
MESHES = {
    "tri": (gen_rectangle(n=(9, 8)), 2 * 17),
    "quad9": (gen_rectangle(element_type="quad", order=2, n=(9, 8)), 2 * 17),
    "mixed": (gen_rectangle(element_type="mixed", n=(10, 6)), 2 * 16),
    "tet": (gen_cube(n=(4, 4, 4)), 6 * 2 * 16),
    "hex": (gen_cube(element_type="hex", n=(5, 5, 5)), 6 * 25),
    "wedge": (gen_cube(element_type="wedge", n=(4, 4, 4)), 2 * 2 * 16 + 4 * 16),
}


def crossing(mesh, labels):
    coo = cell_adjacency(mesh).tocoo()
    labels = labels.numpy()
    return np.count_nonzero(labels[coo.row] != labels[coo.col]) // 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MESHES)
@pytest.mark.parametrize("n_parts", [2, 3, 5, 7])
def test_parts_share_out_the_mesh(name, method, n_parts):
    mesh, n_boundary_facets = MESHES[name]
    parts = partition_mesh(mesh, n_parts, method)
    assert len(parts) == n_parts
    assert all(part.n_elements > 0 for part in parts)
    assert sum(part.n_elements for part in parts) == mesh.n_elements
    for kind, conn in mesh.cells.items():
        index = [p.cell_data["orig_cid"][kind] for p in parts if kind in p.cells]
        assert torch.cat(index).sort().values.tolist() == list(range(len(conn)))
    assert sum(float(volumes(part).sum()) for part in parts) == pytest.approx(1.0)
    assert sum(len(part.boundary_facets()) for part in parts) == n_boundary_facets


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_parts", [2, 3, 5, 7])
def test_parts_are_balanced(method, n_parts):
    # 7986 tetrahedra: a thousand a part and more.
    mesh = gen_cube(n=(11, 11, 11))
    sizes = torch.bincount(partition_cells(mesh, n_parts, method))
    if method == "metis":
        mean = mesh.n_elements / n_parts
        assert sizes.tolist() == pytest.approx([mean] * n_parts, rel=0.03)
    else:
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MESHES)
def test_labels_are_the_same_each_time(name, method):
    mesh, _ = MESHES[name]
    labels = partition_cells(mesh, 5, method)
    np.random.default_rng().random(10)
    torch.rand(10)
    assert torch.equal(labels, partition_cells(mesh.clone(), 5, method))


@pytest.mark.parametrize(("method", "at_most"), [("metis", 1.1), ("spectral", 1.2)])
@pytest.mark.parametrize("n_parts", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("n", [8, 9])
def test_cut_is_not_much_longer_than_that_of_coordinates(method, at_most, n_parts, n):
    mesh = gen_cube(n=(n, n, n))
    by_coordinates = crossing(mesh, partition_cells(mesh, n_parts))
    assert crossing(mesh, partition_cells(mesh, n_parts, method)) <= at_most * by_coordinates


def test_three_parts_of_246_triangles_have_82_each():
    """known-faults | 22: RCB in 3 parts of 246 triangles: 82 each."""
    mesh = gen_rectangle(n=(41, 3))
    assert torch.bincount(partition_cells(mesh, 3)).tolist() == [82, 82, 82]


def test_halves_of_a_cube_are_cut_by_a_plane():
    # A plane of an n x n grid of boxes goes through the two triangles of each.
    mesh = gen_cube(n=(6, 6, 6))
    assert crossing(mesh, partition_cells(mesh, 2)) == 2 * 6 * 6


@pytest.mark.parametrize("method", METHODS)
def test_as_many_parts_as_cells(method):
    mesh = gen_rectangle(n=(3, 2))
    assert sorted(partition_cells(mesh, 12, method).tolist()) == list(range(12))
    assert partition_cells(mesh, 1, method).tolist() == [0] * 12


@pytest.mark.parametrize("method", METHODS)
def test_disconnected_mesh(method):
    one = gen_rectangle(n=(6, 6))
    points = torch.cat([one.points + 3.0 * i for i in range(3)])
    cells = torch.cat([one.cells["triangle"] + i * one.n_points for i in range(3)])
    labels = partition_cells(Mesh.from_arrays(points, {"triangle": cells}), 3, method)
    assert torch.bincount(labels).tolist() == [72, 72, 72]
    assert crossing(Mesh.from_arrays(points, {"triangle": cells}), labels) == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [torch.tensor, np.array, list])
def test_work_is_shared_out_by_weight(method, kind):
    mesh = gen_rectangle(n=(20, 20))
    weights = [5.0 if i < 200 else 1.0 for i in range(800)]
    work = np.bincount(partition_cells(mesh, 4, method, kind(weights)), weights)
    assert work.tolist() == pytest.approx([400.0] * 4, rel=0.03)


def test_dual_graph_methods_do_not_see_coordinates_and_gradients_do_not_matter():
    mesh = gen_cube(n=(3, 3, 3))
    labels = partition_cells(mesh, 3)
    mesh.points = mesh.points.requires_grad_()
    assert torch.equal(labels, partition_cells(mesh, 3))
    assert all(part.points.requires_grad for part in partition_mesh(mesh, 2))


@pytest.mark.parametrize("method", METHODS)
def test_lines_in_the_plane(method):
    t = torch.linspace(0, 1, 101, dtype=torch.float64)
    cells = torch.stack([torch.arange(100), torch.arange(1, 101)], dim=1)
    mesh = Mesh.from_arrays(torch.stack([t, t**2], dim=1), {"line": cells})
    parts = partition_mesh(mesh, 4, method)
    assert [part.n_elements for part in parts] == [25] * 4
    assert sum(len(part.boundary_facets()) for part in parts) == 2


def test_lower_cells_without_a_top_cell_are_reported_once(caplog):
    mesh = gen_rectangle(n=(3, 3))
    lines = torch.cat([mesh.cells["line"], torch.tensor([[0, 15], [3, 12]])])
    mesh = Mesh.from_arrays(mesh.points, mesh.cells.to_dict() | {"line": lines})
    with caplog.at_level(logging.WARNING, logger="tensormesh"):
        parts = partition_mesh(mesh, 3)
    assert [record.getMessage()[:26] for record in caplog.records] == ["2 of 14 cells of type 'lin"]
    assert sum(len(part.cells["line"]) for part in parts if "line" in part.cells) == 12


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (dict(n_parts=2, method="nonsense"), "'nonsense'; known are coordinate, spectral, metis"),
        (dict(n_parts=0), "n_parts = 0 is impossible with 18 cells"),
        (dict(n_parts=-3), "n_parts = -3"),
        (dict(n_parts=19), "n_parts = 19 is impossible with 18 cells"),
        (dict(n_parts=2, weights=[1.0]), r"shape \(18,\), got \(1,\)"),
        (dict(n_parts=2, weights=[1.0] * 17 + [-1.0]), r"weights\[17\] = -1.0"),
        (dict(n_parts=2, weights=[float("nan")] * 18), r"weights\[0\] = nan"),
        (dict(n_parts=2, weights=[0.0] * 18), "All weights are zero"),
    ],
)
def test_wrong_argument_is_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        partition_cells(gen_rectangle(n=(3, 3)), **arguments)


def test_number_of_parts_must_be_an_integer():
    with pytest.raises(TypeError, match=r"2\.0"):
        partition_cells(gen_rectangle(n=(3, 3)), 2.0)


@pytest.mark.parametrize("method", METHODS)
def test_bad_meshes_are_refused(method):
    mesh = gen_rectangle(n=(3, 3))
    mesh.points[4, 1] = float("nan")
    with pytest.raises(ValueError, match="Point 4"):
        partition_cells(mesh, 2, method)
    mesh = gen_rectangle(n=(3, 3))
    mesh.cells["triangle"] = mesh.cells["triangle"] + 10
    with pytest.raises(ValueError, match="there are 16 points"):
        partition_cells(mesh, 2, method)
    with pytest.raises(ValueError, match="no cells"):
        partition_cells(Mesh.from_arrays(torch.zeros(3, 2), {}), 2, method)


def test_parts_without_interface_nodes_do_not_exist():
    with pytest.raises(NotImplementedError, match="ghost_nodes"):
        partition_mesh(gen_rectangle(), 2, ghost_nodes=False)
