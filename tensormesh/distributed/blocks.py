"""The rows of a rank in two blocks, by columns that it owns and columns of ghosts."""

import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import csr_tensor


class Block:
    """Some entries of a row-sharded matrix as a matrix of their own, in compressed rows.

    Parameters
    ----------
    pattern
        Pattern of the whole, sorted by row.
    chosen
        Bool per entry, those of the block; None for all.
    n_cols, shift
        Number of columns, and that of the first.
    only_filled
        Whether the block has just the rows that have an entry.

    Attributes
    ----------
    rows
        Row of the whole of each row of the block, int64; of no length if it has all.
    """

    def __init__(
        self,
        pattern: SparsityPattern,
        chosen: Tensor | None,
        n_cols: int,
        shift: int = 0,
        only_filled: bool = False,
    ) -> None:
        self.rows = pattern.row[:0]
        self._entries: Tensor | None = None
        if chosen is None:
            self._indices, self._shape = pattern.csr_indices, pattern.shape
            return
        kind = pattern.index_dtype
        counts = torch.bincount(pattern.row[chosen], minlength=pattern.shape[0])
        if only_filled:
            self.rows = counts.nonzero().flatten()
            counts = counts[self.rows]
        crow = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(kind)
        self._entries = chosen.nonzero().flatten().to(kind)
        self._indices = crow, (pattern.col[chosen] - shift).to(kind)
        self._shape = (len(counts), n_cols)

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
