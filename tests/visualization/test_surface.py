"""`visible_polygons`: cells of the plane, surface of a solid, seen by their number and area."""

import numpy as np
import pytest
import torch

import tensormesh as tm
from tensormesh.mesh.submesh import extract_part
from tensormesh.visualization.surface import as_triangles, visible_polygons


def area(mesh: tm.Mesh) -> float:
    """Area of the polygons, cut into triangles."""
    points = np.zeros((mesh.n_points, 3))
    points[:, : mesh.dim] = mesh.points.numpy()
    a, b, c = points[as_triangles(visible_polygons(mesh))].transpose(1, 0, 2)
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum()) / 2


def counts(mesh: tm.Mesh) -> dict[int, int]:
    """Number of polygons by number of corners."""
    return {polygons.shape[1]: len(polygons) for polygons in visible_polygons(mesh)}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    ("kind", "expected"), [("tri", {3: 24}), ("quad", {4: 12}), ("mixed", {3: 12, 4: 6})]
)
def test_a_plane_mesh_shows_its_cells(kind: str, order: int, expected: dict[int, int]) -> None:
    """features | plot_mesh: serial."""
    mesh = tm.Mesh.gen_rectangle(n=(4, 3), element_type=kind, order=order)
    assert counts(mesh) == expected
    assert area(mesh) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [("tet", {3: 104}), ("hex", {4: 52}), ("wedge", {3: 48, 4: 28})],
)
def test_a_solid_shows_its_surface(kind: str, order: int, expected: dict[int, int]) -> None:
    mesh = tm.Mesh.gen_cube(n=(4, 3, 2), element_type=kind, order=order)
    assert counts(mesh) == expected
    assert area(mesh) == pytest.approx(6.0, rel=1e-12)


def test_a_surface_in_space_shows_its_cells() -> None:
    flat = tm.Mesh.gen_rectangle(n=(4, 3), element_type="mixed")
    x = torch.cat([flat.points, flat.points[:, :1]], dim=1)  # the plane z = x
    tilted = tm.Mesh.from_arrays(x, {kind: c.clone() for kind, c in flat.cells.items()})
    assert counts(tilted) == {3: 12, 4: 6}
    assert area(tilted) == pytest.approx(2**0.5, rel=1e-12)


def test_a_part_of_a_solid_shows_the_faces_where_it_was_cut() -> None:
    cube = tm.Mesh.gen_cube(n=(4, 2, 2), element_type="hex")
    left = (cube.points[cube.cells["hexahedron"]].mean(dim=1)[:, 0] > 0.5).long()
    assert area(extract_part(cube, left, 0)) == pytest.approx(2 * (1 + 0.5 + 0.5), rel=1e-12)


@pytest.mark.parametrize("cells", [{}, {"line": torch.tensor([[0, 1]])}], ids=["points", "lines"])
def test_there_is_nothing_to_see_of_points_and_lines(cells: dict[str, torch.Tensor]) -> None:
    mesh = tm.Mesh.from_arrays(torch.eye(2, dtype=torch.float64), cells)
    with pytest.raises(ValueError, match="nothing to draw"):
        visible_polygons(mesh)
