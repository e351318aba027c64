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


class Shares:
    """How much of which entries of ``K`` the sums that make ``T^T K T`` take.

    Parameters
    ----------
    entry
        Entry of ``K`` that each contribution takes a share of, int64 ``[k]``.
    weight
        The shares, ``[k]``.
    """

    def __init__(self, entry: Tensor, weight: Tensor) -> None:
        self._entry, self._weight = entry, weight

    def sums(self, values: Tensor, slot: Tensor, n: int) -> Tensor:
        """Sums of what `values` ``[nnz]`` give, at `slot` ``[k]`` of ``n``; differentiable."""
        terms = self._weight.to(values.dtype) * values[self._entry]
        return values.new_zeros(n).index_add(0, slot, terms)


def triple_product(row: Tensor, col: Tensor, T: Any) -> tuple[Shares, Tensor, Tensor]:
    """Entries of ``T^T K T``: those of ``K`` go to all pairs of masters of their row and column.

    Parameters
    ----------
    row, col
        Of the entries of ``K``, int64 ``[nnz]``.
    T
        Compressed rows of scipy, one for each row and column of ``K``.

    Returns
    -------
    shares, row, col
        What each contribution is, and the entry of the product that it goes to, int64 ``[k]``.
    """
    device = row.device
    first = torch.from_numpy(T.indptr.astype(np.int64)).to(device)
    masters = torch.from_numpy(T.indices.astype(np.int64)).to(device)
    weights = torch.from_numpy(T.data).to(device)
    counts = first.diff()
    of_col = counts[col]
    of_entry = counts[row] * of_col
    entry = torch.repeat_interleave(of_entry)
    place = torch.arange(entry.numel(), device=device)
    place -= (of_entry.cumsum(0) - of_entry)[entry]
    of_col = of_col[entry]
    left = first[row[entry]] + torch.div(place, of_col, rounding_mode="floor")
    right = first[col[entry]] + place % of_col
    return Shares(entry, weights[left] * weights[right]), masters[left], masters[right]
