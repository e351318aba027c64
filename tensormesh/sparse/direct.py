"""Direct solution of a sparse system with its adjoint, by SuperLU."""

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl
import torch
from torch import Tensor

from tensormesh.errors import SingularMatrixError
from tensormesh.sparse.adjoint import differentiable_solve
from tensormesh.sparse.pattern import SparsityPattern

Array = np.ndarray[Any, Any]

# A matrix whose rounding alone moves the solution by more than this share is singular to rounding.
_LARGEST_ROUNDING_SHARE = 1 / 32
# Sweeps of scaling: as many as the exponent of a double has bits, and one to see that it is done.
_MOST_SWEEPS = 12


def direct_solve(pattern: SparsityPattern, values: Tensor, b: Tensor) -> Tensor:
    """Solve ``A x = b`` by a factorization, differentiable to any order.

    Factored on the host whatever the device; the solution is on the device of `b`.

    Parameters
    ----------
    pattern, values, b
        As of `tensormesh.sparse.adjoint.differentiable_solve`.

    Returns
    -------
    Tensor
        ``x`` in the shape of `b`.

    Raises
    ------
    ValueError
        If the matrix is not square or `b` has another length.
    SingularMatrixError
        If a row is empty, or the condition number, once rows and columns are scaled to one size,
        reaches the inverse of rounding.

    References
    ----------
    X. S. Li, An overview of SuperLU, ACM TOMS 31 (2005) 302-325. N. J. Higham, Accuracy and
    Stability of Numerical Algorithms, SIAM 2002, chapter 15, on condition estimates.
    """
    return differentiable_solve(Direct(), pattern, values, b)


class Direct:
    """SuperLU of one matrix: factored at the first right-hand side, for it and for its adjoint."""

    def __init__(self) -> None:
        self._adjoint = _AdjointOf(self)
        self._factors: _Factors | None = None

    @classmethod
    def of(cls, pattern: SparsityPattern, values: Tensor) -> "Direct":
        """Factors of this matrix, made now."""
        if pattern.shape[0] != pattern.shape[1]:
            raise ValueError(f"factors need a square matrix, got shape {pattern.shape}")
        found = cls()
        if pattern.shape[0]:
            found._factors = _Factors(pattern, values)
        return found

    @property
    def adjoint(self) -> "_AdjointOf":
        """The same factors, for the conjugate transpose."""
        return self._adjoint

    def __call__(self, pattern: SparsityPattern, values: Tensor, b: Tensor) -> Tensor:
        """Solve for numbers; `values` are those of the first call."""
        if b.numel() == 0:
            return b.detach().clone()
        if self._factors is None:
            self._factors = _Factors(pattern, values)
        return self._factors.solve(b, "N")

    def solve_adjoint(self, b: Tensor) -> Tensor:
        """Solve with the conjugate transpose of what was factored."""
        if self._factors is None:  # nothing was: there are no unknowns, or no columns
            return b.detach().clone()
        return self._factors.solve(b, "H")


class _AdjointOf:
    def __init__(self, direct: Direct) -> None:
        self._direct = direct

    @property
    def adjoint(self) -> Direct:
        return self._direct

    def __call__(self, pattern: SparsityPattern, values: Tensor, b: Tensor) -> Tensor:
        return self._direct.solve_adjoint(b)


class _Factors:
    """``R A C = L U`` with scales ``R`` and ``C`` of rows and columns, on the host."""

    def __init__(self, pattern: SparsityPattern, values: Tensor) -> None:
        entries = values.detach().cpu().resolve_conj().numpy()
        indices = (pattern.row.cpu().numpy(), pattern.col.cpu().numpy())
        # SuperLU works in double precision; single precision is rounded once, at the end.
        self._dtype = np.result_type(entries.dtype, np.float64)
        matrix = sp.coo_array((entries.astype(self._dtype), indices), pattern.shape).tocsc()
        if not np.isfinite(matrix.data).all():
            raise ValueError("the matrix holds NaN or infinite entries")
        _refuse_empty_rows(pattern)
        matrix, self._rows, self._cols = _equilibrated(matrix)
        self._factors = _factor(matrix)

    def solve(self, b: Tensor, trans: str) -> Tensor:
        """``A x = b`` or, for ``"H"``, ``A^H x = b``."""
        right = b.detach().cpu().resolve_conj().numpy()
        before, after = (self._rows, self._cols) if trans == "N" else (self._cols, self._rows)
        x = self._solve_scaled((right.T * before).T, trans)
        return torch.from_numpy(np.ascontiguousarray((x.T * after).T)).to(b.device, b.dtype)

    def _solve_scaled(self, right: Array, trans: str) -> Array:
        if np.iscomplexobj(right) and not np.issubdtype(self._dtype, np.complexfloating):
            real, imaginary = (self._solve_scaled(part, trans) for part in (right.real, right.imag))
            return real + 1j * imaginary
        x: Array = self._factors.solve(np.asfortranarray(right.astype(self._dtype)), trans)
        return x


def _equilibrated(matrix: sp.csc_array) -> tuple[sp.csc_array, Array, Array]:
    """Scale rows and columns until their largest entries are about one: units are no pivots.

    By powers of two, which round nothing. D. Ruiz, RAL-TR-2001-034: each sweep halves exponents.
    """
    rows, cols = (np.ones(n) for n in matrix.shape)
    for _ in range(_MOST_SWEEPS):
        of_rows, of_cols = (_scale(abs(matrix).max(axis=axis)) for axis in (1, 0))
        if (of_rows == 1).all() and (of_cols == 1).all():
            break
        matrix = (sp.diags_array(of_rows) @ matrix @ sp.diags_array(of_cols)).tocsc()
        rows, cols = rows * of_rows, cols * of_cols
    return matrix, rows, cols


def _scale(largest: sp.coo_array) -> Array:
    size = largest.toarray().ravel()
    if not size.all():
        raise SingularMatrixError(_SINGULAR)
    return np.exp2(-np.round(np.log2(size) / 2))


def _factor(matrix: sp.csc_array) -> spl.SuperLU:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", spl.MatrixRankWarning)
            factors = spl.splu(matrix)
    except RuntimeError as error:
        raise SingularMatrixError(_SINGULAR) from error
    # One step of inverse iteration: a right-hand side without a pattern meets the motion that is
    # held least, and grows by about the condition number. Pivots alone hide it on large meshes.
    probe = np.random.default_rng(0).standard_normal(matrix.shape[0]).astype(matrix.dtype)
    growth = np.linalg.norm(factors.solve(probe)) / np.linalg.norm(probe)
    condition = growth * abs(matrix).sum(axis=1).max()
    if not condition * np.finfo(np.float64).eps <= _LARGEST_ROUNDING_SHARE:
        raise SingularMatrixError(_SINGULAR)
    return factors


_SINGULAR = (
    "the matrix is singular to rounding: some motion is not held (a pure Neumann problem, a body "
    "without supports); constrain unknowns with Condenser or add a term that fixes them"
)


def _refuse_empty_rows(pattern: SparsityPattern) -> None:
    empty = pattern.empty_rows().nonzero().flatten()
    if empty.numel():
        shown = ", ".join(str(int(i)) for i in empty[:5])
        raise SingularMatrixError(
            f"{empty.numel()} rows have no entry (first: {shown}): unknowns at points that no "
            "cell uses; Condenser leaves them out"
        )
