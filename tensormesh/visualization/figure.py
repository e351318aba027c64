"""Figures of a mesh in two or three dimensions, by matplotlib."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def new_axes(dim: int, title: str | None = None) -> tuple[Any, Any]:
    """Figure and axes without frame, equal scales.

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message says how to get it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib: pip install "tensormesh-sharded[plot]"'
        ) from error
    # A figure of its own, not one of pyplot's: no display is touched and nothing is left open.
    figure = Figure(figsize=(8, 6), layout="constrained")
    axes = figure.add_subplot(projection="3d" if dim == 3 else None)
    axes.set_aspect("equal")
    axes.set_axis_off()
    if title:
        axes.set_title(title)
    return figure, axes


def add_polygons(axes: Any, corners: list[NDArray[np.float64]], **style: Any) -> Any:
    """Add polygons ``[P, 3 or 4, D]`` to axes of that dimension."""
    if corners[0].shape[-1] == 3:
        from mpl_toolkits.mplot3d.art3d import Poly3DCollection  # type: ignore[import-untyped]

        collection = axes.add_collection3d(Poly3DCollection(corners, **style))
    else:
        from matplotlib.collections import PolyCollection

        collection = axes.add_collection(PolyCollection(corners, **style))
    return collection


def part_colours(n_parts: int) -> Any:
    """Colour map of ten colours in turn, one a part."""
    from matplotlib.colors import ListedColormap

    return ListedColormap([f"C{part % 10}" for part in range(n_parts)])


def frame(axes: Any, points: NDArray[np.float64]) -> None:
    """Let the axes show all `points` at one scale."""
    low, high = points.min(0), points.max(0)
    margin = 0.02 * float((high - low).max() or 1.0)
    axes.set_xlim(low[0] - margin, high[0] + margin)
    axes.set_ylim(low[1] - margin, high[1] + margin)
    if points.shape[1] == 3:
        axes.set_zlim(low[2] - margin, high[2] + margin)
        axes.set_box_aspect(np.maximum(high - low, 1e-12))
