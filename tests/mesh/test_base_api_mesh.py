"""The rows of `Mesh` in the contract: construction, attributes, selection, data, module."""

import copy
import pickle

import meshio
import numpy as np
import pytest
import torch

from tensormesh import Mesh
from tensormesh.nn import BufferDict

POINTS = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 0, 0], [2, 1, 0]])
CELLS = [("line", [[0, 1]]), ("triangle", [[0, 1, 2], [0, 2, 3]]), ("quad", [[1, 4, 5, 2]])]


def mixed(**kwargs):
    return Mesh(meshio.Mesh(POINTS.copy(), [(k, np.array(c)) for k, c in CELLS], **kwargs))


def one_triangle_of_order_two(order=(0, 1, 2, 3, 4, 5)):
    points = np.array([[0.0, 0], [1, 0], [0, 1], [0.5, 0], [0.5, 0.5], [0, 0.5]])
    return meshio.Mesh(points, [("triangle6", [list(order)])])


def test_row_from_meshio_keeps_the_file_order_whatever_reorder_says():
    """base-api 2 | `Mesh(meshio_mesh, reorder=False)`, `Mesh.from_meshio(meshio_mesh, ...)`."""
    given = meshio.Mesh(POINTS.copy(), [("quad", np.array([[1, 4, 5, 2]]))])
    for reorder in (False, True):
        for make in (Mesh, Mesh.from_meshio):
            assert make(given, reorder=reorder).cells["quad"].tolist() == [[1, 4, 5, 2]]


def test_row_read_and_save_round_trip(tmp_path):
    """base-api 2 | `Mesh.read(file_name, ...)` = `Mesh.from_file`, `mesh.save` = `to_file`."""
    mesh = Mesh.gen_rectangle(0.5, order=2, element_type="quad")
    for name, kwargs in [("m.vtu", {}), ("m.msh", {}), ("m22.msh", {"file_format": "gmsh22"})]:
        path = str(tmp_path / name)
        assert mesh.save(path, **kwargs) is mesh
        assert mesh.to_file(path, **kwargs) is mesh
        for read in (Mesh.read(path), Mesh.from_file(path)):
            assert torch.equal(read.cells["quad9"], mesh.cells["quad9"])
            assert torch.equal(read.points, mesh.points)
            assert torch.equal(read.boundary_mask, mesh.boundary_mask)


def test_row_to_meshio_shares_no_memory():
    """base-api 2 | `mesh.to_meshio(reorder=False)`: a `meshio.Mesh`, its own memory."""
    mesh = mixed()
    written = mesh.to_meshio()
    assert isinstance(written, meshio.Mesh)
    written.points[:] = 7
    written.cells[0].data[:] = 0
    assert mesh.points.tolist() == POINTS[:, :2].tolist()
    assert mesh.cells["line"].tolist() == [[0, 1]]


def test_row_clone_copies_and_stays_attached():
    """base-api 2 | `mesh.clone()`: equal values, memory of its own, gradients flow back."""
    mesh = mixed(point_data={"u": np.arange(6.0)})
    mesh.points.requires_grad_()
    other = mesh.clone()
    assert torch.equal(other.points, mesh.points)
    assert other.cells["quad"].data_ptr() != mesh.cells["quad"].data_ptr()
    other.point_data["u"][0] = 9
    assert mesh.point_data["u"][0] == 0
    (gradient,) = torch.autograd.grad(other.points.sum(), mesh.points)
    assert torch.equal(gradient, torch.ones(6, 2).double())


def test_row_constructor_rules():
    """base-api 2 | constructor rules: blocks merged, points cut, int64, masks bool."""
    mesh = Mesh(
        meshio.Mesh(
            POINTS.astype(np.float32),
            [("triangle", np.array([[0, 1, 2]], np.int32)), ("triangle", [[0, 2, 3]])],
            point_data={"is_left": [1, 0, 0, 1, 0, 0], "wet_mask": [0.0, 1, 0, 0, 0, 0]},
        )
    )
    assert mesh.cells["triangle"].tolist() == [[0, 1, 2], [0, 2, 3]]
    assert mesh.cells["triangle"].dtype == torch.int64
    assert (mesh.dtype, mesh.dim) == (torch.float32, 2)
    assert mesh.point_data["is_left"].tolist() == [True, False, False, True, False, False]
    assert mesh.point_data["wet_mask"].dtype == torch.bool
    with pytest.raises(KeyError, match="polygon"):
        Mesh(meshio.Mesh(POINTS, [("polygon", [[0, 1, 2, 3, 4]])]))


def test_row_check_node_ordering():
    """base-api 2 | `mesh.check_node_ordering(raise_on_error=True)` -> `{type: n_bad}`."""
    assert Mesh(one_triangle_of_order_two()).check_node_ordering() == {"triangle6": 0}
    with pytest.raises(ValueError, match="triangle6"):
        Mesh(one_triangle_of_order_two((0, 1, 2, 4, 5, 3)))
    right = Mesh(one_triangle_of_order_two())
    right.cells["triangle6"] = right.cells["triangle6"][:, [0, 1, 2, 4, 5, 3]]
    assert right.check_node_ordering(raise_on_error=False) == {"triangle6": 1}


def test_row_attributes():
    """base-api 2 | `points`, `cells`, `point_data`, `n_points`, `n_elements`, `dim`, ...

    features | Mesh: serial.
    """
    mesh = mixed(point_data={"u": np.arange(6.0)}, cell_data={"c": [[1.0], [2.0, 3.0], [4.0]]})
    assert isinstance(mesh.cells, BufferDict)
    assert isinstance(mesh.point_data, BufferDict)
    assert isinstance(mesh.cell_data["c"], BufferDict)
    assert mesh.cell_data["c"]["triangle"].tolist() == [2.0, 3.0]
    assert isinstance(mesh.field_data, BufferDict)
    assert (mesh.n_points, mesh.n_elements, mesh.dim) == (6, 3, 2)
    assert (mesh.dtype, mesh.device) == (torch.float64, torch.device("cpu"))
    mesh.points = 2 * mesh.points
    assert mesh.points.max() == 4


def test_row_default_element_type():
    """base-api 2 | `default_element_type` (= `default_eletyp`), `dim2eletyp`."""
    mesh = mixed()
    assert mesh.default_element_type == mesh.default_eletyp == ["triangle", "quad"]
    assert mesh.dim2eletyp == {1: ["line"], 2: ["triangle", "quad"]}
    assert Mesh.gen_rectangle(0.5).default_element_type == "triangle"


def test_row_boundary_mask():
    """base-api 2 | `boundary_mask`: `is_boundary`, else `boundary_mask`, else by topology."""
    mesh = Mesh(meshio.Mesh(POINTS, [("quad", [[0, 1, 2, 3], [1, 4, 5, 2]])]))
    assert mesh.boundary_mask.all()
    assert mesh.point_data["is_boundary"] is mesh.boundary_mask
    given = mixed(point_data={"boundary_mask": [1, 0, 0, 0, 0, 0]})
    assert given.boundary_mask.tolist() == [True] + 5 * [False]


@pytest.mark.parametrize("kind", ["wedge", "hex", "tet"])
def test_row_topological_boundary_mask(kind):
    """base-api 2 | `topological_boundary_mask()` -> bool `[n]`, of wedges as well."""
    mesh = Mesh.gen_cube(0.25, element_type=kind)
    on_box = ((mesh.points == 0) | (mesh.points == 1)).any(dim=1)
    assert torch.equal(mesh.topological_boundary_mask(), on_box)


def test_row_elements_selector():
    """base-api 2 | `elements(sel=None)`: None, type, list, dimension, 'all'."""
    mesh = mixed()
    assert list(mesh.elements()) == ["triangle", "quad"]
    assert torch.equal(Mesh.gen_rectangle(0.5).elements()[0], torch.tensor([0, 1, 4]))
    assert mesh.elements("quad").tolist() == [[1, 4, 5, 2]]
    assert list(mesh.elements(["line", "quad"])) == ["line", "quad"]
    assert list(mesh.elements(1)) == ["line"]
    assert list(mesh.elements(-1)) == ["triangle", "quad"]
    assert mesh.elements(3) == {}
    assert mesh.elements("all") is mesh.cells
    with pytest.raises(KeyError, match="tetra"):
        mesh.elements("tetra")
    with pytest.raises(TypeError, match="sel"):
        mesh.elements(1.5)


def test_row_register_point_data():
    """base-api 2 | `register_point_data(key, value)` -> self; new key, first size n."""
    mesh = mixed()
    assert mesh.register_point_data("u", torch.zeros(6, 2)) is mesh
    with pytest.raises(ValueError, match="already"):
        mesh.register_point_data("u", torch.zeros(6))
    with pytest.raises(ValueError, match="first axis 6"):
        mesh.register_point_data("w", torch.zeros(5))


def test_row_register_element_data():
    """base-api 2 | `register_element_data(key, value)`: a tensor, or type -> tensor; -> self."""
    mesh = mixed()
    assert mesh.register_element_data("a", torch.tensor([1.0, 2, 3])) is mesh
    assert mesh.cell_data["a"]["triangle"].tolist() == [1, 2]
    assert mesh.cell_data["a"]["quad"].tolist() == [3]
    mesh.register_element_data("b", {"line": torch.tensor([5.0])})
    assert mesh.cell_data["b"].to_dict().keys() == {"line"}
    with pytest.raises(ValueError, match="first axis 3"):
        mesh.register_element_data("c", torch.zeros(4))


def test_row_module_conversions_are_in_place():
    """base-api 2 | `to/float/double` in place, return self; only floating data change."""
    mesh = mixed(point_data={"u": np.arange(6.0), "is_left": [1, 0, 0, 1, 0, 0]})
    assert mesh.float() is mesh
    assert (mesh.dtype, mesh.point_data["u"].dtype) == (torch.float32, torch.float32)
    assert mesh.cells["quad"].dtype == torch.int64
    assert mesh.point_data["is_left"].dtype == torch.bool
    assert mesh.double() is mesh.to("cpu") is mesh.cpu() is mesh
    assert mesh.dtype == torch.float64


def test_row_state_dict_keys():
    """base-api 2 | `state_dict` keys: `points`, `cells.<type>`, `point_data.<name>`, ..."""
    mesh = mixed(point_data={"u": np.arange(6.0)}, cell_data={"c": [[1.0], [2.0, 3.0], [4.0]]})
    mesh.field_data["f"] = torch.ones(1)
    assert set(mesh.state_dict()) == {
        "points",
        *(f"cells.{kind}" for kind in ("line", "triangle", "quad")),
        "point_data.u",
        *(f"cell_data.c.{kind}" for kind in ("line", "triangle", "quad")),
        "field_data.f",
    }
    other = mixed(point_data={"u": np.zeros(6)}, cell_data={"c": [[0.0], [0.0, 0.0], [0.0]]})
    other.field_data["f"] = torch.zeros(1)
    other.load_state_dict(mesh.state_dict())
    assert other.point_data["u"].tolist() == list(range(6))


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_row_pickle_and_deepcopy(again):
    """base-api 2 | pickle and deepcopy work."""
    mesh = mixed(point_data={"u": np.arange(6.0)})
    other = again(mesh)
    assert torch.equal(other.points, mesh.points)
    assert torch.equal(other.point_data["u"], mesh.point_data["u"])
    assert torch.equal(other.cells["quad"], mesh.cells["quad"])


def test_row_repr_lists_shapes():
    """base-api 2 | `repr` lists shapes."""
    text = repr(mixed(point_data={"u": np.arange(6.0)}))
    assert "points: [6, 2] float64" in text
    assert "cells quad: [1, 4] int64" in text
    assert "point_data u: [6] float64" in text
