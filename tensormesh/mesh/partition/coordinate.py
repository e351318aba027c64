"""Recursive coordinate bisection (RCB): cut the cell centroids across the longest axis."""

import numpy as np
from numpy.typing import NDArray

from tensormesh.mesh.partition.bisection import recursive_bisection

RESOLUTION = 2.0**-30
"""Centroids nearer than this part of the longest side are level: rounding must not tear a layer."""


def coordinate_labels(
    centroids: NDArray[np.float64], n_parts: int, weights: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Label cells by recursive bisection of their centroids along the longest axis.

    Cells that are level along that axis are cut in the order of the other axes, then of their
    number, so that a cut through a layer of a grid has one step in it and not a ragged edge.

    Parameters
    ----------
    centroids
        Cell centroids, (n_cells, gdim), finite.
    n_parts
        Number of parts.
    weights
        Weight of each cell, (n_cells,).

    Returns
    -------
    NDArray
        Part of each cell, (n_cells,) int64.

    References
    ----------
    Berger and Bokhari, A partitioning strategy for nonuniform problems on multiprocessors, IEEE
    Transactions on Computers C-36 (1987) 570-580.
    """
    levels, equal = quantised(centroids), bool((weights == weights[0]).all())
    ranks: dict[int, NDArray[np.int64]] = {}  # of the axes that turn out to be longest

    def along_longest_axis(cells: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
        axis = int(np.argmax([np.ptp(level[cells]) for level in levels.T]))
        if axis not in ranks:
            ranks[axis] = axis_ranks(levels, axis)
        if not equal:
            return cells[np.argsort(ranks[axis][cells])]
        # The cut lies on either side of this fraction: the order beyond it does not matter.
        near = fraction * len(cells)
        places = np.clip([np.floor(near), np.ceil(near)], 0, len(cells) - 1).astype(np.int64)
        return cells[np.argpartition(ranks[axis][cells], places)]

    return recursive_bisection(weights, n_parts, along_longest_axis)


def quantised(centroids: NDArray[np.float64]) -> NDArray[np.int64]:
    """Centroids in steps of `RESOLUTION` times the longest side, (n, gdim) int64."""
    columns = centroids.T
    step = max(float(np.ptp(column)) for column in columns) * RESOLUTION
    levels = np.zeros(columns.shape, np.int64)
    if step > 0.0:
        for level, column in zip(levels, columns, strict=True):
            level[:] = np.rint((column - column.min()) / step)
    return levels.T


def axis_ranks(levels: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    """Place of each centroid along `axis`, ties broken by the longer other axes, then by number.

    Parameters
    ----------
    levels
        Quantised centroids, (n, gdim) int64.
    axis
        The axis.

    Returns
    -------
    NDArray
        Permutation of ``0 .. n - 1``, (n,) int64.
    """
    short_to_long = np.argsort(np.ptp(levels, axis=0), kind="stable")
    others = [levels[:, other] for other in short_to_long if other != axis]
    rank = np.empty(len(levels), np.int64)
    rank[np.lexsort([*others, levels[:, axis]])] = np.arange(len(levels))
    return rank
