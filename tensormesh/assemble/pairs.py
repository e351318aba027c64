"""The pairs of nodes that share a cell: the pattern of a matrix, and where each cell adds to it.

The pattern is the product of the cell-node incidence with its transpose. A cell finds its entries
by bisection in the short, sorted rows: that of a pair of nodes, and by the symmetry of the pattern
that of the reversed pair. Sorting all pairs of all cells instead takes several times as long.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from tensormesh.sparse.pattern import (
    INT32_MAX,
    SparsityPattern,
    entries_at,
    numbered,
    pattern_of,
)

Indices = NDArray[Any]


def node_pairs(cells: Sequence[Tensor], n_points: int) -> tuple[SparsityPattern, list[Tensor]]:
    """Pattern of the node pairs of cells, and the stored entry of each pair of each cell.

    Worked out on the host, whatever the device of the cells.

    Parameters
    ----------
    cells
        For each cell type, the nodes of its cells, int32 or int64 ``[E, B]``.
    n_points
        Number of nodes.

    Returns
    -------
    pattern, slots
        Sorted by row, then column; for each cell type ``[B * B, E]``, int32 where it fits: entry
        of (test node, trial node).
    """
    device = cells[0].device
    on_host = [nodes.cpu().numpy() for nodes in cells]
    entries, mirrored = _numbered(_incidence(on_host, n_points))
    slots = [_slots(entries, mirrored, np.ascontiguousarray(c.T)).to(device) for c in on_host]
    return pattern_of(entries, device), slots


def _incidence(cells: Sequence[Indices], n_points: int) -> csr_array:
    """Which node is in which cell, ``[n_cells, n_points]``."""
    nodes = np.concatenate([c.reshape(-1) for c in cells])
    sizes = np.concatenate([np.full(len(c), c.shape[1]) for c in cells])
    start = np.zeros(len(sizes) + 1, nodes.dtype if len(nodes) <= INT32_MAX else np.int64)
    np.cumsum(sizes, out=start[1:])
    ones = np.ones(len(nodes), dtype=bool)
    return csr_array((ones, nodes, start), shape=(len(sizes), n_points))


def _numbered(incidence: csr_array) -> tuple[csr_array, Indices]:
    """The pattern with the number of each entry as its value, and that of the transposed entry."""
    pattern = incidence.T.tocsr() @ incidence
    # Rows of a transpose are sorted, and it has the same pattern.
    entries = numbered(pattern.T.tocsr())
    return entries, entries.T.tocsr().data


def _slots(entries: csr_array, mirrored: Indices, nodes: Indices) -> Tensor:
    """Stored entries ``[B * B, E]`` of cells with these nodes ``[B, E]``."""
    n_basis, n_cells = nodes.shape
    found = np.empty((n_basis, n_basis, n_cells), dtype=mirrored.dtype)
    diagonal = entries.diagonal()
    for i in range(n_basis):
        found[i, i] = diagonal[nodes[i]]
    for i, j in _groups_of_pairs(n_basis, n_cells, entries.nnz):
        upper = entries_at(entries, nodes[i].reshape(-1), nodes[j].reshape(-1))
        found[i, j] = upper.reshape(len(i), n_cells)
        found[j, i] = mirrored[upper].reshape(len(i), n_cells)
    return torch.from_numpy(found.reshape(-1, n_cells))


def _groups_of_pairs(n_basis: int, n_cells: int, nnz: int) -> Iterator[tuple[Any, Any]]:
    """Pairs ``i < j``, as many at once as look up about twice as many entries as there are."""
    pairs = np.array(list(combinations(range(n_basis), 2)), dtype=np.int64).reshape(-1, 2)
    size = max(1, 2 * nnz // max(n_cells, 1))
    for start in range(0, len(pairs), size):
        yield tuple(pairs[start : start + size].T)
