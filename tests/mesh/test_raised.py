"""Meshes of higher order with the same geometry: nodes, data on them, and what is kept."""

import copy
import pickle

import pytest
import torch

from tensormesh.element import cell_name, cell_type, reference_nodes, tabulate
from tensormesh.mesh import Mesh
from tensormesh.mesh.facets import facets_of_cells
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.submesh import extract_part
from tests.assemble.meshes import FIRST_ORDER, bulged, filled, raised

CASES = [
    (kind, order)
    for kind in FIRST_ORDER
    for order in (1, 2, 3, 4)
    if kind != "pyramid" or order < 3
]

# A hexahedron, a pyramid at its right, a wedge behind it, a tetrahedron at each of the latter.
_POINTS = [
    *((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)),
    *((1.6, 0.5, 0.5), (0.5, 1.7, 0), (0.5, 1.7, 1), (1.5, 0.5, 1.2), (0.5, 1.2, -0.6)),
]
_CELLS = {
    "hexahedron": [[0, 1, 2, 3, 4, 5, 6, 7]],
    "pyramid": [[1, 2, 6, 5, 8]],
    "wedge": [[3, 2, 9, 7, 6, 10]],
    "tetra": [[5, 6, 8, 11], [3, 2, 9, 12]],
    "triangle": [[5, 6, 11]],
    "quad": [[0, 1, 5, 4]],
    "line": [[8, 11]],
    "vertex": [[12]],
}


def all_shapes(seed=0, kinds=tuple(_CELLS)):
    """Mesh with cells of every shape, whose points are numbered at random."""
    number = torch.randperm(len(_POINTS), generator=torch.Generator().manual_seed(seed))
    points = torch.empty(len(_POINTS), 3, dtype=torch.float64)
    points[number] = torch.tensor(_POINTS, dtype=torch.float64)
    return Mesh.from_arrays(points, {k: number[torch.tensor(_CELLS[k])] for k in kinds})


def places(mesh, high):
    """Coordinates of the nodes of each cell of `high` by the basis of `mesh`, type by type."""
    for (kind, cells), (name, nodes) in zip(mesh.cells.items(), high.cells.items(), strict=True):
        values, _ = tabulate(kind, reference_nodes(name))
        yield nodes, torch.einsum("qb,ebd->eqd", values, mesh.points[cells])


def distances(x, y):
    return (x.unsqueeze(1) - y).norm(dim=2)


def polynomial(x, degree):
    return (1 + x @ torch.tensor([0.7, -1.1, 0.4], dtype=x.dtype)[: x.shape[-1]]) ** degree


@pytest.mark.parametrize(("kind", "order"), CASES)
def test_nodes_are_those_of_different_places(kind, order):
    mesh = filled(kind)
    high = mesh.raised(order)
    assert high.default_element_type == cell_name(kind, order)
    assert high.n_points == (raised(mesh, order).n_points if order > 1 else mesh.n_points)
    assert torch.equal(high.points[: mesh.n_points], mesh.points)
    assert high.geometry_order == (1 if order > 1 else None)
    assert bool(high.used_points.all())


@pytest.mark.parametrize(("kind", "order"), CASES)
def test_cells_see_a_node_at_the_same_place(kind, order):
    mesh = bulged(filled(kind))
    high = mesh.raised(order)
    for nodes, where in places(mesh, high):
        assert (high.points[nodes] - where).abs().max() < 1e-14


@pytest.mark.parametrize("order", [2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_cells_of_all_shapes_share_nodes(seed, order):
    kinds = tuple(k for k in _CELLS if order == 2 or k != "pyramid")
    mesh = all_shapes(seed, kinds)
    high = mesh.raised(order)
    for nodes, where in places(mesh, high):
        assert (high.points[nodes] - where).abs().max() < 1e-14
    used = high.points[torch.unique(torch.cat([c.flatten() for c in high.cells.values()]))]
    distance = distances(used, used) + 9 * torch.eye(len(used))
    assert distance.min() > 1e-3, "one place has two nodes"


@pytest.mark.parametrize(("kind", "order"), [c for c in CASES if c[1] > 1 and c[0] != "pyramid"])
def test_points_inside_cells_follow_polynomials(kind, order):
    """features | Mesh.raised: serial."""
    mesh = bulged(filled(kind))
    high = mesh.raised(order)
    u = polynomial(high.points, order)
    name = high.default_element_type
    dim = cell_type(kind).dim
    inside = torch.rand(5, dim, generator=torch.Generator().manual_seed(1)).double() / dim
    basis, (linear, _) = tabulate(name, inside)[0], tabulate(kind, inside)
    x = torch.einsum("qb,ebd->eqd", linear, mesh.points[mesh.cells[kind]])
    found = torch.einsum("qb,eb->eq", basis, u[high.cells[name]])
    assert (found - polynomial(x, order)).abs().max() < 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda: gen_rectangle(n=(2, 3), order=2, element_type="mixed"),
        lambda: gen_cube(n=(2, 1, 1), order=2, element_type="hex"),
        lambda: gen_cube(n=(2, 1, 1), order=2, element_type="tet"),
    ],
    ids=["mixed", "hex", "tet"],
)
def test_curved_cells_stay_as_they_are(make):
    mesh = make()
    mesh.points = mesh.points + 0.05 * torch.sin(3 * mesh.points.flip(1))
    for order in (3, 4):
        high = mesh.raised(order)
        assert high.geometry_order is None
        for nodes, where in places(mesh, high):
            assert (high.points[nodes] - where).abs().max() < 1e-14
        assert bool(high.used_points.all())
    assert torch.equal(mesh.raised(4).points[: mesh.n_points], mesh.points)


def test_straight_cells_stay_straight():
    high = gen_cube(n=(2, 1, 1)).raised(2).raised(3)
    assert high.geometry_order == 1
    direct = gen_cube(n=(2, 1, 1)).raised(3)
    assert high.n_points == direct.n_points
    (a,), (b,) = (m.top_cells().values() for m in (high, direct))
    assert (high.points[a] - direct.points[b]).abs().max() < 1e-14


def test_same_order_is_a_copy():
    mesh = gen_cube(n=(1, 1, 1), order=2)
    same = mesh.raised(2)
    assert torch.equal(same.points, mesh.points)
    assert torch.equal(same.elements(), mesh.elements())
    assert same.points is not mesh.points


def test_planes_stay_planes_to_the_last_digit():
    for order in (2, 3, 4):
        mesh = gen_cube(n=(3, 3, 3), element_type="hex").raised(order)
        for axis in range(3):
            for value in (0.0, 1.0):
                nodes = (mesh.points[:, axis] - value).abs() < 1e-9
                assert bool((mesh.points[nodes, axis] == value).all())
                assert int(nodes.sum()) == (3 * order + 1) ** 2


@pytest.mark.parametrize("element_type", ["tri", "quad", "mixed"])
@pytest.mark.parametrize("order", [2, 3, 4])
def test_masks_and_groups(element_type, order):
    mesh = gen_rectangle(n=(3, 2), element_type=element_type)
    high = mesh.raised(order)
    expected = gen_rectangle(n=(3, 2), element_type=element_type, order=order)
    distance, other = distances(high.points, expected.points).min(dim=1)
    assert distance.max() < 1e-14
    for name, mask in expected.point_data.items():
        assert torch.equal(high.point_data[name], mask[other]), name
    assert torch.equal(high.boundary_mask, high.topological_boundary_mask())
    for name in mesh.cell_sets:
        assert len(facets_of_cells(high, high.group(name))) == len(
            facets_of_cells(mesh, mesh.group(name))
        )


def test_an_edge_across_the_mesh_is_not_on_the_boundary():
    points = torch.tensor([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    mesh = Mesh.from_arrays(
        points, {"triangle": torch.tensor([[0, 1, 2], [0, 2, 3]])}, {"edges": torch.ones(4).bool()}
    )
    assert bool(mesh.boundary_mask.all())
    high = mesh.raised(2)
    for mask in (high.boundary_mask, high.point_data["edges"]):
        assert high.points[~mask].tolist() == [[0.5, 0.5]]


def test_a_mask_with_inner_nodes_takes_whole_edges():
    mesh = gen_rectangle(n=(2, 2))
    mesh.register_point_data("chosen", (mesh.points[:, 0] == 0.5))
    high = mesh.raised(2)
    assert torch.equal(high.point_data["chosen"], high.points[:, 0] == 0.5)


def test_fields_and_labels():
    mesh = gen_rectangle(n=(2, 2), element_type="quad")
    x = mesh.points
    mesh.register_point_data("u", torch.stack([x[:, 0] * x[:, 1], 1 - x[:, 0]], 1))
    mesh.register_point_data("z", 1j * x[:, 0])
    mesh.register_point_data("label", torch.where(x[:, 0] < 0.7, 3, 5))
    mesh.register_element_data("k", torch.arange(4.0))
    high = mesh.raised(3)
    y = high.points
    u = torch.stack([y[:, 0] * y[:, 1], 1 - y[:, 0]], 1)
    assert (high.point_data["u"] - u).abs().max() < 1e-15
    assert (high.point_data["z"] - 1j * y[:, 0]).abs().max() < 1e-15
    label = torch.where(y[:, 0] <= 0.5, 3, torch.where(y[:, 0] == 1, 5, 0))
    assert torch.equal(high.point_data["label"], label)
    assert torch.equal(high.cell_data["k"]["quad16"], torch.arange(4.0))


def test_gradients_of_points_and_data():
    """features | Mesh.raised: differentiable."""
    points = gen_rectangle(n=(1, 1)).points.requires_grad_()
    u = torch.rand(4, dtype=torch.float64, requires_grad=True)
    cells = {"triangle": torch.tensor([[0, 1, 3], [0, 3, 2]])}

    def of(points, u):
        high = Mesh.from_arrays(points, cells, {"u": u}).raised(3)
        return high.points, high.point_data["u"]

    assert torch.autograd.gradcheck(of, (points, u))


def test_copies_keep_the_geometry_order():
    mesh = gen_rectangle(n=(2, 2)).raised(2)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    for made in (
        copy.copy(mesh),
        copy.deepcopy(mesh),
        mesh.clone(),
        pickle.loads(pickle.dumps(mesh)),
        mesh.float(),
        extract_part(mesh, labels, 0),
    ):
        assert made.geometry_order == 1


def test_a_part_can_be_raised():
    mesh = gen_rectangle(n=(2, 2))
    part = extract_part(mesh, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]), 0)
    high = part.raised(2)
    inside = high.points[~high.topological_boundary_mask()]
    # The cut at y = 1/2 is no boundary.
    assert bool(((inside[:, 0] > 0) & (inside[:, 0] < 1) & (inside[:, 1] > 0)).all())
    assert int((inside[:, 1] == 0.5).sum()) == 3


@pytest.mark.parametrize("suffix", [".vtu", ".msh"])
def test_files_hold_the_cells(tmp_path, suffix):
    mesh = gen_rectangle(n=(2, 2)).raised(3)
    mesh.save(tmp_path / f"mesh{suffix}")
    read = Mesh.read(tmp_path / f"mesh{suffix}")
    assert torch.equal(read.cells["triangle10"], mesh.cells["triangle10"])
    assert read.geometry_order is None


def test_refusals():
    with pytest.raises(ValueError, match="'pyramid' can be raised to orders 1 to 2"):
        filled("pyramid").raised(3)
    with pytest.raises(ValueError, match="order = 1: cells of type 'triangle6'"):
        gen_rectangle(n=(1, 1), order=2).raised(1)
    for wrong in (0, 5, True, 2.5, "2"):
        with pytest.raises(ValueError, match="can be raised to orders 1 to 4"):
            gen_rectangle(n=(1, 1)).raised(wrong)
    with pytest.raises(ValueError, match="no cells of dimension 1"):
        Mesh.from_arrays(torch.zeros(1, 2), {"vertex": torch.tensor([[0]])}).raised(2)
    several = {"triangle": torch.tensor([[0, 1, 2]]), "line3": torch.tensor([[0, 1, 3]])}
    with pytest.raises(ValueError, match="several orders"):
        Mesh.from_arrays(torch.rand(4, 2), several).raised(2)
    with pytest.raises(ValueError, match="geometry_order must be 1 or None"):
        Mesh.from_arrays(torch.rand(4, 2), {}, geometry_order=2)
