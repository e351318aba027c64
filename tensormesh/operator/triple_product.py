"""Products with constant rows: of vectors ``T x`` and ``T^T y``, of matrices ``T^T K T``."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import multiply


class Rows:
    """Constant rows of scipy as a factor of vectors; products keep the dtype of these.

    Parameters
    ----------
    matrix
        Compressed rows.
    device
        Where the vectors are.
    """

    def __init__(self, matrix: Any, device: torch.device) -> None:
        matrix = matrix.tocoo()
        row, col = (
            torch.from_numpy(i.astype(np.int64)).to(device) for i in (matrix.row, matrix.col)
        )
        self._pattern = SparsityPattern(row, col, matrix.shape)
        self._values = torch.from_numpy(matrix.data).to(device)

    def __matmul__(self, x: Tensor) -> Tensor:
        """Product with ``[n_cols]`` or ``[n_cols, k]``; differentiable."""
        return multiply(self._pattern, self._values.to(x.dtype), x)

    def adjoint(self, y: Tensor) -> Tensor:
        """Product of the transpose with ``[n_rows]`` or ``[n_rows, k]``; differentiable."""
        return multiply(self._pattern.transpose, self._values.to(y.dtype), y)


class TripleProduct:
    """Which entries of ``T^T K T`` get how much of which entries of ``K``.

    Each entry of ``K`` goes to all pairs of masters of its row and its column.

    Parameters
    ----------
    row, col
        Of the entries of ``K``, int64 ``[nnz]``.
    T
        Compressed rows of scipy, one for each row and column of ``K``.

    Attributes
    ----------
    row, col
        Entry of the product that each contribution goes to, int64 ``[k]``.
    """

    def __init__(self, row: Tensor, col: Tensor, T: Any) -> None:
        device = row.device
        first = torch.from_numpy(T.indptr.astype(np.int64)).to(device)
        masters = torch.from_numpy(T.indices.astype(np.int64)).to(device)
        weights = torch.from_numpy(T.data).to(device)
        counts = first.diff()
        of_col = counts[col]
        of_entry = counts[row] * of_col
        self._entry = torch.repeat_interleave(of_entry)
        place = torch.arange(self._entry.numel(), device=device)
        place -= (of_entry.cumsum(0) - of_entry)[self._entry]
        of_col = of_col[self._entry]
        left = first[row[self._entry]] + torch.div(place, of_col, rounding_mode="floor")
        right = first[col[self._entry]] + place % of_col
        self._weight = weights[left] * weights[right]
        self.row, self.col = masters[left], masters[right]

    def sums(self, values: Tensor, slot: Tensor, n: int) -> Tensor:
        """Sums of what `values` ``[nnz]`` give, at `slot` ``[k]`` of ``n``; differentiable."""
        terms = self._weight.to(values.dtype) * values[self._entry]
        return values.new_zeros(n).index_add(0, slot, terms)
