import pytest
import torch

from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.mesh import Mesh
from tensormesh.mesh.submesh import extract_part, lower_cell_owners
from tests.mesh.measure import volumes

MESHES = {
    "tri": gen_rectangle(n=(5, 4)),
    "quad9": gen_rectangle(element_type="quad", order=2, n=(5, 4)),
    "mixed": gen_rectangle(element_type="mixed", n=(6, 4)),
    "tet": gen_cube(n=(3, 2, 3)),
    "tet10": gen_cube(order=2, n=(2, 3, 2)),
    "hex": gen_cube(element_type="hex", n=(3, 3, 2)),
    "wedge": gen_cube(element_type="wedge", n=(2, 3, 2)),
}
N_PARTS = 3


@pytest.fixture(params=MESHES)
def mesh(request):
    return MESHES[request.param]


def scattered(mesh):
    """Labels without any sense in space: the hardest case for interfaces."""
    return torch.randint(N_PARTS, (mesh.n_elements,), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def labels(mesh):
    return scattered(mesh)


@pytest.fixture
def parts(mesh, labels):
    return [extract_part(mesh, labels, part) for part in range(N_PARTS)]


def test_each_top_cell_is_in_the_part_of_its_label(mesh, labels, parts):
    start = 0
    for kind, conn in mesh.top_cells().items():
        for number, part in enumerate(parts):
            expected = (labels[start : start + len(conn)] == number).nonzero().flatten()
            assert torch.equal(part.cell_data["orig_cid"][kind], expected)
        start += len(conn)


def test_cells_have_the_same_nodes_as_in_the_whole(mesh, parts):
    for part in parts:
        nodes = part.point_data["orig_nid"]
        assert torch.equal(part.points, mesh.points[nodes])
        assert (nodes.diff() > 0).all()
        for kind, conn in part.cells.items():
            index = part.cell_data["orig_cid"][kind]
            assert torch.equal(nodes[conn], mesh.cells[kind][index])
        assert part.used_points.all()


def test_volumes_of_the_parts_add_up(mesh, parts):
    total = sum(float(volumes(part).sum()) for part in parts)
    assert total == pytest.approx(float(volumes(mesh).sum()))


def test_each_lower_cell_is_in_one_part_with_a_cell_that_has_it(mesh, labels, parts):
    top = [set(nodes) for conn in mesh.top_cells().values() for nodes in conn.tolist()]
    for kind in mesh.elements(mesh.tdim - 1):
        found = torch.cat(
            [
                part.cell_data["orig_cid"].to_dict().get(kind, torch.empty(0).long())
                for part in parts
            ]
        )
        assert found.sort().values.tolist() == list(range(len(mesh.cells[kind])))
        owner = [
            min(number for number, nodes in enumerate(top) if nodes.issuperset(lower))
            for lower in mesh.cells[kind].tolist()
        ]
        assert lower_cell_owners(mesh)[kind].tolist() == owner
        for number, part in enumerate(parts):
            if kind in part.cells:
                mine = part.cell_data["orig_cid"][kind].tolist()
                assert {int(labels[owner[i]]) for i in mine} == {number}


def test_interface_is_no_boundary(mesh, parts):
    n_facets = sum(len(conn) for conn in mesh.elements(mesh.tdim - 1).values())
    assert sum(len(part.boundary_facets()) for part in parts) == n_facets
    for part in parts:
        nodes = part.point_data["orig_nid"]
        whole = mesh.point_data["is_boundary"][nodes]
        assert torch.equal(part.point_data["is_boundary"], whole)
        assert torch.equal(part.boundary_mask, whole)
        # A node may be on the boundary by a facet of another part, never the other way round.
        assert not (part.topological_boundary_mask() & ~whole).any()
        for kind, (cell, _) in part.boundary_facets().items():
            conn = part.cells[kind][cell]
            assert part.point_data["is_boundary"][conn].sum(dim=1).min() >= mesh.tdim


def test_point_and_cell_data_and_groups_follow(mesh, labels):
    whole = mesh.clone()
    whole.register_point_data("load", torch.rand(mesh.n_points, 2, generator=torch.Generator()))
    values = {kind: torch.arange(3.0 * len(c)).reshape(-1, 3) for kind, c in mesh.cells.items()}
    whole.register_element_data("stress", values)
    grouped = 0
    for number in range(N_PARTS):
        part = extract_part(whole, labels, number)
        nodes = part.point_data["orig_nid"]
        assert torch.equal(part.point_data["load"], whole.point_data["load"][nodes])
        for kind, index in part.cell_data["orig_cid"].items():
            assert torch.equal(part.cell_data["stress"][kind], values[kind][index])
        assert list(part.cell_sets) == list(mesh.cell_sets)
        for side, by_type in part.cell_sets.items():
            for kind, index in by_type.items():
                conn = part.cells[kind][index]
                assert part.point_data[f"is_{side}_boundary"][conn].all()
                grouped += len(index)
    assert grouped == sum(len(c) for c in mesh.elements(mesh.tdim - 1).values())


def test_type_without_a_cell_in_the_part_is_dropped():
    mesh = MESHES["mixed"]
    labels = torch.cat(
        [torch.zeros(len(mesh.cells["quad"])), torch.ones(len(mesh.cells["triangle"]))]
    )
    assert list(extract_part(mesh, labels.long(), 0).top_cells()) == ["quad"]
    assert list(extract_part(mesh, labels.long(), 1).top_cells()) == ["triangle"]


def test_edges_and_vertices_follow_and_strangers_do_not():
    cube = gen_cube(n=(2, 1, 1))
    first, second = cube.cells["tetra"][0].tolist(), cube.cells["tetra"][-1].tolist()
    cells = cube.cells.to_dict() | {
        "line": torch.tensor([second[:2], [first[0], second[3]]]),
        "vertex": torch.tensor([[first[1]], [cube.n_points]]),
    }
    points = torch.cat([cube.points, torch.full((1, 3), 9.0, dtype=torch.float64)])
    mesh = Mesh.from_arrays(points, cells)
    owners = lower_cell_owners(mesh)
    top = [set(nodes) for nodes in cube.cells["tetra"].tolist()]
    has = [i for i, nodes in enumerate(top) if nodes.issuperset(second[:2])]
    assert owners["line"].tolist() == [has[0], -1]
    assert owners["vertex"].tolist() == [0, -1]
    parts = [extract_part(mesh, torch.arange(12) // 6, part) for part in range(2)]
    assert sum(len(part.cells.to_dict().get("line", [])) for part in parts) == 1
    assert sum(len(part.cells.to_dict().get("vertex", [])) for part in parts) == 1
    assert all(part.points.max() <= 1.0 for part in parts)


def test_gradient_flows_to_the_points_of_the_whole():
    mesh = gen_rectangle(n=(3, 3))
    mesh.points = mesh.points.requires_grad_()
    labels = scattered(mesh)
    for part in range(N_PARTS):
        volumes(extract_part(mesh, labels, part)).square().sum().backward()
    parts_together, mesh.points.grad = mesh.points.grad, None
    volumes(mesh).square().sum().backward()
    assert torch.allclose(parts_together, mesh.points.grad)


def test_float32_and_part_of_a_part():
    mesh = gen_cube(n=(2, 2, 2)).float()
    half = extract_part(mesh, torch.arange(48) // 24, 1)
    quarter = extract_part(half, torch.arange(24) // 12, 1)
    assert quarter.dtype == torch.float32
    nodes = half.point_data["orig_nid"][quarter.point_data["orig_nid"]]
    assert torch.equal(quarter.points, mesh.points[nodes])
    # The cut between the halves is no boundary of the quarter either.
    whole = extract_part(mesh, torch.arange(48) // 12, 3)
    assert len(quarter.boundary_facets()) == len(whole.boundary_facets()) > 0


def test_labels_of_the_wrong_length_are_refused():
    with pytest.raises(ValueError, match="labels must have first axis 40"):
        extract_part(MESHES["tri"], torch.zeros(39, dtype=torch.int64), 0)


def test_part_without_cells_is_an_empty_mesh():
    part = extract_part(MESHES["tri"], torch.zeros(40, dtype=torch.int64), 7)
    assert part.n_elements == part.n_points == 0
    assert part.dim == 2
    assert len(part.boundary_facets()) == 0
