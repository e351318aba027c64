"""`plot_field`: values become colours where they are, and wrong shapes are refused."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensormesh as tm
from tensormesh.visualization import plot_field
from tests.pictures import inked, n_colours

PLANE = ["tri", "quad", "mixed"]
SOLID = ["tet", "hex", "wedge"]


def drawn(figure: Any) -> Any:
    """The one collection that is drawn; the colour bar has axes of its own."""
    (collection,) = figure.axes[0].collections
    return collection


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", PLANE)
def test_plane_nodes_have_the_colours_of_their_values(kind: str, order: int) -> None:
    """features | plot_field: serial."""
    mesh = tm.Mesh.gen_rectangle(n=(4, 3), element_type=kind, order=order)
    values = mesh.points[:, 0] + 2 * mesh.points[:, 1]
    collection = drawn(plot_field(mesh, values))
    assert np.array_equal(collection.get_array(), values.numpy())
    assert collection.get_clim() == (0.0, 3.0)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", SOLID)
def test_triangles_of_a_solid_have_the_mean_of_their_corners(kind: str, order: int) -> None:
    mesh = tm.Mesh.gen_cube(n=(4, 3, 2), element_type=kind, order=order)
    collection = drawn(plot_field(mesh, mesh.points[:, 2]))
    colours = np.asarray(collection.get_array())
    assert len(colours) == 2 * 52  # two to each square of the surface
    # Twelve squares lie at the bottom and as many at the top; a triangle of a wall has one or two
    # of its corners at the upper end of its layer, of height 1/2.
    heights = np.round(6 * colours).astype(int)
    assert np.bincount(heights, minlength=7).tolist() == [24, 14, 14, 0, 14, 14, 24]


def test_displacement_moves_what_is_drawn() -> None:
    mesh = tm.Mesh.gen_rectangle(n=(4, 3))
    shift = torch.tensor([10.0, -5.0], dtype=mesh.dtype).expand_as(mesh.points)
    still = plot_field(mesh, mesh.points[:, 0]).axes[0]
    moved = plot_field(mesh, mesh.points[:, 0], displacement=shift).axes[0]
    assert np.subtract(moved.get_xlim(), still.get_xlim()) == pytest.approx(10.0)
    assert np.subtract(moved.get_ylim(), still.get_ylim()) == pytest.approx(-5.0)


@pytest.mark.parametrize("dim", [2, 3])
def test_picture_is_written_with_its_labels(dim: int, tmp_path: Path) -> None:
    mesh = tm.Mesh.gen_rectangle(n=(8, 8)) if dim == 2 else tm.Mesh.gen_cube(n=(4, 4, 4))
    path = tmp_path / "field.png"
    figure = plot_field(mesh, mesh.points[:, 0], path, title="the title", label="the label")
    axes, bar = figure.axes
    assert axes.get_title() == "the title"
    assert bar.get_ylabel() == "the label"
    assert inked(path) > 0.1
    assert n_colours(path) > 30


def test_single_precision_and_values_with_gradients_are_drawn() -> None:
    mesh = tm.Mesh.gen_rectangle(n=(4, 3)).to(torch.float32)
    mesh.points.requires_grad_()
    values = mesh.points[:, 0] * 2
    displacement = mesh.points * 0.1
    collection = drawn(plot_field(mesh, values, displacement=displacement))
    assert collection.get_clim() == (0.0, 2.0)


def test_input_is_not_changed() -> None:
    mesh = tm.Mesh.gen_rectangle(n=(4, 3))
    points, values = mesh.points.clone(), mesh.points[:, 0].clone()
    plot_field(mesh, values, displacement=mesh.points)
    assert torch.equal(mesh.points, points)
    assert torch.equal(values, points[:, 0])


@pytest.mark.parametrize("shape", [(), (19,), (20, 1), (21,)])
def test_values_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    mesh = tm.Mesh.gen_rectangle(n=(4, 3))  # 20 nodes
    with pytest.raises(ValueError, match=r"values has shape .*expected \[20\]"):
        plot_field(mesh, torch.zeros(shape))


@pytest.mark.parametrize("shape", [(40,), (20, 3), (19, 2)])
def test_displacements_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    mesh = tm.Mesh.gen_rectangle(n=(4, 3))
    with pytest.raises(ValueError, match=r"displacement has shape .*expected \(20, 2\)"):
        plot_field(mesh, torch.zeros(20), displacement=torch.zeros(shape))


def test_a_mesh_of_lines_is_refused() -> None:
    line = tm.Mesh.from_arrays(torch.eye(2), {"line": torch.tensor([[0, 1]])})
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_field(line, torch.zeros(2))


def test_without_matplotlib_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install .*\[plot\]"):
        plot_field(tm.Mesh.gen_rectangle(n=(2, 2)), torch.zeros(9))
