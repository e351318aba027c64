"""Recursive bisection into any number of parts; the caller says in which order the cells lie."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Order = Callable[[NDArray[np.int64], float], NDArray[np.int64]]


def recursive_bisection(weights: NDArray[np.float64], n_parts: int, order: Order) -> NDArray:
    """Label cells by cutting the set, in `order`, in proportion to the parts on either side.

    For equal weights each part has ``floor(n_cells / n_parts)`` or one more cells: a set that can
    be shared out so is cut into two such sets, because rounding is monotone.

    Parameters
    ----------
    weights
        Weight of each cell, (n_cells,), not negative, at least `n_parts` cells.
    n_parts
        Number of parts, any positive number.
    order
        ``order(cells, fraction)`` returns `cells` in the order in which they are cut after that
        fraction of their weight.

    Returns
    -------
    NDArray
        Part of each cell, (n_cells,) int64, with no part empty.
    """
    labels = np.zeros(len(weights), np.int64)
    pending = [(np.arange(len(weights)), 0, n_parts)]
    while pending:
        cells, first, n = pending.pop()
        if n == 1:
            labels[cells] = first
            continue
        n_left = n // 2
        cells = order(cells, n_left / n)
        cut = proportional_cut(weights[cells], n_left, n - n_left)
        pending.append((cells[:cut], first, n_left))
        pending.append((cells[cut:], first + n_left, n - n_left))
    return labels


def proportional_cut(weights: NDArray[np.float64], n_left: int, n_right: int) -> int:
    """Position that cuts ordered weights nearest to ``n_left : n_right``, a cell for each part.

    Parameters
    ----------
    weights
        Weights in order, (n,), with ``n >= n_left + n_right``.
    n_left, n_right
        Number of parts before and after the cut.

    Returns
    -------
    int
        Number of cells before the cut, from `n_left` to ``n - n_right``.
    """
    before = np.concatenate([[0.0], np.cumsum(weights)])
    cuts = np.arange(n_left, len(weights) - n_right + 1)
    target = before[-1] * n_left / (n_left + n_right)
    return int(cuts[np.argmin(np.abs(before[cuts] - target))])
