"""Random sparse matrices and dense ones to compare with."""

import torch
from hypothesis import strategies as st
from torch import Tensor

from tensormesh.sparse import SparseMatrix

_SIZES = st.integers(1, 6)


@st.composite
def matrices(draw, n_rows=_SIZES, n_cols=_SIZES, dtype=torch.float64):
    """Matrices with entries in any order, repeated ones and empty rows."""
    shape = draw(n_rows), draw(n_cols)
    n = draw(st.integers(0, 12))
    row = draw(st.lists(st.integers(0, shape[0] - 1), min_size=n, max_size=n))
    col = draw(st.lists(st.integers(0, shape[1] - 1), min_size=n, max_size=n))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    values = torch.randn(n, dtype=dtype, generator=generator)
    return SparseMatrix(values, torch.tensor(row).long(), torch.tensor(col).long(), shape)


def dense(A: SparseMatrix) -> Tensor:
    """Dense copy by a loop over the entries."""
    out = torch.zeros(A.shape, dtype=A.dtype)
    for value, i, j in zip(A.values.detach(), A.row, A.col, strict=True):
        out[i, j] += value
    return out


def regular(n: int = 12, dtype: torch.dtype = torch.float64, seed: int = 0) -> SparseMatrix:
    """Well-conditioned, not symmetric, a third full, entries not in order."""
    g = torch.Generator().manual_seed(seed)
    full = torch.randn(n, n, dtype=dtype, generator=g)
    full = full * (torch.rand(n, n, generator=g) < 0.3) + 4 * torch.eye(n)
    row, col = full.nonzero().T
    order = torch.randperm(len(row), generator=g)
    row, col = row[order], col[order]
    return SparseMatrix(full[row, col], row, col, (n, n))
