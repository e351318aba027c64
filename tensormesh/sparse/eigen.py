"""Eigenvalues of a symmetric sparse matrix, and whether all are positive."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg as sl
import scipy.sparse as sp
import scipy.sparse.linalg as spl
import torch
from torch import Tensor

from tensormesh.arguments import check_integer, check_number
from tensormesh.sparse.adjoint import only_first_derivative
from tensormesh.sparse.pattern import SparsityPattern

Array = np.ndarray[Any, Any]

# Up to this size a dense decomposition is as fast as the iteration, and cannot fail.
_DENSE = 256
# Share of the size of the entries by which a shift lies below zero.
_SHIFT = 1e-4


def eigsh(
    pattern: SparsityPattern,
    values: Tensor,
    k: int,
    which: str,
    sigma: float | None = None,
    mass: tuple[SparsityPattern, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Some eigenvalues, in ascending order, and eigenvectors of a Hermitian matrix.

    Parameters
    ----------
    pattern, values
        The matrix, one entry a position.
    k, which, sigma
        As of `SparseMatrix.eigsh`.
    mass
        Pattern and entries of the second matrix of ``A x = lambda M x``.

    Returns
    -------
    values, vectors
        ``[k]``, whose first derivative is ``v v^H``, and ``-lambda v v^H`` by the mass (right for
        single eigenvalues), and ``[n, k]``, which have none.

    References
    ----------
    R. B. Lehoucq, D. C. Sorensen, C. Yang, ARPACK Users' Guide, SIAM 1998. Eigenvalues near zero
    are found as the largest of the inverse.
    """
    n = pattern.shape[0]
    check_integer("k", k)
    check_number("sigma", sigma, optional=True)
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and the size of the matrix, {n}, got {k}")
    of_mass = None
    if mass is not None:
        dtype = torch.promote_types(values.dtype, mass[1].dtype)
        values, of_mass = values.to(dtype), mass[1].to(dtype)
    pattern_of_mass = None if mass is None else mass[0]
    found: tuple[Tensor, Tensor] = _Eigen.apply(
        values, of_mass, pattern, pattern_of_mass, (k, which, sigma)
    )
    return found


class _Eigen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        of_mass: Tensor | None,
        pattern: SparsityPattern,
        pattern_of_mass: SparsityPattern | None,
        options: tuple[int, str, float | None],
    ) -> tuple[Tensor, Tensor]:
        mass = None
        if pattern_of_mass is not None and of_mass is not None:
            mass = host_matrix(pattern_of_mass, of_mass)
            if not _is_positive(mass):
                raise ValueError("M is not positive definite: eigenvalues need a mass that is")
        matrix = host_matrix(pattern, values)
        w, v = _decompose(matrix, mass, _shifted(matrix, mass, *options))
        real, like = values.real if values.is_complex() else values, values
        eigenvalues = torch.from_numpy(np.ascontiguousarray(w)).to(real)
        vectors = torch.from_numpy(np.ascontiguousarray(v)).to(like)
        ctx.save_for_backward(values, of_mass, eigenvalues, vectors)
        ctx.pattern, ctx.pattern_of_mass = pattern, pattern_of_mass
        ctx.mark_non_differentiable(vectors)
        return eigenvalues, vectors

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        outers = partial(outer, ctx.pattern), partial(outer, ctx.pattern_of_mass)
        return (*gradients_of_entries(ctx, grads[0], *outers), None, None, None)


# Entries of ``sum_i factor_i v_i v_i^H``, of vectors ``[n, k]`` and factors ``[k]``.
Outer = Callable[[Tensor, Tensor], Tensor]


def gradients_of_entries(
    ctx: Any, grad: Tensor, outer: Outer, outer_of_mass: Outer
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the entries of K and of M from those of the eigenvalues; first order only."""
    values, of_mass, eigenvalues, vectors = ctx.saved_tensors
    found = only_first_derivative(outer(vectors, grad), values, grad)
    if of_mass is None or not ctx.needs_input_grad[1]:
        return found, None
    return found, only_first_derivative(outer_of_mass(vectors, -grad * eigenvalues), of_mass, grad)


@torch.no_grad()
def outer(
    pattern: SparsityPattern, vectors: Tensor, factors: Tensor, columns: Tensor | None = None
) -> Tensor:
    """Entries of `Outer` on a pattern, whose columns may know more of the vectors than its rows."""
    of_rows = vectors[pattern.row] * factors.to(vectors.dtype)
    return (of_rows * (vectors if columns is None else columns)[pattern.col].conj()).sum(1)


def _shifted(
    matrix: sp.csc_array, mass: sp.csc_array | None, k: int, which: str, sigma: float | None
) -> tuple[int, str, float | None]:
    """Options of ARPACK: the smallest eigenvalues are those nearest to a shift below all of them.

    It finds them there also where several are equal, as the zeros of a free body; without a shift
    it can miss some.
    """
    if which == "SM":
        return k, "LM", 0.0
    if which == "SA" and sigma is None and matrix.shape[0] > _DENSE:
        other = sp.eye_array(matrix.shape[0], format="csc") if mass is None else mass
        unit = abs(matrix.diagonal()).sum() / abs(other.diagonal()).sum()
        for shift in (0.0, -_SHIFT * unit):
            if _is_positive(matrix - shift * other):
                return k, "LM", shift
    return k, which, sigma


def _decompose(
    matrix: sp.csc_array, mass: sp.csc_array | None, options: tuple[int, str, float | None]
) -> tuple[Array, Array]:
    k, which, sigma = options
    n = matrix.shape[0]
    if n <= _DENSE or k >= n - 1:
        w, v = sl.eigh(matrix.toarray(), None if mass is None else mass.toarray())
        # What is wanted first has the smallest key.
        key = {"LA": -w, "SA": w, "LM": -abs(w)}[which]
        key = key if sigma is None else abs(w - sigma)
        chosen = np.sort(np.argsort(key, kind="stable")[:k])
        return w[chosen], v[:, chosen]
    w, v = spl.eigsh(matrix, k=k, M=mass, which=which, sigma=sigma)
    order = np.argsort(w)
    return w[order], v[:, order]


def has_positive_eigenvalues(pattern: SparsityPattern, values: Tensor) -> bool:
    """Whether a Hermitian matrix is positive definite, by the signs of its pivots.

    Factored without interchanges, so that the pivots have the signs of the eigenvalues
    (Sylvester's law of inertia). Pivots of the size of rounding count as zero.
    """
    return _is_positive(host_matrix(pattern, values), torch.finfo(values.dtype).eps)


def _is_positive(matrix: sp.csc_array, eps: float = np.finfo(float).eps) -> bool:
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
    return bool((pivots > n * eps).all())


def host_matrix(pattern: SparsityPattern, values: Tensor) -> sp.csc_array:
    """The matrix for scipy, in double precision."""
    entries = values.detach().cpu().resolve_conj().numpy()
    entries = entries.astype(np.result_type(entries.dtype, np.float64))
    indices = (pattern.row.cpu().numpy(), pattern.col.cpu().numpy())
    return sp.coo_array((entries, indices), pattern.shape).tocsc()
