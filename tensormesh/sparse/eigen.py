"""Eigenvalues of a symmetric sparse matrix, and whether all are positive."""

from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
import scipy.sparse.linalg as spl
import torch
from torch import Tensor

from tensormesh.sparse.adjoint import only_first_derivative
from tensormesh.sparse.pattern import SparsityPattern

Array = np.ndarray[Any, Any]

# Up to this size a dense decomposition is as fast as the iteration, and cannot fail.
_DENSE = 256


def eigsh(
    pattern: SparsityPattern, values: Tensor, k: int, which: str, sigma: float | None = None
) -> tuple[Tensor, Tensor]:
    """Some eigenvalues, in ascending order, and eigenvectors of a Hermitian matrix.

    Parameters
    ----------
    pattern, values
        The matrix, one entry a position.
    k, which, sigma
        As of `SparseMatrix.eigsh`.

    Returns
    -------
    values, vectors
        ``[k]``, whose first derivative is ``v v^H`` (right for single eigenvalues), and ``[n, k]``,
        which have none.

    References
    ----------
    R. B. Lehoucq, D. C. Sorensen, C. Yang, ARPACK Users' Guide, SIAM 1998. Eigenvalues near zero
    are found as the largest of the inverse.
    """
    n = pattern.shape[0]
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and the size of the matrix, {n}, got {k}")
    found: tuple[Tensor, Tensor] = _Eigen.apply(values, pattern, k, which, sigma)
    return found


class _Eigen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        pattern: SparsityPattern,
        k: int,
        which: str,
        sigma: float | None,
    ) -> tuple[Tensor, Tensor]:
        w, v = _decompose(host_matrix(pattern, values), k, which, sigma)
        real, like = values.real if values.is_complex() else values, values
        eigenvalues = torch.from_numpy(np.ascontiguousarray(w)).to(real)
        vectors = torch.from_numpy(np.ascontiguousarray(v)).to(like)
        ctx.save_for_backward(values, vectors)
        ctx.pattern = pattern
        ctx.mark_non_differentiable(vectors)
        return eigenvalues, vectors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, vectors = ctx.saved_tensors
        pattern: SparsityPattern = ctx.pattern
        with torch.no_grad():
            of_rows = vectors[pattern.row] * grads[0].to(vectors.dtype)
            found = (of_rows * vectors[pattern.col].conj()).sum(1)
        return only_first_derivative(found, values, grads[0]), None, None, None, None


def _decompose(
    matrix: sp.csc_array, k: int, which: str, sigma: float | None
) -> tuple[Array, Array]:
    n = matrix.shape[0]
    if n <= _DENSE or k >= n - 1:
        w, v = sl.eigh(matrix.toarray())
        # What is wanted first has the smallest key.
        key = {"LA": -w, "SA": w, "LM": -abs(w), "SM": abs(w)}[which]
        key = key if sigma is None else abs(w - sigma)
        chosen = np.sort(np.argsort(key, kind="stable")[:k])
        return w[chosen], v[:, chosen]
    if which == "SM":
        which, sigma = "LM", 0.0
    w, v = spl.eigsh(matrix, k=k, which=which, sigma=sigma)
    order = np.argsort(w)
    return w[order], v[:, order]


def has_positive_eigenvalues(pattern: SparsityPattern, values: Tensor) -> bool:
    """Whether a Hermitian matrix is positive definite, by the signs of its pivots.

    Factored without interchanges, so that the pivots have the signs of the eigenvalues
    (Sylvester's law of inertia). Pivots of the size of rounding count as zero.
    """
    matrix = host_matrix(pattern, values)
    n = matrix.shape[0]
    if n == 0:
        return True
    diagonal = matrix.diagonal().real
    if not (diagonal > 0).all():
        return False
    scale = sp.diags_array(1 / np.sqrt(diagonal))
    scaled = (scale @ matrix @ scale).tocsc()
    try:
        factors = spl.splu(
            scaled,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:
        return False
    if not (factors.perm_r == factors.perm_c).all():
        return False
    pivots = factors.U.diagonal().real
    return bool((pivots > n * torch.finfo(values.dtype).eps).all())


def host_matrix(pattern: SparsityPattern, values: Tensor) -> sp.csc_array:
    """The matrix for scipy, in double precision."""
    entries = values.detach().cpu().resolve_conj().numpy()
    entries = entries.astype(np.result_type(entries.dtype, np.float64))
    indices = (pattern.row.cpu().numpy(), pattern.col.cpu().numpy())
    return sp.coo_array((entries, indices), pattern.shape).tocsc()
