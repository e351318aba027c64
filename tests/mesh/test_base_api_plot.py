"""`Mesh.plot`: wireframe, static picture, animation."""

from io import BytesIO

import pytest
import torch

from tensormesh import Mesh

pytest.importorskip("matplotlib", reason="plots need matplotlib")

MESH = Mesh.gen_rectangle(0.5)


def test_row_plot_without_values_gives_axes_with_a_polygon_per_cell():
    """base-api 2 | `plot(values=None, ...)`: no values, a wireframe, returns the axes."""
    axes = MESH.plot()
    assert sum(len(c.get_paths()) for c in axes.collections) == MESH.n_elements
    assert axes.get_xlim()[0] <= 0 <= 1 <= axes.get_xlim()[1]


def test_row_plot_draws_the_surface_of_a_solid():
    """base-api 2 | `plot(values=None, ...)`: a solid shows its boundary."""
    mesh = Mesh.gen_cube(0.5, element_type="hex")
    axes = mesh.plot()
    axes.figure.savefig(BytesIO())  # projects the polygons
    assert len(axes.collections[0].get_paths()) == 6 * 2 * 2
    assert mesh.plot(mesh.points[:, 0]).axes


def test_row_plot_of_values_writes_only_what_is_asked_for(tmp_path, monkeypatch):
    """base-api 2 | `plot(values, save_path)`: a static picture; nothing without a path.

    features | Mesh.plot: serial.
    """
    monkeypatch.chdir(tmp_path)
    figure = MESH.plot(MESH.points[:, 0], cmap="turbo")
    assert list(tmp_path.iterdir()) == []
    drawn = figure.axes[0].collections[0]
    assert drawn.get_clim() == (0.0, 1.0)
    assert drawn.get_cmap().name == "turbo"
    MESH.plot(MESH.points[:, 0], save_path="u.png", show_mesh=True)
    assert [path.name for path in tmp_path.iterdir()] == ["u.png"]


def test_row_plot_of_a_dict_has_a_picture_per_name():
    """base-api 2 | `plot(values: dict name -> [n])`: one picture per name."""
    x, y = MESH.points.unbind(1)
    figure = MESH.plot({"x": x, "3 y": 3 * y})
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["x", "3 y"]
    limits = [axes.collections[0].get_clim() for axes in figure.axes if axes.get_title()]
    assert limits == [(0.0, 1.0), (0.0, 3.0)]
    figure = MESH.plot({"x": x, "3 y": 3 * y}, fix_clim=True)
    limits = [axes.collections[0].get_clim() for axes in figure.axes if axes.get_title()]
    assert limits == [(0.0, 3.0), (0.0, 3.0)]


@pytest.mark.parametrize("as_list", [True, False])
def test_row_plot_of_frames_is_an_animation(tmp_path, as_list):
    """base-api 2 | `plot(values: list or [T, n], dt, fix_clim)`: an animation."""
    from PIL import Image

    frames = torch.stack([MESH.points[:, 0] * t for t in (1.0, 2.0, 3.0)])
    path = tmp_path / "u.gif"
    MESH.plot(list(frames) if as_list else frames, save_path=path, dt=0.2, fix_clim=True)
    with Image.open(path) as image:
        assert image.n_frames == 3
        assert image.info["duration"] == 200


def test_row_plot_fix_clim_keeps_the_colours_of_all_frames():
    """base-api 2 | `plot(fix_clim)`: one range of colours for all frames, or one for each."""
    frames = torch.stack([MESH.points[:, 0] * t for t in (1.0, 2.0)])
    for fix_clim, expected in [(True, (0.0, 2.0)), (False, (0.0, 1.0))]:
        animation = MESH.plot(frames, fix_clim=fix_clim)
        (drawn,) = animation._func(0)
        animation._draw_was_started = True  # else matplotlib warns that it was not shown
        assert drawn.get_clim() == expected


def test_row_plot_refuses_what_it_cannot_draw():
    """base-api 2 | `plot(...)`: wrong sizes, types and formats are errors."""
    with pytest.raises(ValueError, match="shape"):
        MESH.plot(torch.zeros(3))
    with pytest.raises(TypeError, match="tensor"):
        MESH.plot("u")
    with pytest.raises(ValueError, match="empty"):
        MESH.plot([])
