"""The rows of a rank in two blocks, by columns that it owns and columns of ghosts."""

import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import csr_tensor


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
        # One array of the length of all entries at a time: this is the peak of a small solve.
        chosen = (col >= first) & (col < last)
        crow = _numbered(chosen, col.dtype).index_select(0, crow)
        if only_filled:
            self.rows = crow.diff().nonzero().flatten()
            crow = torch.cat([crow[:1], crow[1:][self.rows]])
        self._entries = chosen.nonzero().flatten().to(col.dtype)
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
        return values.detach() if self._entries is None else values.detach()[self._entries]


def _numbered(chosen: Tensor, dtype: torch.dtype) -> Tensor:
    """How many are chosen before each place, and in all: ``[n + 1]``."""
    before = torch.zeros(len(chosen) + 1, dtype=dtype, device=chosen.device)
    torch.cumsum(chosen, 0, dtype=dtype, out=before[1:])
    return before
