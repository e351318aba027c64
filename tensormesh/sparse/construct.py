"""Ways to make a sparse matrix: from other forms, from blocks, of constants, at random."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from tensormesh.arguments import check_integer, check_number
from tensormesh.sparse.combine import Entry, block_entries, block_grid

Device = torch.device | str


def expand_block_indices(row: Tensor, col: Tensor, h: int) -> tuple[Tensor, Tensor]:
    """Scalar positions of ``h x h`` blocks, block by block, row-major inside.

    Parameters
    ----------
    row, col
        Block row and block column of each block, int64 ``[k]``.
    h
        Size of a block.

    Returns
    -------
    row, col
        int64 ``[k * h * h]``: component ``a`` of block row ``r`` is scalar row ``r * h + a``.
    """
    if h < 1:
        raise ValueError(f"h must be at least 1, got {h}")
    a = torch.arange(h, device=row.device)
    rows = (row.view(-1, 1, 1) * h + a.view(1, h, 1)).expand(-1, h, h)
    cols = (col.view(-1, 1, 1) * h + a.view(1, 1, h)).expand(-1, h, h)
    return rows.reshape(-1), cols.reshape(-1)


class Constructors:
    """Constructors of `SparseMatrix` beside the one from values and indices."""

    if TYPE_CHECKING:

        def __init__(self, edata: Tensor, row: Tensor, col: Tensor, shape: Any) -> None: ...

    expand_block_indices = staticmethod(expand_block_indices)

    # -- from other forms ------------------------------------------------------------------

    @classmethod
    def from_block_coo(
        cls, blocks: Tensor, row: Tensor, col: Tensor, shape: tuple[int, int]
    ) -> Self:
        """Matrix of square blocks.

        Parameters
        ----------
        blocks
            ``[k, h, h]``.
        row, col
            Block row and block column of each, int64 ``[k]``.
        shape
            Number of block rows and of block columns, ``(R, C)``.

        Returns
        -------
        SparseMatrix
            ``[R * h, C * h]``, entries block by block; differentiable in `blocks`.

        Raises
        ------
        ValueError
            If the blocks are not square, or lengths differ.
        """
        if blocks.dim() != 3 or blocks.shape[1] != blocks.shape[2]:
            raise ValueError(f"blocks must have shape [k, h, h], got {tuple(blocks.shape)}")
        h = blocks.shape[1]
        rows, cols = expand_block_indices(row, col, h)
        return cls(blocks.reshape(-1), rows, cols, (shape[0] * h, shape[1] * h))

    @classmethod
    def from_dense(cls, A: Tensor) -> Self:
        """Matrix of the entries of a dense ``[m, n]`` tensor that are not zero; differentiable."""
        if A.dim() != 2:
            raise ValueError(f"A must be 2-D, got shape {tuple(A.shape)}")
        row, col = A.detach().nonzero().t()
        return cls(A[row, col], row, col, tuple(A.shape))

    @classmethod
    def from_sparse_coo(cls, A: Tensor) -> Self:
        """Matrix of a torch coordinate tensor, coalesced; differentiable."""
        A = A.coalesce()
        row, col = A.indices()
        return cls(A.values(), row, col, tuple(A.shape))

    @classmethod
    def from_torch_sparse(cls, A: Tensor) -> Self:
        """Matrix of a torch sparse tensor of any layout, coalesced; differentiable."""
        return cls.from_sparse_coo(A.to_sparse_coo())

    @classmethod
    def from_scipy_coo(
        cls, coo: Any, device: Device = "cpu", dtype: torch.dtype | None = None
    ) -> Self:
        """Copy of a scipy matrix or array, with its entries as they are stored.

        Parameters
        ----------
        coo
            scipy sparse matrix or array; converted to coordinate form.
        device
            Where to put it.
        dtype
            By default that of `coo`: nothing is rounded unless asked for.
        """
        coo = coo.tocoo()
        values = torch.from_numpy(coo.data.copy()).to(device, dtype)
        row, col = (
            torch.from_numpy(np.asarray(i, dtype=np.int64)).to(device) for i in (coo.row, coo.col)
        )
        return cls(values, row, col, coo.shape)

    # -- constants and random numbers ------------------------------------------------------

    @classmethod
    def eye(
        cls,
        n: int,
        value: float = 1.0,
        device: Device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """`value` on the diagonal of an ``[n, n]`` matrix."""
        check_integer("n", n, 0)
        index = torch.arange(n, device=device)
        return cls(torch.full((n,), value, device=device, dtype=dtype), index, index, (n, n))

    @classmethod
    def full(
        cls,
        m: int,
        n: int,
        value: float = 1.0,
        device: Device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """``[m, n]`` matrix that stores `value` everywhere."""
        check_integer("m", m, 0)
        check_integer("n", n, 0)
        row = torch.arange(m, device=device).repeat_interleave(n)
        col = torch.arange(n, device=device).repeat(m)
        return cls(torch.full((m * n,), value, device=device, dtype=dtype), row, col, (m, n))

    @staticmethod
    def random_layout(
        m: int, n: int, density: float = 0.1, device: Device = "cpu"
    ) -> tuple[Tensor, Tensor, tuple[int, int]]:
        """Distinct random positions, sorted by row: what the constructor takes after the values.

        Raises
        ------
        ValueError
            If `density` does not lie between 0 and 1, or a size is negative.
        TypeError
            If it is no number, or a size no integer.
        """
        check_integer("m", m, 0)
        check_integer("n", n, 0)
        check_number("density", density)
        if not 0 <= density <= 1:
            raise ValueError(f"density must lie between 0 and 1, got {density}")
        picks = _distinct(m * n, round(density * m * n), device).sort().values
        return picks // max(n, 1), picks % max(n, 1), (m, n)

    @classmethod
    def random_from_layout(
        cls,
        row: Tensor,
        col: Tensor,
        shape: tuple[int, int],
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Matrix with values drawn evenly from 0 to 1 at given positions."""
        return cls(torch.rand(row.shape, device=row.device, dtype=dtype), row, col, shape)

    @classmethod
    def random(
        cls,
        m: int,
        n: int,
        density: float = 0.1,
        device: Device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Matrix with random values at a share `density` of its positions."""
        return cls.random_from_layout(*cls.random_layout(m, n, density, device), dtype=dtype)

    # -- out of others ---------------------------------------------------------------------

    @classmethod
    def combine(cls, parts: Sequence[Any]) -> Self:
        """Matrix of matrices: a list stacks rows, a list of lists makes blocks.

        Parameters
        ----------
        parts
            ``[A, B]``, or ``[[A, None], [1.0, B]]``, where None is a block of zeros (nothing
            stored) and a number fills its block.

        Returns
        -------
        SparseMatrix
            Entries block by block; differentiable in those of the parts.

        Raises
        ------
        ValueError
            If sizes do not fit, or a block row or block column has no matrix that gives its size.
        """
        if parts and all(isinstance(row, list | tuple) for row in parts):
            return cls.combine_matrix(parts)
        return cls.combine_vector(parts)

    @classmethod
    def combine_vector(cls, parts: Sequence[Entry], axis: int = 0) -> Self:
        """Matrices one below the other (`axis` 0) or side by side (1)."""
        if axis not in (0, 1):
            raise ValueError(f"axis must be 0 or 1, got {axis}")
        return cls.combine_matrix([[p] for p in parts] if axis == 0 else [list(parts)])

    @classmethod
    def combine_matrix(cls, parts: Sequence[Sequence[Entry]]) -> Self:
        """Matrix of blocks; see `combine`."""
        return cls(*block_entries(block_grid(parts)))


def _distinct(total: int, k: int, device: Device) -> Tensor:
    """`k` different numbers below `total`, without a list of all where few are wanted."""
    if 3 * k >= total:
        return torch.randperm(total, device=device)[:k]
    found = torch.empty(0, dtype=torch.int64, device=device)
    while found.numel() < k:
        more = torch.randint(total, (k - found.numel(),), device=device)
        found = torch.cat([found, more]).unique()
    return found
