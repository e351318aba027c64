"""`SparseMatrix`: torch-sla's sparse tensor with the identity and algebra that FEM needs."""

import warnings
from collections.abc import Sequence
from os import PathLike
from typing import Any, Self

import scipy.sparse as sp
import torch
from torch import Tensor
from torch_sla import SparseTensor

from tensormesh.sparse.construct import Constructors
from tensormesh.sparse.facts import Facts
from tensormesh.sparse.layout import _FEMSparsityMixin
from tensormesh.sparse.pattern import SparsityPattern, merge_duplicates
from tensormesh.sparse.pattern_tensor import PatternTensor
from tensormesh.sparse.product import csr_tensor, multiply
from tensormesh.sparse.solvers import Solvers


class SparseMatrix(Constructors, Facts, Solvers, _FEMSparsityMixin, PatternTensor):
    """Sparse matrix in coordinate form.

    Parameters
    ----------
    edata
        Values ``[nnz]``; duplicates are allowed and mean their sum.
    row, col
        Row and column of each value, integer ``[nnz]``.
    shape
        Number of rows and of columns.

    Raises
    ------
    ValueError
        If lengths differ or an index lies outside `shape`.
    TypeError
        If indices are not integers.

    Examples
    --------
    >>> import torch
    >>> from tensormesh.sparse import SparseMatrix
    >>> index = torch.arange(2)
    >>> SparseMatrix(torch.tensor([2.0, 4.0]), index, index, (2, 2)).solve(torch.ones(2))
    tensor([0.5000, 0.2500])
    """

    def __init__(self, edata: Tensor, row: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
        self._bind(SparsityPattern(row, col, shape), edata)

    @classmethod
    def from_pattern(cls, pattern: SparsityPattern, values: Tensor) -> Self:
        """Matrix with `values` ``[nnz]`` on a shared `pattern`."""
        matrix = cls.__new__(cls)
        matrix._bind(pattern, values)
        return matrix

    def _bind(self, pattern: SparsityPattern, values: Tensor) -> None:
        PatternTensor.__init__(self, pattern, values)

    def _with_values(self, values: Tensor) -> Self:
        return type(self).from_pattern(self.pattern, values)

    # -- data ------------------------------------------------------------------------------

    @property
    def values(self) -> Tensor:
        """Values ``[nnz]``; may be replaced by others of that shape."""
        return self._values

    @values.setter
    def values(self, values: Tensor) -> None:
        if values.shape != (self.pattern.nnz,):
            raise ValueError(
                f"edata has shape {tuple(values.shape)}; the pattern stores "
                f"[{self.pattern.nnz}] entries"
            )
        self._values = values

    @property
    def edata(self) -> Tensor:
        """Values ``[nnz]``."""
        return self.values

    @property
    def row(self) -> Tensor:
        """Row of each value, int64 ``[nnz]``."""
        return self.pattern.row

    @property
    def col(self) -> Tensor:
        """Column of each value, int64 ``[nnz]``."""
        return self.pattern.col

    @property
    def edges(self) -> Tensor:
        """Rows and columns, int64 ``[2, nnz]``."""
        return torch.stack([self.row, self.col])

    @property
    def layout_signature(self) -> tuple[tuple[int, int], int, str]:
        """Identity of the pattern by content: shape, number of entries, digest of the indices."""
        return self.pattern.signature

    @property
    def layout_hash(self) -> tuple[tuple[int, int], int, str]:
        """Old name of `layout_signature`."""
        warnings.warn(
            "layout_hash is called layout_signature now", DeprecationWarning, stacklevel=2
        )
        return self.layout_signature

    @property
    def grad(self) -> Self | None:
        """Gradient of the values on the same pattern; None before a backward."""
        found = self.values.grad
        return None if found is None else self._with_values(found)

    # -- conversion ------------------------------------------------------------------------

    def to_dense(self) -> Tensor:
        """Dense matrix, duplicates summed; differentiable."""
        dense = self.values.new_zeros(self.shape)
        return dense.index_put((self.row, self.col), self.values, accumulate=True)

    def to_scipy_coo(self) -> sp.coo_array:
        """Detached copy as a scipy coordinate array."""
        indices = (self.row.cpu().numpy(), self.col.cpu().numpy())
        return sp.coo_array((self.values.detach().cpu().numpy().copy(), indices), self.shape)

    def to_sparse_coo(self) -> Tensor:
        """Uncoalesced torch coordinate tensor; differentiable."""
        return torch.sparse_coo_tensor(
            self.edges,
            self.values,
            self.shape,
            device=self.values.device,
            is_coalesced=False,
            check_invariants=False,
        )

    def to_torch_sparse(self) -> Tensor:
        """Another name of `to_sparse_coo`."""
        return self.to_sparse_coo()

    def to_csr(self) -> Tensor:
        """Detached torch compressed-row tensor, duplicates summed."""
        A = self.coalesce()
        return csr_tensor(A.pattern, A.values)

    def to(self, device: Any = None, dtype: Any = None) -> Self:
        """Copy on another device or with another dtype, the arguments in either order."""
        if isinstance(device, torch.dtype):
            device, dtype = dtype, device
        values = self.values.to(device=device, dtype=dtype)
        return type(self).from_pattern(self.pattern.to(values.device), values)

    def detach(self) -> Self:
        """Matrix with the same values and no history."""
        return self._with_values(self.values.detach())

    def clone(self) -> Self:
        """Matrix with copied values on the same pattern."""
        return self._with_values(self.values.clone())

    def coalesce(self) -> Self:
        """Matrix with one entry per position, sorted by row then column; differentiable."""
        pattern, slot = merge_duplicates(self.row, self.col, self.shape)
        summed = self.values.new_zeros(pattern.nnz).index_add(0, slot, self.values)
        return type(self).from_pattern(pattern, summed)

    # -- algebra ---------------------------------------------------------------------------

    def __matmul__(self, other: Any) -> Any:
        """Product with a vector ``[n]``, columns ``[n, k]`` or a sparse matrix."""
        if isinstance(other, SparseTensor):
            product = SparseTensor.__matmul__(self, other)
            return SparseMatrix(
                product.values, product.row_indices, product.col_indices, product.shape
            )
        return multiply(self.pattern, self.values, other)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        """Product ``x A`` of a vector ``[m]`` or rows ``[k, m]`` with the matrix."""
        return multiply(self.pattern.transpose, self.values, other.t()).t()

    def __add__(self, other: Any) -> Self:
        """Sum; of matrices with different entries, on the union of both patterns."""
        if isinstance(other, SparseMatrix) and not self.has_same_layout(other):
            return self._stacked_with(other, other.values)
        return super().__add__(other)

    def __sub__(self, other: Any) -> Self:
        """Difference; of matrices with different entries, on the union of both patterns."""
        if isinstance(other, SparseMatrix) and not self.has_same_layout(other):
            return self._stacked_with(other, -other.values)
        return super().__sub__(other)

    def _stacked_with(self, other: "SparseMatrix", values: Tensor) -> Self:
        if self.shape != other.shape:
            raise ValueError(f"shapes {self.shape} and {other.shape} differ")
        row, col = torch.cat([self.row, other.row]), torch.cat([self.col, other.col])
        return type(self)(torch.cat([self.values, values]), row, col, self.shape).coalesce()

    @property
    def T(self) -> Self:
        """Transpose, sharing the values."""
        return type(self).from_pattern(self.pattern.transpose, self.values)

    def transpose(self) -> Self:
        """Transpose, sharing the values."""
        return self.T

    def diagonal(self) -> Tensor:
        """Diagonal ``[min(shape)]``; differentiable."""
        on = (self.row == self.col).nonzero().flatten()
        return self.values.new_zeros(min(self.shape)).index_add(0, self.row[on], self.values[on])

    # -- files -----------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | PathLike[str], device: torch.device | str = "cpu") -> Self:
        """Matrix from a file of `save`, which needs the package ``safetensors``."""
        found = SparseTensor.load(path, device)
        return cls(found.values, found.row_indices, found.col_indices, found.shape)

    # -- what a Condenser and newton ask of a matrix (the distributed matrix answers the same)

    def _own_dofs(self, **given: Tensor | None) -> list[Tensor | None]:
        """Data per unknown, by name, as this matrix's rows see them; None stays None."""
        return [None if x is None else self._own(x, name) for name, x in given.items()]

    def _own(self, x: Tensor, name: str) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if x.dim() == 0 or x.shape[0] != self.shape[0]:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}; the matrix has {self.shape[0]} unknowns"
            )
        return x.to(self.values.device)

    def _raise_if(self, error: Exception | None) -> None:
        """Raise `error`, if there is one, wherever this matrix lives."""
        if error is not None:
            raise error

    def _refuse_different(self, given: Sequence[str]) -> None:
        """Raise unless all ranks give the same: there is one."""

    def _vector_norm(self, x: Tensor) -> Tensor:
        """Euclidean norm of a vector of this matrix."""
        return torch.linalg.vector_norm(x)

    def _rows_without_entries(self) -> Tensor:
        """Bool per row: unknowns without an equation."""
        return self.pattern.empty_rows()

    def _column_values(self, x: Tensor) -> Tensor:
        """`x` per row, extended to all columns that rows of this matrix name."""
        return x

    def _restrict(self, keep: Tensor, entries: Tensor) -> "SerialRestriction":
        """How to make the submatrix on the unknowns `keep` (bool), which stores `entries`."""
        number = keep.cumsum(0) - 1
        n = int(keep.sum())
        row, col = number[self.row[entries]], number[self.col[entries]]
        return SerialRestriction(SparsityPattern(row, col, (n, n)))


class SerialRestriction:
    """Makes the submatrices of one restriction, which share a pattern."""

    def __init__(self, pattern: SparsityPattern) -> None:
        self.pattern = pattern

    def matrix(self, values: Tensor) -> SparseMatrix:
        """Submatrix with `values`."""
        return SparseMatrix.from_pattern(self.pattern, values)
