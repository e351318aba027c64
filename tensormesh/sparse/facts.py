"""Numbers about a sparse matrix: sums, norms, eigenvalues, symmetry.

All are of the matrix, not of what it happens to store: repeated entries count as their sum, and
what is not stored as zero.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from tensormesh.sparse.eigen import eigsh, has_positive_eigenvalues

if TYPE_CHECKING:
    from tensormesh.sparse.pattern import SparsityPattern

# Roundings that two entries which should be equal may be apart.
_SLACK = 100


class Facts:
    """What can be asked about a `SparseMatrix`."""

    if TYPE_CHECKING:
        pattern: SparsityPattern
        values: Tensor
        shape: tuple[int, int]

        to_dense: Callable[[], Tensor]
        coalesce: Callable[[], Self]

        @property
        def T(self) -> Self:
            """Transpose."""

        def __sub__(self, other: Self) -> Self: ...

    def degree(self, axis: int = 0) -> Tensor:
        """Number of stored entries of each row (`axis` 0) or each column (1), int64."""
        if axis not in (0, 1):
            raise ValueError(f"axis must be 0 or 1, got {axis}")
        index = self.pattern.row if axis == 0 else self.pattern.col
        return torch.bincount(index, minlength=self.shape[axis])

    @property
    def layout_mask(self) -> Tensor:
        """Dense ``[m, n]``: one where an entry is stored, else zero, in the matrix's dtype."""
        mask = self.values.new_zeros(self.shape)
        mask[self.pattern.row, self.pattern.col] = 1
        return mask

    def sum(self, axis: int | None = None) -> Tensor:
        """Sum of all entries, of each column (`axis` 0) or of each row (1); differentiable."""
        if axis is None:
            return self.values.sum()
        if axis not in (0, 1, -1, -2):
            raise ValueError(f"axis must be 0, 1 or None, got {axis}")
        rows = axis % 2 == 1
        index = self.pattern.row if rows else self.pattern.col
        return self.values.new_zeros(self.shape[0 if rows else 1]).index_add(0, index, self.values)

    def norm(self) -> Tensor:
        """Frobenius norm; differentiable."""
        return torch.linalg.vector_norm(self.coalesce().values)

    def max(self) -> Tensor:
        """Largest entry; differentiable where it is a stored one.

        Raises
        ------
        ValueError
            If the matrix has no entry, being ``[0, n]`` or ``[m, 0]``.
        TypeError
            If the matrix is complex.
        """
        if self.shape[0] * self.shape[1] == 0:
            raise ValueError(f"a matrix of shape {self.shape} has no largest entry")
        if self.values.is_complex():
            raise TypeError("complex numbers have no order; take abs(A).max()")
        stored = self.coalesce().values
        if stored.numel() < self.shape[0] * self.shape[1]:
            stored = torch.cat([stored, stored.new_zeros(1)])
        return stored.max()

    def det(self) -> Tensor:
        """Determinant, by a dense factorization: for small matrices; differentiable.

        Raises
        ------
        ValueError
            If the matrix is not square.
        """
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"det needs a square matrix, got shape {self.shape}")
        return torch.linalg.det(self.to_dense())

    def eigsh(self, k: int = 6, which: str = "LM") -> tuple[Tensor, Tensor]:
        """Some eigenvalues and eigenvectors of a symmetric (Hermitian) matrix.

        Parameters
        ----------
        k
            How many.
        which
            ``"LM"``, ``"SM"``: largest or smallest by magnitude; ``"LA"``, ``"SA"``: by value.

        Returns
        -------
        values, vectors
            ``[k]`` in ascending order, with a first derivative, and ``[n, k]``, without one.

        Raises
        ------
        ValueError
            If the matrix is not symmetric, or `k` or `which` is out of range.
        """
        if which not in ("LM", "SM", "LA", "SA"):
            raise ValueError(f"which must be one of LM, SM, LA, SA, got {which!r}")
        if not bool(self.is_symmetric(hermitian=True)):
            raise ValueError("eigsh needs a symmetric (complex: Hermitian) matrix")
        A = self.coalesce()
        return eigsh(A.pattern, A.values, k, which)

    def is_symmetric(self, hermitian: bool = False) -> Tensor:
        """Whether ``A`` equals its transpose (its conjugate transpose) to rounding: 0-d bool."""
        if self.shape[0] != self.shape[1]:
            return torch.tensor(False)
        flipped = self.T
        if hermitian and self.values.is_complex():
            flipped = flipped._with_values(self.values.conj())  # type: ignore[attr-defined]
        difference = (self - flipped).coalesce().values.detach().abs()
        if not difference.numel():
            return torch.tensor(True)
        inexact = self.values.is_floating_point() or self.values.is_complex()
        eps = torch.finfo(self.values.dtype).eps if inexact else 0
        scale = self.coalesce().values.detach().abs().max()
        return difference.max() <= _SLACK * eps * scale

    def is_positive_definite(self) -> Tensor:
        """Whether ``A`` is symmetric (Hermitian) with positive eigenvalues only: 0-d bool."""
        if not bool(self.is_symmetric(hermitian=True)):
            return torch.tensor(False)
        A = self.coalesce()
        return torch.tensor(has_positive_eigenvalues(A.pattern, A.values))
