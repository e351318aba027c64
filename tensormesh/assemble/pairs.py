"""The pairs of nodes that share a cell: the pattern of a matrix, and where each cell adds to it.

The pattern is symmetric, so only the pairs of different nodes, smaller one first, are sorted: six
of the sixteen entries of a tetrahedron. Both entries of a pair and the diagonal follow by counting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.pattern import INT32_MAX, SparsityPattern


def node_pairs(columns: Sequence[Tensor], n_points: int) -> tuple[SparsityPattern, list[Tensor]]:
    """Pattern of the node pairs of cells, and the stored entry of each pair of each cell.

    Parameters
    ----------
    columns
        For each cell type, the nodes of its cells, int64 ``[B, E]``.
    n_points
        Number of nodes.

    Returns
    -------
    pattern, slots
        Sorted by row, then column; for each cell type ``[B * B, E]``, int32 where it fits: entry
        of (test node, trial node).
    """
    pairs = _distinct_pairs(columns, n_points)
    places = _Places(pairs, columns, n_points)
    found, start = [], 0
    for nodes in columns:
        n_pairs = nodes.shape[0] * (nodes.shape[0] - 1) // 2 * nodes.shape[1]
        found.append(places.slots(nodes, pairs.number[start : start + n_pairs]))
        start += n_pairs
    return places.pattern(), found


@dataclass(frozen=True)
class _Pairs:
    """Distinct pairs ``low < high``, sorted, and the number of each pair of each cell."""

    low: Tensor
    high: Tensor
    number: Tensor


def _distinct_pairs(columns: Sequence[Tensor], n_points: int) -> _Pairs:
    lows, highs = [], []
    for nodes in columns:
        for i, j in combinations(range(nodes.shape[0]), 2):
            lows.append(torch.minimum(nodes[i], nodes[j]))
            highs.append(torch.maximum(nodes[i], nodes[j]))
    if not lows:
        none = columns[0].new_zeros(0)
        return _Pairs(none, none, none)
    node_bits = max(n_points - 1, 1).bit_length()
    key = (torch.cat(lows) << node_bits) | torch.cat(highs)
    distinct, number = _group(key, 2 * node_bits)
    high = distinct & ((1 << node_bits) - 1)
    return _Pairs(distinct >> node_bits, high, number)


def _group(key: Tensor, key_bits: int) -> tuple[Tensor, Tensor]:
    """Sorted distinct keys, and the place of each key among them."""
    place_bits = max(key.numel() - 1, 1).bit_length()
    if key.device.type != "cpu" or key_bits + place_bits > 63:
        return torch.unique(key, return_inverse=True)
    # Keys carry their place in the low bits, so that a plain sort, which vectorises, orders both.
    packed = ((key << place_bits) | torch.arange(key.numel())).numpy()
    packed.sort()
    ordered = packed >> place_bits
    first = np.empty(len(ordered), dtype=bool)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    number = np.empty(len(ordered), dtype=np.int32 if len(ordered) <= INT32_MAX else np.int64)
    number[packed & ((1 << place_bits) - 1)] = np.cumsum(first, dtype=number.dtype) - 1
    return torch.from_numpy(ordered[first]), torch.from_numpy(number)


class _Places:
    """Stored entries of the pairs and of the diagonal: in a row, lower columns come first."""

    def __init__(self, pairs: _Pairs, columns: Sequence[Tensor], n_points: int) -> None:
        self._pairs = pairs
        self._n_points = n_points
        used = torch.zeros(n_points, dtype=torch.bool, device=pairs.low.device)
        for nodes in columns:
            used[nodes] = True
        self._used = used.nonzero().flatten()
        above = torch.bincount(pairs.low, minlength=n_points)
        below = torch.bincount(pairs.high, minlength=n_points)
        total = above + below + used
        start = total.cumsum(0) - total
        self._nnz = int(total.sum())
        dtype = torch.int32 if self._nnz <= INT32_MAX else torch.int64
        in_order = torch.arange(pairs.low.numel(), device=pairs.low.device)
        by_high = torch.argsort(pairs.high, stable=True)
        self._diagonal = (start + below).to(dtype)
        first_above = above.cumsum(0) - above
        shift = start + below + used - first_above
        self._upper = (shift[pairs.low] + in_order).to(dtype)
        first_below = below.cumsum(0) - below
        self._lower = torch.empty_like(self._upper)
        ordered = pairs.high[by_high]
        self._lower[by_high] = (start[ordered] + in_order - first_below[ordered]).to(dtype)

    def pattern(self) -> SparsityPattern:
        """The pattern of both entries of the pairs and the diagonal."""
        row = torch.empty(self._nnz, dtype=torch.int64, device=self._upper.device)
        col = torch.empty_like(row)
        low, high = self._pairs.low, self._pairs.high
        entries = ((self._upper, low, high), (self._lower, high, low))
        for place, of_row, of_col in entries:
            row[place.long()], col[place.long()] = of_row, of_col
        diagonal = self._diagonal[self._used].long()
        row[diagonal] = col[diagonal] = self._used
        return SparsityPattern(row, col, (self._n_points, self._n_points))

    def slots(self, nodes: Tensor, number: Tensor) -> Tensor:
        """Stored entries ``[B * B, E]`` of cells whose pairs have these numbers."""
        n_basis, n_cells = nodes.shape
        slots = torch.empty(n_basis, n_basis, n_cells, dtype=self._upper.dtype, device=nodes.device)
        for i in range(n_basis):
            slots[i, i] = self._diagonal[nodes[i]]
        pairs = number.view(-1, n_cells)
        for pair, (i, j) in zip(pairs, combinations(range(n_basis), 2), strict=True):
            upper, lower = self._upper[pair], self._lower[pair]
            ascending = nodes[i] < nodes[j]
            slots[i, j] = torch.where(ascending, upper, lower)
            slots[j, i] = torch.where(ascending, lower, upper)
        return slots.flatten(0, 1)
