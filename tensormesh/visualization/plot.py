"""`Mesh.plot`: wireframe, static pictures and animations in one call."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tensormesh.mesh.mesh import Mesh
from tensormesh.visualization.figure import add_polygons, frame, new_axes
from tensormesh.visualization.surface import as_triangles, visible_polygons

_DEFAULT_DT = 0.1
_BY_PILLOW = (".gif", ".webp", ".apng", ".png")


def plot_mesh(
    mesh: Mesh,
    values: Tensor | Mapping[str, Tensor] | list[Tensor] | None = None,
    save_path: str | PathLike[str] | None = None,
    dt: float | None = None,
    show_mesh: bool = False,
    fix_clim: bool = False,
    show: bool = False,
    **style: Any,
) -> Any:
    """Draw a mesh, a nodal field, several fields side by side, or a field as it changes.

    Parameters
    ----------
    mesh
        2-D, or 3-D: then its surface.
    values
        None: the edges of the cells. (n,): a picture. {name: (n,)}: a picture for each. A list of
        (n,), or (T, n): an animation.
    save_path
        Where to write; the suffix chooses the format. None writes nothing.
    dt
        Seconds between two frames of an animation, None for 0.1.
    show_mesh
        Draw the edges of the cells over the values.
    fix_clim
        One range of colours for all frames or pictures, instead of one for each.
    show
        Open a window.
    **style
        Passed on to the collection of matplotlib that is drawn, for instance ``cmap="turbo"``.

    Returns
    -------
    matplotlib.axes.Axes, matplotlib.figure.Figure or matplotlib.animation.FuncAnimation
        The axes of a wireframe, the figure of a picture, or the animation.

    Raises
    ------
    ValueError
        If a length does not fit, `values` is empty, there is nothing to draw, or `save_path` names
        a format that is not available.
    TypeError
        If `values` is something else.
    ImportError
        Without matplotlib.
    """
    fields = _checked(mesh, values)
    if not fields:
        figure, axes = new_axes(mesh.dim)
        _draw_edges(axes, mesh, **style)
        result = axes
    elif isinstance(values, Mapping):
        result = figure = _pictures(mesh, fields, show_mesh, fix_clim, style)
    elif isinstance(values, Tensor) and values.ndim == 1:
        result = figure = _pictures(mesh, fields, show_mesh, fix_clim, style)
    else:
        figure, result = _animation(mesh, list(fields.values()), dt, show_mesh, fix_clim, style)
    if save_path is not None:
        _save(result, figure, Path(save_path))
    if show:
        _show(figure)
    return result


def _checked(mesh: Mesh, values: Any) -> dict[str, Tensor]:
    """Fields by name, each (n,) on the CPU."""
    if values is None:
        return {}
    if isinstance(values, Tensor) and values.ndim == 1:
        fields = {"": values}
    elif isinstance(values, Mapping):
        fields = dict(values)
    elif isinstance(values, Tensor | list | tuple):
        fields = {str(number): frame for number, frame in enumerate(values)}
    else:
        raise TypeError(f"values must be a tensor, a dict or a list, got {type(values).__name__}.")
    if not fields:
        raise ValueError("values is empty: give at least one field, or None for the edges.")
    for name, field in fields.items():
        if not isinstance(field, Tensor):
            raise TypeError(f"values {name!r} must be a tensor, got {type(field).__name__}.")
        if field.shape != (mesh.n_points,):
            raise ValueError(
                f"values {name!r} must have shape ({mesh.n_points},), got {tuple(field.shape)}."
            )
    return {name: field.detach().cpu().double() for name, field in fields.items()}


def _range(fields: list[Tensor]) -> tuple[float, float]:
    low, high = torch.cat(fields).aminmax()
    return float(low), float(high)


class _Field:
    """One field on axes, whose values can be replaced."""

    def __init__(self, axes: Any, mesh: Mesh, values: Tensor, style: dict[str, Any]) -> None:
        corners = mesh.points.detach().cpu().numpy()
        self.triangles = as_triangles(visible_polygons(mesh))
        self.by_node = mesh.dim == 2
        if self.by_node:
            shading = {"shading": "gouraud"} | style
            self.drawn = axes.tripcolor(*corners.T, self.triangles, values.numpy(), **shading)
        else:
            self.drawn = add_polygons(axes, list(corners[self.triangles]), **style)
            self.drawn.set_edgecolor("face")
        frame(axes, corners[self.triangles].reshape(-1, mesh.dim))
        self.replace(values, _range([values]))

    def replace(self, values: Tensor, limits: tuple[float, float]) -> None:
        """Show other values."""
        shown = values if self.by_node else values[self.triangles].mean(dim=1)
        self.drawn.set_array(shown.numpy())
        self.drawn.set_clim(*limits)


def _pictures(
    mesh: Mesh, fields: dict[str, Tensor], show_mesh: bool, fix_clim: bool, style: dict[str, Any]
) -> Any:
    figure, first = new_axes(mesh.dim)
    first.remove()
    figure.set_size_inches(8 * len(fields), 6)
    common = _range(list(fields.values()))
    for number, (name, values) in enumerate(fields.items(), start=1):
        axes = figure.add_subplot(1, len(fields), number, projection=_projection(mesh))
        axes.set_aspect("equal")
        axes.set_axis_off()
        axes.set_title(name)
        field = _Field(axes, mesh, values, style)
        field.replace(values, common if fix_clim else _range([values]))
        figure.colorbar(field.drawn, ax=axes, shrink=0.7)
        if show_mesh:
            _draw_edges(axes, mesh)
    return figure


def _animation(
    mesh: Mesh,
    frames: list[Tensor],
    dt: float | None,
    show_mesh: bool,
    fix_clim: bool,
    style: dict[str, Any],
) -> tuple[Any, Any]:
    figure, axes = new_axes(mesh.dim)
    from matplotlib.animation import FuncAnimation

    field = _Field(axes, mesh, frames[0], style)
    figure.colorbar(field.drawn, ax=axes, shrink=0.7)
    if show_mesh:
        _draw_edges(axes, mesh)
    common = _range(frames)

    def advance(number: int) -> list[Any]:
        values = frames[number]
        field.replace(values, common if fix_clim else _range([values]))
        return [field.drawn]

    step = _DEFAULT_DT if dt is None else dt
    return figure, FuncAnimation(figure, advance, frames=len(frames), interval=1000 * step)


def _draw_edges(axes: Any, mesh: Mesh, **style: Any) -> None:
    points = mesh.points.detach().cpu().numpy()
    look = {"facecolor": "none", "edgecolor": "black", "linewidth": 0.3} | style
    polygons = [points[p.cpu().numpy()] for p in visible_polygons(mesh)]
    for corners in polygons:
        add_polygons(axes, list(corners), **look)
    frame(axes, _joined(polygons, mesh.dim))


def _joined(polygons: list[Any], dim: int) -> Any:
    return torch.cat([torch.from_numpy(p).reshape(-1, dim) for p in polygons]).numpy()


def _projection(mesh: Mesh) -> str | None:
    return "3d" if mesh.dim == 3 else None


def _save(result: Any, figure: Any, path: Path) -> None:
    from matplotlib.animation import Animation, writers

    if not isinstance(result, Animation):
        figure.savefig(path, dpi=150)
        return
    writer = "pillow" if path.suffix.lower() in _BY_PILLOW else "ffmpeg"
    if not writers.is_available(writer):
        raise ValueError(
            f"save_path={str(path)!r} needs {writer}, which is not installed; install it or choose "
            "a path that ends in .gif."
        )
    result.save(path, writer=writer)


def _show(figure: Any) -> None:
    from matplotlib import pyplot

    # The figure is not one of pyplot's; the window of an empty one takes it over.
    window: Any = pyplot.figure()
    window.canvas.manager.canvas.figure = figure
    figure.set_canvas(window.canvas)
    pyplot.show()
