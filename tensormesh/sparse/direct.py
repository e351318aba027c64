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
    return differentiable_solve(_Direct(), pattern, values, b)


class _Direct:
    @property
    def adjoint(self) -> "_Direct":
        return self

    def __call__(self, pattern: SparsityPattern, values: Tensor, b: Tensor) -> Tensor:
        return torch.from_numpy(_factor_and_solve(pattern, values, b)).to(b.device, b.dtype)


def _factor_and_solve(pattern: SparsityPattern, values: Tensor, b: Tensor) -> Array:
    if b.numel() == 0:
        return b.detach().cpu().resolve_conj().numpy().copy()
    entries = values.detach().cpu().resolve_conj().numpy()
    indices = (pattern.row.cpu().numpy(), pattern.col.cpu().numpy())
    # SuperLU works in double precision; single precision is rounded once, at the end.
    work = np.result_type(entries.dtype, np.float64)
    matrix = sp.coo_array((entries.astype(work), indices), pattern.shape).tocsc()
    if not np.isfinite(matrix.data).all():
        raise ValueError("the matrix holds NaN or infinite entries")
    _refuse_empty_rows(pattern)
    right = b.detach().cpu().resolve_conj().numpy().astype(work)
    matrix, rows, cols = _equilibrated(matrix)
    factors = _factor(matrix)
    x = factors.solve(np.asfortranarray((right.T * rows).T))
    return np.ascontiguousarray((x.T * cols).T)


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
