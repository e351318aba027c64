"""The contents of a mesh as plain tensors, and the checks that they pass before they become one."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type

ByType = dict[str, Tensor]


@dataclass(frozen=True)
class MeshArrays:
    """Everything that a mesh holds.

    Attributes
    ----------
    points
        (n, D), a floating dtype.
    cells
        Type: connectivity (E, B), in file node order.
    point_data
        Name: (n, ...).
    cell_data
        Name: type: (E, ...).
    field_data
        Name: any tensor.
    cell_sets
        Group: type: int64 indices into the cells of that type.
    geometry_order
        1: the vertices of a cell alone make its geometry, which is that of a cell of order 1; its
        other nodes carry fields only. None: all its nodes do.
    """

    points: Tensor
    cells: ByType
    point_data: dict[str, Tensor] = field(default_factory=dict)
    cell_data: dict[str, ByType] = field(default_factory=dict)
    field_data: dict[str, Tensor] = field(default_factory=dict)
    cell_sets: dict[str, ByType] = field(default_factory=dict)
    geometry_order: int | None = None


def check_arrays(arrays: MeshArrays) -> None:
    """Raise if `arrays` cannot be a mesh.

    Raises
    ------
    ValueError
        If a shape does not fit, a coordinate is not finite, or a cell names a point that does not
        exist or one point twice.
    KeyError
        If a cell type is not supported.
    """
    _check_points(arrays.points)
    for kind, cells in arrays.cells.items():
        _check_cells(kind, cells, arrays.points)
    _check_finite(arrays.points, arrays.cells)
    if arrays.geometry_order not in (None, 1):
        raise ValueError(f"geometry_order must be 1 or None, got {arrays.geometry_order!r}.")
    for name, data in arrays.point_data.items():
        check_length(f"point data {name!r}", data, len(arrays.points))
    for name, by_type in arrays.cell_data.items():
        for kind, data in by_type.items():
            check_length(
                f"cell data {name!r} on {kind!r}", data, _n_cells(arrays.cells, name, kind)
            )
    for name, by_type in arrays.cell_sets.items():
        for kind, index in by_type.items():
            _check_set(name, kind, index, _n_cells(arrays.cells, name, kind))


def check_length(what: str, data: Tensor, n: int) -> None:
    """Raise `ValueError` unless the first axis of `data`, called `what`, has length `n`."""
    if data.ndim == 0 or len(data) != n:
        raise ValueError(f"{what} must have first axis {n}, got shape {tuple(data.shape)}.")


def _check_points(points: Tensor) -> None:
    if points.ndim != 2 or points.shape[1] not in (1, 2, 3):
        raise ValueError(f"points must have shape (n, 1..3), got {tuple(points.shape)}.")
    if not points.is_floating_point():
        raise ValueError(f"points must have a floating dtype, got {points.dtype}.")


def _check_finite(points: Tensor, cells: ByType) -> None:
    finite = torch.isfinite(points.detach()).all(dim=1)
    if finite.all():
        return
    for kind, nodes in cells.items():
        bad = (~finite[nodes]).nonzero()
        if len(bad):
            cell, node = bad[0].tolist()
            point = int(nodes[cell, node])
            raise ValueError(
                f"Point {point} of cell {cell} of type {kind!r} is not finite: "
                f"{points[point].tolist()}."
            )
    point = int((~finite).nonzero()[0])
    raise ValueError(f"Point {point} is not finite: {points[point].tolist()}.")


def _check_cells(kind: str, cells: Tensor, points: Tensor) -> None:
    expected = cell_type(kind)
    if cells.ndim != 2 or cells.shape[1] != expected.n_nodes:
        raise ValueError(
            f"Cells of type {kind!r} must have shape (E, {expected.n_nodes}), got "
            f"{tuple(cells.shape)}."
        )
    if points.shape[1] < expected.dim:
        raise ValueError(
            f"Cells of type {kind!r} need {expected.dim} coordinates a point, points have "
            f"{points.shape[1]}."
        )
    if not len(cells):
        return
    _check_range(kind, cells, len(points))
    _check_distinct(kind, cells)


def _check_range(kind: str, cells: Tensor, n_points: int) -> None:
    lowest, highest = cells.aminmax()
    if lowest < 0 or highest >= n_points:
        cell, node = ((cells < 0) | (cells >= n_points)).nonzero()[0].tolist()
        raise ValueError(
            f"Cell {cell} of type {kind!r} names point {int(cells[cell, node])}; there are "
            f"{n_points} points."
        )


def _check_distinct(kind: str, cells: Tensor) -> None:
    nodes = cells.sort(dim=1).values
    repeated = nodes[:, 1:] == nodes[:, :-1]
    if repeated.any():
        cell, node = repeated.nonzero()[0].tolist()
        raise ValueError(
            f"Cell {cell} of type {kind!r} has point {int(nodes[cell, node])} twice: "
            f"{cells[cell].tolist()}."
        )


def _n_cells(cells: ByType, name: str, kind: str) -> int:
    if kind not in cells:
        raise ValueError(f"{name!r} names cells of type {kind!r}; there are {', '.join(cells)}.")
    return len(cells[kind])


def _check_set(name: str, kind: str, index: Tensor, n_cells: int) -> None:
    if index.ndim != 1 or index.dtype != torch.int64:
        raise ValueError(
            f"Cell set {name!r} on {kind!r} must be int64 indices of shape (k,), got {index.dtype} "
            f"of shape {tuple(index.shape)}."
        )
    if len(index) and (index.min() < 0 or index.max() >= n_cells):
        raise ValueError(
            f"Cell set {name!r} names cells {int(index.min())} to {int(index.max())} of type "
            f"{kind!r}; there are {n_cells}."
        )
