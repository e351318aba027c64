"""`plot_partition`: all parts are drawn, apart when exploded, with the nodes that they share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensormesh as tm
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of, labelled, mesh_of, outcome
from tests.pictures import inked, n_colours
from tests.rank_pool import RankPool

DRAWN = ("mixed", "tetra10")


def triangles_by_part(figure: Any) -> list[int]:
    """How many triangles have the colour of each part."""
    polygons = figure.axes[0].collections[0]
    return np.bincount(np.asarray(polygons.get_array(), dtype=np.int64)).tolist()


def n_triangles(part: tm.Mesh) -> int:
    """Triangles of the cells of a plane mesh."""
    return sum(len(c) * (2 if kind == "quad" else 1) for kind, c in part.top_cells().items())


@pytest.mark.parametrize("kind", ["tri", "quad", "mixed", "triangle6"])
@pytest.mark.parametrize("n_parts", [1, 2, 5])
def test_every_cell_of_a_plane_mesh_has_its_colour(kind: str, n_parts: int) -> None:
    """distributed-api DistributedMesh | `plot()`: cells coloured by part.

    features | distributed.plot.plot_partition: serial.
    """
    dmesh = tm.DistributedMesh(mesh_of(kind), n_parts)
    assert triangles_by_part(dmesh.plot()) == [n_triangles(part) for part in dmesh.submeshes]


def test_each_part_of_a_solid_has_a_closed_surface() -> None:
    box = tm.Mesh.gen_cube(n=(4, 3, 2), element_type="hex")
    quads = 2 * (2 * 3 + 3 * 2 + 2 * 2)  # of a half, 2 x 3 x 2 hexahedra
    assert triangles_by_part(tm.DistributedMesh(box, 2).plot()) == [2 * quads, 2 * quads]


def test_a_part_inside_a_solid_is_drawn() -> None:
    cube = tm.Mesh.gen_cube(n=(3, 3, 3), element_type="hex")
    with labelled([int(cell == 13) for cell in range(27)]):  # the one in the middle
        dmesh = tm.DistributedMesh(cube, 2)
    assert triangles_by_part(dmesh.plot()) == [2 * (6 * 9 + 6), 2 * 6]


def test_exploded_parts_move_apart_by_what_their_centres_do() -> None:
    """distributed-api DistributedMesh | `plot()`: exploded view."""
    dmesh = tm.DistributedMesh(tm.Mesh.gen_rectangle(n=(4, 3)), 2)
    for explode in (0.0, 0.5):
        axes = dmesh.plot(explode=explode).axes[0]
        polygons = axes.collections[0]
        x = np.array([path.vertices[:3, 0] for path in polygons.get_paths()])
        part = np.asarray(polygons.get_array())
        # The centres are at x = 1/4 and 3/4, half apart.
        assert x[part == 1].min() - x[part == 0].max() == pytest.approx(0.5 * explode)
        low, high = axes.get_xlim()
        assert low <= x.min()
        assert x.max() <= high


def test_nodes_of_several_parts_are_marked_where_they_are_ghosts() -> None:
    """distributed-api DistributedMesh | `plot()`: interface nodes marked."""
    dmesh = tm.DistributedMesh(tm.Mesh.gen_rectangle(n=(4, 3)), 2)
    axes = dmesh.plot().axes[0]
    shared = np.asarray(axes.collections[1].get_offsets())
    assert shared[np.argsort(shared[:, 1])] == pytest.approx(
        np.array([[0.5, y] for y in (0.0, 1 / 3, 2 / 3, 1.0)])
    )
    assert axes.get_legend() is not None
    assert (
        tm.DistributedMesh(tm.Mesh.gen_rectangle(n=(4, 3)), 1).plot().axes[0].get_legend() is None
    )


def drawn_on_ranks(device_mesh: DeviceMesh, folder: Path) -> list[list[int]]:
    rank = device_mesh.get_local_rank()
    found = []
    for kind in DRAWN:
        dmesh = dmesh_of(mesh_of(kind), device_mesh)
        figure = dmesh.plot(folder / f"{kind}_of_rank_{rank}.png", explode=0.3)
        found.append(triangles_by_part(figure))
    return found


def test_ranks_draw_the_parts_of_all_and_one_writes_the_file(
    ranks: RankPool, tmp_path: Path
) -> None:
    """features | distributed.plot.plot_partition: distributed."""
    expected = [triangles_by_part(tm.DistributedMesh(mesh_of(kind), 3).plot()) for kind in DRAWN]
    assert ranks(3, drawn_on_ranks, tmp_path) == [expected] * 3
    assert {path.name for path in tmp_path.iterdir()} == {f"{k}_of_rank_0.png" for k in DRAWN}
    for path in tmp_path.iterdir():
        assert inked(path) > 0.05, path
        assert n_colours(path) > 3, path


def test_single_precision_and_differentiable_points_are_drawn() -> None:
    mesh = mesh_of("mixed").to(torch.float32)
    mesh.points.requires_grad_()
    dmesh = tm.DistributedMesh(mesh, 2)
    assert sum(triangles_by_part(dmesh.plot())) == n_triangles(mesh)


def failures(device_mesh: DeviceMesh, folder: Path) -> dict[str, Any]:
    line = tm.Mesh.from_arrays(
        torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 1.0]]),
        {"line": torch.tensor([[0, 1], [1, 2], [2, 3]])},
    )
    dmesh = dmesh_of(mesh_of("tri"), device_mesh)
    return {
        "lines": outcome(dmesh_of(line, device_mesh).plot),
        "suffix": outcome(dmesh.plot, folder / "parts.nonsense"),
        "folder": outcome(dmesh.plot, folder / "missing" / "parts.png"),
    }


def test_every_rank_raises_what_goes_wrong_on_one(ranks: RankPool, tmp_path: Path) -> None:
    for found in ranks(3, failures, tmp_path):
        names = {what: raised and raised[0] for what, raised in found.items()}
        assert names == {
            "lines": "ValueError",
            "suffix": "ValueError",
            "folder": "FileNotFoundError",
        }
        assert "nothing to draw" in found["lines"][1]
        assert "nonsense" in found["suffix"][1]
