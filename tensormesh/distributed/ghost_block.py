"""The columns of ghosts in the rows of a rank, as a matrix of their own."""

import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern


class GhostBlock:
    """Owned x ghost entries of a row-sharded matrix, in the rows that have one.

    Parameters
    ----------
    pattern
        Pattern of the whole, sorted by row.
    n_owned
        Number of columns before those of ghosts.

    Attributes
    ----------
    rows
        Row of the whole of each row of the block, int64.
    pattern
        Pattern of the block.
    """

    def __init__(self, pattern: SparsityPattern, n_owned: int) -> None:
        crow, col = pattern.crow, pattern.csr_indices[1]
        self._entries = (col >= n_owned).nonzero().flatten()
        before = torch.searchsorted(self._entries, crow)
        self.rows = before.diff().nonzero().flatten()
        pointers = torch.cat([before[:1], before[1:][self.rows]])
        columns = col.index_select(0, self._entries).sub_(n_owned)
        shape = (len(self.rows), pattern.shape[1] - n_owned)
        self.pattern = SparsityPattern.of_compressed(pointers, columns, shape)

    def values(self, of_whole: Tensor) -> Tensor:
        """Entries of the block, from those of the whole ``[nnz]``."""
        return of_whole.detach().index_select(0, self._entries)
