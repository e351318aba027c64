"""The rows of a rank in two blocks, by columns that it owns and columns of ghosts."""

import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import csr_tensor

# All entries at once, as int64, would be as much memory as the values.
_AT_ONCE = 1 << 18


class Block:
    """Some columns of a row-sharded matrix as a matrix of their own, in compressed rows.

    Parameters
    ----------
    pattern
        Pattern of the whole, sorted by row.
    first, last
        The columns of the block are ``first .. last - 1``.
    only_filled
        Whether the block has just the rows that have an entry.

    Attributes
    ----------
    rows
        Row of the whole of each row of the block, int64; of no length if it has all.
    """

    def __init__(
        self, pattern: SparsityPattern, first: int, last: int, only_filled: bool = False
    ) -> None:
        crow, col = pattern.csr_indices
        self.rows = pattern.crow[:0]
        self._entries: Tensor | None = None
        self._indices, self._shape = (crow, col), pattern.shape
        if (first, last) == (0, pattern.shape[1]):
            return
        self._entries = _entries_between(col, first, last)
        crow = torch.searchsorted(self._entries, crow, out_int32=crow.dtype == torch.int32)
        if only_filled:
            self.rows = crow.diff().nonzero().flatten()
            crow = torch.cat([crow[:1], crow[1:][self.rows]])
        self._indices = crow, col.index_select(0, self._entries).sub_(first)
        self._shape = (len(crow) - 1, last - first)

    def matrix(self, values: Tensor) -> Tensor:
        """Compressed-row tensor of the block, from the entries of the whole ``[nnz]``."""
        return torch.sparse_csr_tensor(
            *self._indices,
            self._picked(values),
            self._shape,
            device=values.device,
            check_invariants=False,
        )

    def transposed(self, values: Tensor) -> Tensor:
        """Compressed-row tensor of the transpose of the block."""
        crow, col = (index.to(torch.int64) for index in self._indices)
        row = torch.arange(len(crow) - 1, device=crow.device).repeat_interleave(crow.diff())
        flipped = SparsityPattern(col, row, self._shape[::-1])
        return csr_tensor(flipped, self._picked(values))

    def _picked(self, values: Tensor) -> Tensor:
        values = values.detach()
        return values if self._entries is None else values.index_select(0, self._entries)


def _entries_between(col: Tensor, first: int, last: int) -> Tensor:
    """Entries with columns ``first .. last - 1``, in the dtype of `col`; some at a time."""
    chosen = (col >= first) & (col < last)
    entries = col.new_empty(int(chosen.count_nonzero()))
    n_found = 0
    for k, some in enumerate(chosen.split(_AT_ONCE)):
        found = some.nonzero().flatten().add_(k * _AT_ONCE)
        entries[n_found : n_found + len(found)] = found
        n_found += len(found)
    return entries
