"""Structured meshes of rectangles and boxes, with the boundary cells and groups of their sides."""

from collections.abc import Sequence
from itertools import permutations
from math import ceil, isfinite

import numpy as np
from numpy.typing import NDArray

from tensormesh.arguments import check_number, check_order, check_positive
from tensormesh.element.reference import SHAPES
from tensormesh.mesh.grid import Block, Grid, grid_mesh
from tensormesh.mesh.mesh import Mesh

RECTANGLE_SIDES = ("left", "right", "bottom", "top")
CUBE_SIDES = (*RECTANGLE_SIDES, "front", "back")
"""Low and high side of each axis."""


def gen_rectangle(
    chara_length: float = 0.1,
    order: int = 1,
    element_type: str = "tri",
    left: float = 0.0,
    right: float = 1.0,
    bottom: float = 0.0,
    top: float = 1.0,
    visualize: bool = False,
    cache_path: str | None = None,
    *,
    n: tuple[int, int] | None = None,
) -> Mesh:
    """Mesh a rectangle with a grid of cells.

    Parameters
    ----------
    chara_length
        Largest side of a cell: each side has ``ceil(length / chara_length)`` cells.
    order
        Order of the cells, 1 to 4.
    element_type
        ``"tri"``: two triangles in each rectangle of the grid. ``"quad"``. ``"mixed"``: quads in
        the left half of the columns, triangles in the others.
    left, right, bottom, top
        The rectangle.
    visualize
        Not available: plot the mesh that is returned.
    cache_path
        Accepted for compatibility; nothing is written.
    n
        Cells along x and y, instead of `chara_length`.

    Returns
    -------
    Mesh
        Float64 points; the lines of the boundary too, in the groups ``left``, ``right``, ``bottom``
        and ``top``; point data ``is_boundary`` and ``is_<side>_boundary``.

    Raises
    ------
    ValueError
        If a size, the order or the element type is not as above.
    NotImplementedError
        If `visualize` is asked for.

    Examples
    --------
    >>> gen_rectangle(0.5).n_elements
    8
    """
    refuse_to_plot(visualize)
    grid = _grid(((left, right), (bottom, top)), chara_length, order, n)
    return grid_mesh(grid, rectangle_blocks(element_type, grid), RECTANGLE_SIDES)


def gen_cube(
    chara_length: float = 0.1,
    order: int = 1,
    left: float = 0.0,
    right: float = 1.0,
    bottom: float = 0.0,
    top: float = 1.0,
    front: float = 0.0,
    back: float = 1.0,
    visualize: bool = False,
    cache_path: str | None = None,
    *,
    element_type: str = "tet",
    n: tuple[int, int, int] | None = None,
) -> Mesh:
    """Mesh a box with a grid of cells.

    Parameters
    ----------
    chara_length
        Largest side of a box of the grid: each side has ``ceil(length / chara_length)`` of them.
    order
        Order of the cells, 1 to 4.
    left, right, bottom, top, front, back
        The box, from left to right in x, bottom to top in y, front to back in z.
    visualize
        Not available: plot the mesh that is returned.
    cache_path
        Accepted for compatibility; nothing is written.
    element_type
        ``"tet"``: six tetrahedra in each box of the grid, around its diagonal (Kuhn). ``"hex"``.
        ``"wedge"``: two wedges, with triangles at the front and the back.
    n
        Boxes along x, y and z, instead of `chara_length`.

    Returns
    -------
    Mesh
        Float64 points; the triangles and quads of the boundary too, in the groups ``left``,
        ``right``, ``bottom``, ``top``, ``front`` and ``back``, right-handed about the outward
        normal; point data ``is_boundary`` and ``is_<side>_boundary``.

    Raises
    ------
    ValueError
        If a size, the order or the element type is not as above.
    NotImplementedError
        If `visualize` is asked for.

    Examples
    --------
    >>> gen_cube(0.5, element_type="hex").n_elements
    8
    """
    refuse_to_plot(visualize)
    grid = _grid(((left, right), (bottom, top), (front, back)), chara_length, order, n)
    return grid_mesh(grid, cube_blocks(element_type, grid), CUBE_SIDES)


_SQUARE = np.array(SHAPES["quad"].vertices, np.int64)
_CUBE = np.array(SHAPES["hexahedron"].vertices, np.int64)
_TRIANGLES = _SQUARE[[[0, 1, 2], [0, 2, 3]]]
_WEDGES = _CUBE[[[0, 1, 2, 4, 5, 6], [0, 2, 3, 4, 6, 7]]]


def _kuhn() -> NDArray[np.int64]:
    """Six tetrahedra about the diagonal of the unit cube, positive, (6, 4, 3).

    Each goes from corner 0 to corner 1 along the axes in some order; an odd order gives a negative
    volume, mended by exchanging two vertices.
    """
    steps = np.eye(3, dtype=np.int64)[list(permutations(range(3)))]
    tetrahedra = np.concatenate([np.zeros((6, 1, 3), np.int64), steps.cumsum(axis=1)], axis=1)
    negative = np.linalg.det(steps) < 0
    tetrahedra[negative] = tetrahedra[negative][:, [0, 2, 1, 3]]
    return tetrahedra


def rectangle_blocks(element_type: str, grid: Grid) -> list[Block]:
    """Cells of a grid in the plane; ValueError if `element_type` is unknown."""
    boxes = grid.boxes()
    if element_type == "tri":
        return [Block("triangle", _TRIANGLES, boxes)]
    if element_type == "quad":
        return [Block("quad", _SQUARE[None], boxes)]
    if element_type == "mixed":
        if grid.n[0] < 2:
            raise ValueError(f"element_type='mixed' needs 2 cells along x, there are {grid.n[0]}.")
        at_left = boxes[:, 0] < grid.n[0] // 2
        return [
            Block("quad", _SQUARE[None], boxes[at_left]),
            Block("triangle", _TRIANGLES, boxes[~at_left]),
        ]
    raise ValueError(f"element_type must be 'tri', 'quad' or 'mixed', got {element_type!r}.")


def cube_blocks(element_type: str, grid: Grid) -> list[Block]:
    """Cells of a grid in space; ValueError if `element_type` is unknown."""
    if element_type == "tet":
        return [Block("tetra", _kuhn(), grid.boxes())]
    if element_type == "hex":
        return [Block("hexahedron", _CUBE[None], grid.boxes())]
    if element_type == "wedge":
        return [Block("wedge", _WEDGES, grid.boxes())]
    raise ValueError(f"element_type must be 'tet', 'hex' or 'wedge', got {element_type!r}.")


def _grid(
    bounds: tuple[tuple[float, float], ...],
    chara_length: float,
    order: int,
    n: tuple[int, ...] | None,
) -> Grid:
    check_order(order)
    check_bounds(*(bound for pair in bounds for bound in pair))
    for low, high in bounds:
        if not (isfinite(low) and isfinite(high) and low < high):
            raise ValueError(f"A side must go from a lower to a higher bound, got {low} to {high}.")
    return Grid(bounds, _counts(bounds, chara_length, n), order)


def _counts(
    bounds: tuple[tuple[float, float], ...], chara_length: float, n: tuple[int, ...] | None
) -> tuple[int, ...]:
    if n is not None:
        if not isinstance(n, Sequence) or len(n) != len(bounds) or not all(map(_is_count, n)):
            raise ValueError(f"n must be {len(bounds)} positive integers, got {n!r}.")
        return tuple(n)
    check_positive("chara_length", chara_length)
    # The rounding in (1.1 - 1.0) / 0.1 must not add a cell.
    return tuple(ceil((high - low) / chara_length * (1 - 1e-12)) for low, high in bounds)


def _is_count(m: object) -> bool:
    return isinstance(m, int) and not isinstance(m, bool) and m >= 1


def refuse_to_plot(visualize: bool) -> None:
    """Refuse ``visualize=True``, which is accepted by name for compatibility only."""
    if visualize:
        raise NotImplementedError("visualize=True is not available: plot the mesh it returns.")


def check_bounds(*bounds: float, names: Sequence[str] = CUBE_SIDES) -> None:
    """Refuse bounds that are no numbers."""
    for name, bound in zip(names, bounds, strict=False):
        check_number(name, bound)
