"""The mesh itself: construction, data, selection, copies, and what it refuses."""

import copy
import pickle

import meshio
import numpy as np
import pytest
import torch

from tensormesh.mesh import Mesh
from tensormesh.mesh.buffers import BufferDict

POINTS = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 0, 0], [2, 1, 0]])


def meshio_mesh():
    return meshio.Mesh(
        POINTS.copy(),
        [
            ("line", [[0, 1]]),
            ("triangle", [[0, 1, 2]]),
            ("quad", [[1, 4, 5, 2]]),
            ("line", [[1, 4]]),
            ("triangle", [[0, 2, 3]]),
        ],
        point_data={"u": np.arange(6.0), "is_left": np.array([1, 0, 0, 1, 0, 0])},
        cell_data={"c": [[1.0], [2.0], [3.0], [4.0], [5.0]]},
        cell_sets={
            "bottom": [[0], [], [], [0], []],
            "plate": [[], [0], [0], [], np.array([0], dtype=np.uint64)],
            "gmsh:bounding_entities": [[], [], [], [], []],
        },
    )


def test_blocks_of_one_type_are_merged_in_order():
    mesh = Mesh(meshio_mesh())
    assert list(mesh.cells) == ["line", "triangle", "quad"]
    assert mesh.cells["triangle"].tolist() == [[0, 1, 2], [0, 2, 3]]
    assert mesh.cells["triangle"].dtype == torch.int64
    assert mesh.cell_data["c"]["triangle"].tolist() == [2.0, 5.0]
    assert mesh.cell_data["c"]["line"].tolist() == [1.0, 4.0]
    assert {k: v.tolist() for k, v in mesh.group("plate").items()} == {
        "triangle": [0, 1],
        "quad": [0],
    }
    assert mesh.group("bottom")["line"].tolist() == [0, 1]
    assert list(mesh.cell_sets) == ["bottom", "plate"]


def test_sizes_and_names():
    mesh = Mesh(meshio_mesh())
    assert (mesh.n_points, mesh.n_elements, mesh.dim, mesh.tdim) == (6, 3, 2, 2)
    assert mesh.default_element_type == ["triangle", "quad"]
    assert mesh.default_eletyp == mesh.default_element_type
    assert mesh.dim2eletyp == {1: ["line"], 2: ["triangle", "quad"]}
    assert (mesh.dtype, mesh.device.type) == (torch.float64, "cpu")
    assert list(mesh.top_cells()) == ["triangle", "quad"]
    assert mesh.point_data["is_left"].dtype == torch.bool


def test_elements_selects_by_name_list_dimension_and_all():
    mesh = Mesh(meshio_mesh())
    assert list(mesh.elements()) == ["triangle", "quad"]
    assert mesh.elements("quad").shape == (1, 4)
    assert list(mesh.elements(["line"])) == ["line"]
    assert list(mesh.elements(1)) == ["line"]
    assert list(mesh.elements(-1)) == ["triangle", "quad"]
    assert mesh.elements(3) == {}
    assert mesh.elements("all") is mesh.cells
    with pytest.raises(KeyError, match="tetra"):
        mesh.elements("tetra")
    with pytest.raises(TypeError, match=r"1\.5"):
        mesh.elements(1.5)


def test_one_default_type_gives_its_tensor():
    mesh = Mesh.from_arrays(torch.rand(3, 2), {"triangle": torch.tensor([[0, 1, 2]])})
    assert mesh.default_element_type == "triangle"
    assert mesh.elements().tolist() == [[0, 1, 2]]


def test_the_input_is_not_written_to_and_shares_no_memory():
    source = meshio_mesh()
    before = copy.deepcopy(source)
    mesh = Mesh(source, reorder=True)
    mesh.points.add_(1.0)
    mesh.point_data["u"].zero_()
    mesh.cells["quad"].zero_()
    mesh.group("bottom")["line"].zero_()
    assert np.array_equal(source.points, before.points)
    assert np.array_equal(source.point_data["u"], before.point_data["u"])
    for block, original in zip(source.cells, before.cells, strict=True):
        assert np.array_equal(block.data, original.data)
    assert list(source.cell_sets) == list(before.cell_sets)


def test_to_meshio_shares_no_memory_either():
    mesh = Mesh(meshio_mesh())
    out = mesh.to_meshio()
    out.points += 1
    out.cells_dict["quad"][:] = 0
    out.point_data["u"][:] = 9
    assert np.array_equal(mesh.points.numpy(), POINTS[:, :2])
    assert mesh.cells["quad"].tolist() == [[1, 4, 5, 2]]
    assert mesh.point_data["u"].tolist() == [0, 1, 2, 3, 4, 5]


def test_groups_by_dimension_and_missing_groups():
    mesh = Mesh(meshio_mesh())
    assert list(mesh.group("bottom", dim=1)) == ["line"]
    with pytest.raises(KeyError, match="dimension 2"):
        mesh.group("bottom", dim=2)
    with pytest.raises(KeyError, match=r"missing physical group 'top'.*'bottom', 'plate'"):
        mesh.group("top")


def test_the_third_coordinate_of_a_bent_surface_is_kept():
    """Known fault 12."""
    points = POINTS.copy()
    points[3, 2] = 0.5
    mesh = Mesh(meshio.Mesh(points, [("triangle", [[0, 1, 2], [0, 2, 3]])]))
    assert mesh.dim == 3
    assert float(mesh.points[3, 2]) == 0.5


@pytest.mark.parametrize("z", [0.0, 0.3, 1e9])
def test_a_constant_third_coordinate_of_a_plane_mesh_is_dropped(z):
    points = POINTS + np.array([0, 0, z])
    mesh = Mesh(meshio.Mesh(points, [("triangle", [[0, 1, 2], [0, 2, 3]])]))
    assert mesh.dim == 2
    assert np.array_equal(mesh.points.numpy(), POINTS[:, :2])


def test_lines_lose_constant_last_coordinates_only():
    straight = [[0.0, 0, 1], [1, 0, 1], [2, 0, 1]]
    rising = [[0.0, 0, 1], [0, 1, 1], [0, 2, 1]]
    cells = [("line", [[0, 1], [1, 2]])]
    assert Mesh(meshio.Mesh(straight, cells)).dim == 1
    assert Mesh(meshio.Mesh(rising, cells)).dim == 2


def test_tensors_keep_all_their_coordinates():
    mesh = Mesh.from_arrays(torch.zeros(3, 3), {"triangle": torch.tensor([[0, 1, 2]])})
    assert mesh.dim == 3


def test_points_that_no_top_cell_has_are_kept_and_known():
    points = torch.rand(5, 2)
    cells = {"triangle": torch.tensor([[0, 1, 3]]), "line": torch.tensor([[3, 4]])}
    mesh = Mesh.from_arrays(points, cells)
    assert mesh.n_points == 5
    assert mesh.used_points.tolist() == [True, True, False, True, False]


def test_points_alone_are_a_mesh_without_elements():
    mesh = Mesh.from_arrays(torch.rand(4, 3), {})
    assert (mesh.n_elements, mesh.tdim, mesh.elements(), mesh.top_cells()) == (0, -1, {}, {})
    assert mesh.default_element_type == []
    assert not mesh.used_points.any()


def with_cells(kind, cells, points=None):
    return Mesh.from_arrays(
        torch.rand(4, 2) if points is None else points, {kind: torch.tensor(cells)}
    )


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([[0, 1, 2], [1, 2, 4]], r"Cell 1 of type 'triangle' names point 4; there are 4"),
        ([[0, -1, 2]], r"Cell 0 of type 'triangle' names point -1"),
        ([[0, 1, 2], [1, 3, 1]], r"Cell 1 of type 'triangle' has point 1 twice: \[1, 3, 1\]"),
        ([[0, 1]], r"\(E, 3\)"),
    ],
)
def test_impossible_cells_are_named(cells, message):
    with pytest.raises(ValueError, match=message):
        with_cells("triangle", cells)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_coordinate_that_is_no_number_is_named(bad):
    points = torch.zeros(4, 2)
    points[1, 0] = bad
    with pytest.raises(ValueError, match=r"Point 1 of cell 1 of type 'triangle' is not finite"):
        with_cells("triangle", [[0, 2, 3], [0, 1, 2]], points)
    with pytest.raises(ValueError, match="Point 1 is not finite"):
        with_cells("triangle", [[0, 2, 3]], points)


def test_cells_need_enough_coordinates():
    with pytest.raises(ValueError, match="need 3 coordinates"):
        with_cells("tetra", [[0, 1, 2, 3]])


def test_indices_must_be_integers():
    with pytest.raises(TypeError, match="float32"):
        Mesh.from_arrays(torch.rand(3, 2), {"triangle": torch.tensor([[0.0, 1.0, 2.0]])})


@pytest.mark.parametrize(
    ("points", "cells", "message"),
    [
        (
            torch.rand(3, 2, dtype=torch.complex64),
            {},
            "points must be a real tensor, got .*complex64",
        ),
        ([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], {}, "points must be a real tensor, got list"),
        (np.zeros((3, 2)), {}, "points must be a real tensor, got ndarray"),
        (torch.rand(3, 2), {"triangle": [[0, 1, 2]]}, "'triangle' must be a tensor, got list"),
    ],
)
def test_arrays_must_be_tensors(points, cells, message):
    with pytest.raises(TypeError, match=message):
        Mesh.from_arrays(points, cells)


def test_unknown_and_serendipity_types_are_refused():
    with pytest.raises(KeyError, match="polygon"):
        Mesh(meshio.Mesh(POINTS, [("polygon", [[0, 1, 2, 3]])]))
    with pytest.raises(KeyError, match="serendipity"):
        Mesh(meshio.Mesh(np.random.default_rng(0).random((8, 2)), [("quad8", [range(8)])]))


def test_data_of_the_wrong_length_are_refused():
    cells = {"triangle": torch.tensor([[0, 1, 2]])}
    points = torch.rand(3, 2)
    with pytest.raises(ValueError, match=r"point data 'u'.*3.*\(2,\)"):
        Mesh.from_arrays(points, cells, point_data={"u": torch.zeros(2)})
    with pytest.raises(ValueError, match="cell data 'c' on 'triangle'"):
        Mesh.from_arrays(points, cells, cell_data={"c": {"triangle": torch.zeros(2)}})
    with pytest.raises(ValueError, match="'c' names cells of type 'quad'"):
        Mesh.from_arrays(points, cells, cell_data={"c": {"quad": torch.zeros(1)}})
    with pytest.raises(ValueError, match="Cell set 's' names cells 0 to 1"):
        Mesh.from_arrays(points, cells, cell_sets={"s": {"triangle": torch.tensor([0, 1])}})


TETRA = [[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
EDGES = [(0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3)]


def tetra10(edges):
    corners = np.array(TETRA)
    return [*TETRA, *[list((corners[a] + corners[b]) / 2) for a, b in edges]]


def test_second_order_cells_in_another_node_order_are_refused():
    gmsh_order = [*EDGES[:4], EDGES[5], EDGES[4]]
    source = meshio.Mesh(tetra10(gmsh_order), [("tetra10", [list(range(10))])])
    with pytest.raises(ValueError, match="1 of 1 cells of type 'tetra10'"):
        Mesh(source)
    swapped = [[0, 1, 2, 3, 4, 5, 6, 7, 9, 8]]
    assert Mesh(meshio.Mesh(tetra10(gmsh_order), [("tetra10", swapped)])).n_elements == 1


def test_few_cells_in_another_order_are_warned_about():
    right, wrong = list(range(10)), [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]
    source = meshio.Mesh(tetra10(EDGES), [("tetra10", [right, right, wrong])])
    with pytest.warns(RuntimeWarning, match="1 of 3"):
        mesh = Mesh(source)
    assert mesh.check_node_ordering(raise_on_error=False) == {"tetra10": 1}


def test_curved_edges_are_in_order():
    points = tetra10(EDGES)
    points[4] = [0.5, -0.2, -0.2]
    assert Mesh(meshio.Mesh(points, [("tetra10", [range(10)])])).n_elements == 1


def test_register_point_data():
    mesh = Mesh(meshio_mesh())
    assert mesh.register_point_data("v", torch.zeros(6, 2)) is mesh
    assert mesh.point_data["v"].shape == (6, 2)
    with pytest.raises(ValueError, match="'v' already"):
        mesh.register_point_data("v", torch.zeros(6))
    with pytest.raises(ValueError, match="first axis 6"):
        mesh.register_point_data("w", torch.zeros(5))


def test_register_element_data_in_the_order_of_the_top_cells():
    mesh = Mesh(meshio_mesh())
    mesh.register_element_data("k", torch.tensor([1.0, 2.0, 3.0]))
    assert mesh.cell_data["k"]["triangle"].tolist() == [1.0, 2.0]
    assert mesh.cell_data["k"]["quad"].tolist() == [3.0]
    mesh.register_element_data("t", {"line": torch.tensor([5.0, 6.0])})
    assert mesh.cell_data["t"]["line"].tolist() == [5.0, 6.0]
    with pytest.raises(ValueError, match="first axis 3"):
        mesh.register_element_data("x", torch.zeros(2))
    with pytest.raises(KeyError, match="tetra"):
        mesh.register_element_data("x", {"tetra": torch.zeros(2)})


def test_boundary_mask_prefers_point_data():
    mesh = Mesh(meshio_mesh())
    assert mesh.boundary_mask.all()
    assert mesh.point_data["is_boundary"].all()
    flags = torch.tensor([True, False, False, False, False, False])
    mesh.point_data["is_boundary"] = flags
    assert torch.equal(mesh.boundary_mask, flags)


def test_clone_copies_and_keeps_the_graph():
    points = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    cells = {"triangle": torch.tensor([[0, 1, 2]])}
    mesh = Mesh.from_arrays(
        points,
        cells,
        {"u": torch.ones(3)},
        {"c": {"triangle": torch.ones(1)}},
        {"all": {"triangle": torch.tensor([0])}},
    )
    twin = mesh.clone()
    twin.cells["triangle"].zero_()
    twin.point_data["u"].zero_()
    twin.cell_data["c"]["triangle"].zero_()
    assert mesh.cells["triangle"].tolist() == [[0, 1, 2]]
    assert mesh.point_data["u"].tolist() == [1, 1, 1]
    assert mesh.cell_data["c"]["triangle"].tolist() == [1]
    twin.points.sum().backward()
    assert points.grad.tolist() == [[1, 1]] * 3
    assert twin.group("all")["triangle"].tolist() == [0]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_deepcopy_and_pickle(duplicate):
    mesh = Mesh(meshio_mesh())
    mesh.boundary_facets()
    twin = duplicate(mesh)
    twin.points.zero_()
    assert np.array_equal(mesh.points.numpy(), POINTS[:, :2])
    assert repr(twin) == repr(mesh)
    assert len(twin.boundary_facets()) == len(mesh.boundary_facets()) == 6


def test_float_and_double_change_floats_only_in_place():
    mesh = Mesh(meshio_mesh())
    assert mesh.float() is mesh
    assert (mesh.dtype, mesh.point_data["u"].dtype) == (torch.float32, torch.float32)
    assert mesh.cell_data["c"]["quad"].dtype == torch.float32
    assert (mesh.cells["quad"].dtype, mesh.point_data["is_left"].dtype) == (
        torch.int64,
        torch.bool,
    )
    assert mesh.double().dtype == torch.float64


def test_everything_moves_with_the_device():
    mesh = Mesh(meshio_mesh()).to("meta")
    assert mesh.device.type == "meta"
    assert mesh.cells["quad"].device.type == "meta"
    assert mesh.cell_data["c"]["quad"].device.type == "meta"
    assert mesh.group("bottom")["line"].device.type == "meta"


def test_state_dict_names():
    mesh = Mesh(meshio_mesh())
    mesh.point_data["gmsh:dim_tags"] = torch.zeros(6, 2)
    names = set(mesh.state_dict())
    assert {"points", "cells.quad", "point_data.u", "cell_data.c.line"} <= names
    assert not any("dim_tags" in name for name in names)


def test_points_can_be_replaced():
    mesh = Mesh(meshio_mesh())
    mesh.points = 2 * mesh.points
    assert float(mesh.points.max()) == 4.0
    mesh.points = torch.nn.Parameter(mesh.points)
    assert "points" in dict(mesh.named_parameters())
    assert mesh.n_points == 6


def test_repr_lists_shapes():
    text = repr(Mesh(meshio_mesh()))
    assert "points: [6, 2] float64" in text
    assert "cells triangle: [2, 3] int64" in text
    assert "cell_sets bottom line: 2" in text


def test_buffer_dict_is_a_dict_of_tensors():
    data = BufferDict({"u": torch.zeros(2), "a:b": torch.ones(1), "type": torch.ones(3)})
    assert (list(data), len(data), "u" in data, "x" in data) == (
        ["u", "a:b", "type"],
        3,
        True,
        False,
    )
    assert data.u is data["u"]
    assert [len(t) for t in data.values()] == [2, 1, 3]
    assert dict(data.items()).keys() == data.to_dict().keys()
    assert set(data.state_dict()) == {"u", "type"}
    assert data.double()["a:b"].dtype == torch.float64
    twin = data.clone()
    twin["u"].fill_(7)
    assert data["u"].tolist() == [0, 0]
    data["u"] = torch.ones(5)
    assert data["u"].shape == (5,)
    with pytest.raises(KeyError, match="'x'"):
        data["x"]
    with pytest.raises(TypeError, match="'y' must be a tensor"):
        data["y"] = [1.0]


def test_an_entry_can_become_a_parameter_and_back():
    data = BufferDict({"k": torch.ones(2)})
    assert dict(data.as_parameter("k").named_parameters()).keys() == {"k"}
    assert data["k"].requires_grad
    assert not list(data.as_buffer("k").parameters())
    assert not data["k"].requires_grad


def test_cell_data_may_have_any_name():
    cells = {"triangle": torch.tensor([[0, 1, 2]])}
    names = ["type", "a.b", "keys", "gmsh:physical"]
    data = {name: {"triangle": torch.ones(1)} for name in names}
    mesh = Mesh.from_arrays(torch.rand(3, 2), cells, cell_data=data)
    assert list(mesh.cell_data) == names
    assert mesh.double().cell_data["a.b"]["triangle"].dtype == torch.float64
