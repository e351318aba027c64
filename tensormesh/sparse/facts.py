"""Numbers about a sparse matrix: sums, norms, eigenvalues, symmetry.

All are of the matrix, not of what it happens to store: repeated entries count as their sum, and
what is not stored as zero.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor
from torch_sla import SparseTensor

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

        def _with_values(self, values: Tensor) -> Self: ...

        def __abs__(self) -> Self: ...

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

    def sum(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        """Sum of all entries, of each column (`axis` 0) or of each row (1); differentiable."""
        if axis is None:
            return self.values.sum()
        rows = _checked_axis(axis) == 1
        index = self.pattern.row if rows else self.pattern.col
        total = self.values.new_zeros(self.shape[0 if rows else 1])
        total = total.index_add(0, index, self.values)
        return total.unsqueeze(1 if rows else 0) if keepdim else total

    def norm(self, ord: Literal["fro", 1, 2] = "fro") -> Tensor:
        """Frobenius norm, largest column sum (1) or largest singular value (2).

        The first two are differentiable.
        """
        if ord == "fro":
            return torch.linalg.vector_norm(self.coalesce().values)
        if ord == 1:
            return abs(self.coalesce()).sum(0).max()
        return SparseTensor.norm(self._plain(), ord)

    def max(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        """Largest entry of all, of each column (`axis` 0) or of each row (1).

        Differentiable; by rows or columns through a dense matrix.

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
        if axis is not None:
            return self.to_dense().amax(_checked_axis(axis), keepdim=keepdim)
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

    def condition_number(self, ord: Any = 2) -> Tensor:
        """``|A| |A^-1|`` in a norm of `torch.linalg.cond`.

        By extreme eigenvalues where the matrix is Hermitian and `ord` is 2, else dense.
        """
        if ord == 2 and bool(self.is_hermitian()):
            largest, smallest = (self.eigsh(1, which)[0].abs() for which in ("LM", "SM"))
            return (largest / smallest)[0]
        return torch.linalg.cond(self.to_dense(), ord)

    def eigsh(
        self,
        k: int = 6,
        which: str = "LM",
        sigma: float | None = None,
        return_eigenvectors: bool = True,
        *,
        M: "Facts | None" = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Some eigenvalues and eigenvectors of a symmetric (Hermitian) matrix.

        With `M`, those of ``A x = lambda M x``.

        Parameters
        ----------
        k
            How many.
        which
            ``"LM"``, ``"SM"``: largest or smallest by magnitude; ``"LA"``, ``"SA"``: by value.
        sigma
            Find those nearest to this number instead.
        return_eigenvectors
            Whether to return them; None in their place otherwise.
        M
            Positive definite matrix of the same shape; None for the identity.

        Returns
        -------
        values, vectors
            ``[k]`` in ascending order, with a first derivative in both matrices, and ``[n, k]``,
            orthonormal in `M`, without one.

        Raises
        ------
        ValueError
            If a matrix is not symmetric, `M` has another shape, or `k` or `which` is out of range.
        TypeError
            If `M` is no such matrix.
        """
        if which not in ("LM", "SM", "LA", "SA") or (sigma is not None and which != "LM"):
            raise ValueError(
                f"which must be one of LM, SM, LA, SA, and LM beside sigma, got {which!r}"
            )
        if not bool(self.is_hermitian()):
            raise ValueError("eigsh needs a symmetric (complex: Hermitian) matrix")
        if M is not None:
            _check_mass(self, M)
        A, B = self.coalesce(), None if M is None else M.coalesce()
        mass = None if B is None else (B.pattern, B.values)
        values, vectors = eigsh(A.pattern, A.values, k, which, sigma, mass)
        return values, vectors if return_eigenvectors else None

    def is_symmetric(self, atol: float = 0.0, rtol: float | None = None) -> Tensor:
        """Whether ``|A - A^T| <= max(atol, rtol |A|)`` in the largest entry: 0-d bool.

        Parameters
        ----------
        atol, rtol
            Tolerances; by default, some roundings.
        """
        return self._equals(self.values, atol, rtol)

    def is_hermitian(self, atol: float = 0.0, rtol: float | None = None) -> Tensor:
        """Whether ``A`` equals its conjugate transpose; see `is_symmetric`."""
        return self._equals(self.values.conj(), atol, rtol)

    def _equals(self, of_transpose: Tensor, atol: float, rtol: float | None) -> Tensor:
        device = self.values.device
        if self.shape[0] != self.shape[1]:
            return torch.tensor(False, device=device)
        flipped = self.T._with_values(of_transpose)
        difference = (self - flipped).coalesce().values.detach().abs()
        if not difference.numel():
            return torch.tensor(True, device=device)
        if rtol is None:
            inexact = self.values.is_floating_point() or self.values.is_complex()
            rtol = _SLACK * torch.finfo(self.values.dtype).eps if inexact else 0.0
        scale = self.coalesce().values.detach().abs().max()
        return difference.max() <= (rtol * scale).clamp_min(atol)

    def is_positive_definite(self) -> Tensor:
        """Whether ``A`` is symmetric (Hermitian) with positive eigenvalues only: 0-d bool."""
        if not bool(self.is_hermitian()):
            return torch.tensor(False, device=self.values.device)
        A = self.coalesce()
        found = has_positive_eigenvalues(A.pattern, A.values)
        return torch.tensor(found, device=self.values.device)

    def _plain(self) -> SparseTensor:
        """torch-sla's tensor of the matrix, one entry a position."""
        A = self.coalesce()
        return SparseTensor(A.values, A.pattern.row, A.pattern.col, A.shape)


def _checked_axis(axis: int) -> int:
    if axis not in (0, 1, -1, -2):
        raise ValueError(f"axis must be 0, 1 or None, got {axis}")
    return axis % 2


def _check_mass(A: Facts, M: Any) -> None:
    if not isinstance(M, Facts):
        raise TypeError(f"M must be a SparseMatrix or None, got {type(M).__name__}")
    if M.shape != A.shape:
        raise ValueError(f"M has shape {tuple(M.shape)}; the matrix has {tuple(A.shape)}")
    if not bool(M.is_hermitian()):
        raise ValueError("eigsh needs a symmetric (complex: Hermitian) M")
