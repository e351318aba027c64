import numpy as np
import pytest
import torch

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tests.mesh.measure import volumes

RECTANGLE = dict(left=-1.0, right=2.0, bottom=0.5, top=1.5)
CUBE = dict(left=-1.0, right=2.0, bottom=0.5, top=1.5, front=0.0, back=0.7)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("element_type", "shapes", "n_cells"),
    [
        ("tri", {"triangle"}, 2 * 5 * 4),
        ("quad", {"quad"}, 5 * 4),
        ("mixed", {"quad", "triangle"}, 2 * 4 + 2 * 3 * 4),
    ],
)
def test_rectangle_is_filled_by_positive_cells(order, element_type, shapes, n_cells):
    """features | gen_rectangle: serial."""
    mesh = gen_rectangle(order=order, element_type=element_type, n=(5, 4), **RECTANGLE)
    assert {cell_type(kind).shape for kind in mesh.top_cells()} == shapes
    assert {cell_type(kind).order for kind in mesh.cells} == {order}
    assert mesh.n_elements == n_cells
    assert mesh.n_points == (5 * order + 1) * (4 * order + 1)
    assert mesh.used_points.all()
    assert volumes(mesh).min() > 0
    assert volumes(mesh).sum() == pytest.approx(3.0)
    assert mesh.dtype == torch.float64


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("element_type", "shape", "per_box"),
    [("tet", "tetra", 6), ("hex", "hexahedron", 1), ("wedge", "wedge", 2)],
)
def test_cube_is_filled_by_positive_cells(order, element_type, shape, per_box):
    """features | gen_cube: serial."""
    mesh = gen_cube(order=order, element_type=element_type, n=(3, 4, 2), **CUBE)
    assert {cell_type(kind).shape for kind in mesh.top_cells()} == {shape}
    assert {cell_type(kind).order for kind in mesh.cells} == {order}
    assert mesh.n_elements == per_box * 3 * 4 * 2
    assert mesh.n_points == np.prod([3 * order + 1, 4 * order + 1, 2 * order + 1])
    assert mesh.used_points.all()
    assert volumes(mesh).min() > 0
    assert volumes(mesh).sum() == pytest.approx(3.0 * 1.0 * 0.7)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("element_type", "n_facets"),
    [
        ("tet", 2 * 2 * (3 * 4 + 4 * 2 + 3 * 2)),
        ("hex", 2 * (3 * 4 + 4 * 2 + 3 * 2)),
        ("wedge", 2 * (2 * 3 * 4 + 4 * 2 + 3 * 2)),
    ],
)
def test_cube_is_conforming(order, element_type, n_facets):
    mesh = gen_cube(order=order, element_type=element_type, n=(3, 4, 2))
    lower = sum(len(conn) for conn in mesh.elements(2).values())
    assert len(mesh.boundary_facets()) == n_facets == lower
    assert torch.equal(mesh.topological_boundary_mask(), mesh.point_data["is_boundary"])


@pytest.mark.parametrize(("order", "line"), [(2, "line3"), (3, "line4"), (4, "line5")])
@pytest.mark.parametrize("element_type", ["tri", "quad", "mixed"])
def test_rectangle_is_conforming(element_type, order, line):
    mesh = gen_rectangle(order=order, element_type=element_type, n=(5, 4))
    assert len(mesh.boundary_facets()) == 2 * (5 + 4) == len(mesh.cells[line])
    assert torch.equal(mesh.topological_boundary_mask(), mesh.point_data["is_boundary"])


@pytest.mark.parametrize(
    ("mesh", "bounds"),
    [
        (gen_rectangle(element_type="mixed", order=2, n=(4, 3), **RECTANGLE), RECTANGLE),
        (gen_cube(element_type="wedge", order=2, n=(2, 3, 2), **CUBE), CUBE),
        (gen_cube(n=(2, 3, 2), **CUBE), CUBE),
    ],
    ids=["mixed", "wedge", "tet"],
)
def test_sides_have_their_masks_and_groups(mesh, bounds):
    n_grouped = 0
    for number, (side, bound) in enumerate(bounds.items()):
        on_side = mesh.points[:, number // 2] == bound
        assert torch.equal(mesh.point_data[f"is_{side}_boundary"], on_side)
        nodes = [mesh.cells[kind][index] for kind, index in mesh.cell_sets[side].items()]
        grouped = torch.zeros(mesh.n_points, dtype=torch.bool)
        for conn in nodes:
            grouped[conn] = True
            n_grouped += len(conn)
        assert torch.equal(grouped, on_side)
    assert n_grouped == sum(len(conn) for conn in mesh.elements(mesh.dim - 1).values())
    masks = [mesh.point_data[f"is_{side}_boundary"] for side in bounds]
    assert torch.equal(torch.stack(masks).any(dim=0), mesh.point_data["is_boundary"])


@pytest.mark.parametrize("element_type", ["tet", "hex", "wedge"])
def test_boundary_faces_point_outwards(element_type):
    # Divergence theorem with F = x: the flux through the boundary is three times the volume.
    mesh = gen_cube(element_type=element_type, n=(2, 2, 3), **CUBE)
    flux = 0.0
    for conn in mesh.elements(2).values():
        x = mesh.points[conn]
        area = torch.linalg.cross(x[:, 1] - x[:, 0], x[:, 2] - x[:, 0])
        share = 0.5 if conn.shape[1] == 3 else 1.0
        flux += float(share * (area * x[:, 0]).sum())
    assert flux == pytest.approx(3 * 3.0 * 0.7)


def test_mixed_rectangle_has_quads_at_the_left():
    mesh = gen_rectangle(element_type="mixed", n=(4, 2))
    assert mesh.points[mesh.cells["quad"]][:, :, 0].max() == 0.5
    assert mesh.points[mesh.cells["triangle"]][:, :, 0].min() == 0.5


@pytest.mark.parametrize(
    ("length", "right", "cells"), [(0.1, 1.0, 10), (0.1, 1.1, 11), (0.3, 1.0, 4), (2.0, 1.0, 1)]
)
def test_side_has_as_many_cells_as_its_length_needs(length, right, cells):
    mesh = gen_rectangle(length, element_type="quad", right=right)
    assert len(mesh.cell_sets["bottom"]["line"]) == cells


def test_rounding_does_not_add_a_cell():
    mesh = gen_rectangle(0.1, element_type="quad", left=1.0, right=1.1)
    assert len(mesh.cell_sets["bottom"]["line"]) == 1


def test_positional_order_of_arguments():
    mesh = gen_rectangle(0.5, 2, "quad", 0.0, 2.0, 1.0, 2.0, False, None)
    assert list(mesh.top_cells()) == ["quad9"]
    assert mesh.points.max(dim=0).values.tolist() == [2.0, 2.0]
    mesh = gen_cube(0.5, 1, 0.0, 2.0, 1.0, 2.0, 3.0, 4.0, False, None)
    assert mesh.points.min(dim=0).values.tolist() == [0.0, 1.0, 3.0]
    assert mesh.points.max(dim=0).values.tolist() == [2.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (dict(chara_length=0.0), "chara_length"),
        (dict(chara_length=float("nan")), "chara_length"),
        (dict(order=5), "order"),
        (dict(left=1.0, right=1.0), "1.0 to 1.0"),
        (dict(right=float("inf")), "inf"),
        (dict(element_type="pentagon"), "pentagon"),
        (dict(n=(0, 1)), "n must be"),
        (dict(n=(1, 1, 1)), "n must be"),
        (dict(element_type="mixed", n=(1, 4)), "mixed"),
    ],
)
def test_wrong_argument_of_rectangle_is_named(arguments, named):
    with pytest.raises(ValueError, match=named):
        gen_rectangle(**arguments)


def test_wrong_arguments_of_cube_are_named():
    with pytest.raises(ValueError, match="'tri'"):
        gen_cube(element_type="tri")
    with pytest.raises(ValueError, match="2 to 1"):
        gen_cube(front=2, back=1)
    with pytest.raises(NotImplementedError, match="visualize"):
        gen_cube(visualize=True)
