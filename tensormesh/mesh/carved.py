"""Structured meshes of rectangles and boxes from which a block is taken away."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, isfinite

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tensormesh.arguments import check_order, check_positive
from tensormesh.element.cell_type import cell_name
from tensormesh.mesh.boundary_cells import mesh_with_boundary
from tensormesh.mesh.generators import (
    CUBE_SIDES,
    RECTANGLE_SIDES,
    check_bounds,
    cube_blocks,
    rectangle_blocks,
    refuse_to_plot,
)
from tensormesh.mesh.grid import Block, Grid, block_cells
from tensormesh.mesh.mesh import Mesh

Cut = Callable[[str, Grid], list[Block]]


def gen_hollow_rectangle(
    chara_length: float = 0.1,
    order: int = 1,
    element_type: str = "quad",
    outer_left: float = 0.0,
    outer_right: float = 1.0,
    outer_bottom: float = 0.0,
    outer_top: float = 1.0,
    inner_left: float = 0.25,
    inner_right: float = 0.75,
    inner_bottom: float = 0.25,
    inner_top: float = 0.75,
    visualize: bool = False,
    cache_path: str | None = None,
) -> Mesh:
    """Mesh a rectangle without a rectangle inside, with a grid of cells.

    Parameters
    ----------
    chara_length
        Largest side of a cell.
    order
        Order of the cells, 1 to 4.
    element_type
        ``"tri"``, ``"quad"`` or ``"mixed"``, see `gen_rectangle`.
    outer_left, outer_right, outer_bottom, outer_top
        The rectangle.
    inner_left, inner_right, inner_bottom, inner_top
        What is taken away, strictly inside.
    visualize
        Not available: plot the mesh that is returned.
    cache_path
        Accepted for compatibility; nothing is written.

    Returns
    -------
    Mesh
        Float64 points; the lines of the boundary too; point data ``is_boundary``,
        ``is_outer_boundary``, ``is_inner_boundary``, ``is_outer_<side>_boundary`` and
        ``is_inner_<side>_boundary``, and groups ``outer``, ``inner``, ``outer_left``, ...

    Raises
    ------
    ValueError
        If a size, the order or the element type is not as above.
    NotImplementedError
        If `visualize` is asked for.

    Examples
    --------
    >>> gen_hollow_rectangle(0.25).n_elements
    12
    """
    refuse_to_plot(visualize)
    ticks = [
        (outer_left, inner_left, inner_right, outer_right),
        (outer_bottom, inner_bottom, inner_top, outer_top),
    ]
    return _hollow(ticks, chara_length, order, element_type, rectangle_blocks, RECTANGLE_SIDES)


def gen_hollow_cube(
    chara_length: float = 0.1,
    order: int = 1,
    outer_left: float = 0.0,
    outer_right: float = 1.0,
    outer_bottom: float = 0.0,
    outer_top: float = 1.0,
    outer_front: float = 0.0,
    outer_back: float = 1.0,
    inner_left: float = 0.25,
    inner_right: float = 0.75,
    inner_bottom: float = 0.25,
    inner_top: float = 0.75,
    inner_front: float = 0.25,
    inner_back: float = 0.75,
    visualize: bool = False,
    cache_path: str | None = None,
    *,
    element_type: str = "tet",
) -> Mesh:
    """Mesh a box without a box inside, with a grid of cells.

    Parameters
    ----------
    chara_length
        Largest side of a box of the grid.
    order
        Order of the cells, 1 to 4.
    outer_left, outer_right, outer_bottom, outer_top, outer_front, outer_back
        The box, from left to right in x, bottom to top in y, front to back in z.
    inner_left, inner_right, inner_bottom, inner_top, inner_front, inner_back
        What is taken away, strictly inside.
    visualize
        Not available: plot the mesh that is returned.
    cache_path
        Accepted for compatibility; nothing is written.
    element_type
        ``"tet"``, ``"hex"`` or ``"wedge"``, see `gen_cube`.

    Returns
    -------
    Mesh
        As of `gen_hollow_rectangle`, with the facets and the six sides of both boxes.

    Raises
    ------
    ValueError
        If a size, the order or the element type is not as above.
    NotImplementedError
        If `visualize` is asked for.

    Examples
    --------
    >>> gen_hollow_cube(0.25, element_type="hex").n_elements
    56
    """
    refuse_to_plot(visualize)
    ticks = [
        (outer_left, inner_left, inner_right, outer_right),
        (outer_bottom, inner_bottom, inner_top, outer_top),
        (outer_front, inner_front, inner_back, outer_back),
    ]
    return _hollow(ticks, chara_length, order, element_type, cube_blocks, CUBE_SIDES)


def gen_L(  # noqa: N802
    chara_length: float = 0.1,
    order: int = 1,
    element_type: str = "quad",
    left: float = 0.0,
    right: float = 1.0,
    bottom: float = 0.0,
    top: float = 1.0,
    top_inner: float = 0.5,
    right_inner: float = 0.5,
    visualize: bool = False,
    cache_path: str | None = None,
) -> Mesh:
    """Mesh a rectangle without its upper right block, with a grid of cells.

    Parameters
    ----------
    chara_length
        Largest side of a cell.
    order
        Order of the cells, 1 to 4.
    element_type
        ``"tri"``, ``"quad"`` or ``"mixed"``, see `gen_rectangle`.
    left, right, bottom, top
        The rectangle.
    top_inner, right_inner
        The corner inside is at ``x = right_inner``, ``y = top_inner``.
    visualize
        Not available: plot the mesh that is returned.
    cache_path
        Accepted for compatibility; nothing is written.

    Returns
    -------
    Mesh
        Float64 points; the lines of the boundary too; point data ``is_boundary`` and
        ``is_<side>_boundary`` for ``left``, ``right``, ``bottom``, ``top``, and for the sides at
        the corner inside ``L_top`` (``y = top_inner``) and ``L_right`` (``x = right_inner``), which
        are groups too.

    Raises
    ------
    ValueError
        If a size, the order or the element type is not as above.
    NotImplementedError
        If `visualize` is asked for.

    Examples
    --------
    >>> gen_L(0.5).n_elements
    3
    """
    refuse_to_plot(visualize)
    ticks = [(left, right_inner, right), (bottom, top_inner, top)]
    grid, marks = _broken_grid(ticks, chara_length, order)
    corner = np.array([mark[1] for mark in marks])
    places = grid.places()
    sides = _sides_of_box(grid, (0, 0), grid.n, RECTANGLE_SIDES)
    x, y = (places - order * corner).T
    sides |= {"L_top": (y == 0) & (x >= 0), "L_right": (x == 0) & (y >= 0)}
    blocks = _outside(rectangle_blocks(element_type, grid), corner, np.array(grid.n))
    return _mesh(grid, ticks, marks, blocks, sides)


def _hollow(
    ticks: Sequence[tuple[float, ...]],
    chara_length: float,
    order: int,
    element_type: str,
    cut: Cut,
    names: tuple[str, ...],
) -> Mesh:
    grid, marks = _broken_grid(ticks, chara_length, order)
    low, high = np.array([mark[1] for mark in marks]), np.array([mark[2] for mark in marks])
    outer = _sides_of_box(grid, (0,) * grid.dim, grid.n, names)
    inner = _sides_of_box(grid, low, high, names)
    sides = {"outer": _any(outer), "inner": _any(inner)}
    sides |= {f"outer_{name}": mask for name, mask in outer.items()}
    sides |= {f"inner_{name}": mask for name, mask in inner.items()}
    return _mesh(grid, ticks, marks, _outside(cut(element_type, grid), low, high), sides)


def _broken_grid(
    ticks: Sequence[tuple[float, ...]], chara_length: float, order: int
) -> tuple[Grid, list[NDArray[np.int64]]]:
    """Grid in units of its boxes, with the box at which each tick of each axis lies.

    Between two ticks of an axis the boxes are equal.
    """
    check_order(order)
    check_positive("chara_length", chara_length)
    for axis in ticks:
        check_bounds(*axis, names=["a bound"] * len(axis))
        if not all(map(isfinite, axis)) or not all(low < high for low, high in pairwise(axis)):
            raise ValueError(f"The bounds along an axis must increase, got {axis}.")
    # The rounding in (1.1 - 1.0) / 0.1 must not add a cell.
    counts = [
        [ceil((high - low) / chara_length * (1 - 1e-12)) for low, high in pairwise(axis)]
        for axis in ticks
    ]
    marks = [np.cumsum([0, *count]) for count in counts]
    n = tuple(int(mark[-1]) for mark in marks)
    return Grid(tuple((0.0, float(m)) for m in n), n, order), marks


def _outside(blocks: list[Block], low: NDArray[np.int64], high: NDArray[np.int64]) -> list[Block]:
    """Blocks without the boxes from corner `low` to corner `high`."""
    kept = []
    for block in blocks:
        inside = ((block.boxes >= low) & (block.boxes < high)).all(axis=1)
        kept.append(Block(block.shape, block.vertices, block.boxes[~inside]))
    return kept


def _sides_of_box(
    grid: Grid, low: ArrayLike, high: ArrayLike, names: tuple[str, ...]
) -> dict[str, NDArray[np.bool_]]:
    """Nodes on each side of the boxes from corner `low` to corner `high`, {side: (n_nodes,)}."""
    places = grid.places()
    low, high = grid.order * np.asarray(low), grid.order * np.asarray(high)
    within = ((places >= low) & (places <= high)).all(axis=1)
    on_side = np.stack([places == low, places == high], axis=2).reshape(len(places), -1)
    return {name: within & on_side[:, number] for number, name in enumerate(names)}


def _any(masks: dict[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    return np.logical_or.reduce(list(masks.values()))


def _mesh(
    grid: Grid,
    ticks: Sequence[tuple[float, ...]],
    marks: list[NDArray[np.int64]],
    blocks: list[Block],
    sides: dict[str, NDArray[np.bool_]],
) -> Mesh:
    in_boxes = grid.coordinates()
    points = [np.interp(in_boxes[:, i], marks[i], ticks[i]) for i in range(grid.dim)]
    return mesh_with_boundary(
        torch.from_numpy(np.stack(points, axis=1)),
        {
            cell_name(block.shape, grid.order): torch.from_numpy(block_cells(grid, block))
            for block in blocks
        },
        {name: torch.from_numpy(mask) for name, mask in sides.items()},
    )
