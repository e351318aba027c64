"""Smallest eigenvalues of ``A x = lambda B x`` by preconditioned conjugate gradients in blocks."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.solution import (
    Array,
    Operator,
    Total,
    numbers_beside,
    sum_on_one_rank,
)

# Directions whose share beside the others is below this are left out of a basis.
_DEPENDENT = 1e-12
# Roundings of ``|A|`` that an eigenvalue of zero may be off by, and that residuals of vectors may
# have whose eigenvalues are all zero.
_ZERO, _ROUNDINGS = 1e3, 1e5
_TINY = float(np.finfo(float).tiny)
# A Gram matrix has no eigenvalues below this, but for rounding in single precision.
_NEGATIVE = 1e-4


@dataclass
class EigenSolution:
    """Result of `lobpcg`.

    Parameters
    ----------
    values
        Ascending, ``[m]``.
    vectors
        Owned slices, ``[n_owned, m]``, orthonormal in ``B``.
    residuals
        Norms of ``A x - lambda B x``, computed anew, over the largest ``|lambda B x|`` of the
        wanted ones; where all these are zero but for rounding, over as much as lets roundings
        meet the tolerance.
    converged
        Whether those of the wanted ones met the tolerance.
    iterations
        Number of iterations.
    """

    values: Array
    vectors: Tensor
    residuals: Array
    converged: bool
    iterations: int


class Block(NamedTuple):
    """Vectors, and their products with both matrices."""

    x: Tensor
    ax: Tensor
    bx: Tensor

    def combined(self, C: Array) -> "Block":
        """Linear combinations, a column of `C` each."""
        factors = numbers_beside(self.x, C)
        return Block(*(part @ factors for part in self))

    def beside(self, *others: "Block") -> "Block":
        """All columns in one block."""
        return Block(*(torch.cat(parts, dim=1) for parts in zip(self, *others, strict=True)))


class Pencil(NamedTuple):
    """Both matrices, the second one None for the identity, and the sum over the ranks."""

    A: Operator
    B: Operator | None
    total: Total

    def block(self, x: Tensor) -> Block:
        """`x` with its products."""
        return Block(x, self.A @ x, x if self.B is None else self.B @ x)

    def rayleigh_ritz(self, S: Block) -> tuple[Array, Array, Array]:
        """Ritz values, their coefficients in `S` and the Gram matrix of `S` in ``B``."""
        of_a, of_b = self.total(torch.stack([S.x.mH @ S.ax, S.x.mH @ S.bx]))
        of_a, of_b = (of_a + of_a.conj().T) / 2, (of_b + of_b.conj().T) / 2
        basis = _orthonormal(of_b)
        values, small = np.linalg.eigh(basis.conj().T @ of_a @ basis)
        return values, basis @ small, of_b

    def size(self, X: Block) -> float:
        """Largest ``|A x| / |x|``."""
        squares = torch.stack([X.ax.abs().square().sum(0), X.x.abs().square().sum(0)])
        of_ax, of_x = self.total(squares)
        return float(np.sqrt(np.max(of_ax / np.where(of_x > 0, of_x, 1.0), initial=0.0)))

    def residuals(
        self, X: Block, values: Array, k: int, zero: float, least: float
    ) -> tuple[Tensor, Array]:
        """Residuals, and their norms over the largest ``|lambda B x|`` of the first `k` vectors.

        Where these are no more than `zero` times the lengths, over `least` times these.
        """
        R = X.ax - X.bx * numbers_beside(X.x, values)
        squares = torch.stack([part.abs().square().sum(0) for part in (R, X.bx, X.x)])
        norms, of_bx, of_x = np.sqrt(self.total(squares))
        size, length = np.max(np.abs(values[:k]) * of_bx[:k]), np.max(of_x[:k])
        return R, norms / max(least * length if size <= zero * length else size, _TINY)


def lobpcg(
    A: Operator,
    X: Tensor,
    B: Operator | None = None,
    M: Operator | None = None,
    *,
    n_wanted: int,
    total: Total = sum_on_one_rank,
    rtol: float = 1e-8,
    maxiter: int = 500,
    eps: float = 0.0,
) -> EigenSolution:
    """Smallest eigenvalues of Hermitian ``A x = lambda B x``. Collective if an argument is.

    Vectors that have converged stay in the basis, but get no new directions (soft locking).

    Parameters
    ----------
    A, B
        Matrices; `B` positive definite, None for the identity.
    X
        First guesses, ``[n_owned, m]``, independent.
    M
        Approximate inverse of `A`, Hermitian positive definite, or None.
    n_wanted
        How many eigenvalues are asked for; the other columns of `X` help these to converge.
    total
        Sum over the ranks.
    rtol
        Tolerance of `EigenSolution.residuals`.
    maxiter
        Bound of the iterations.
    eps
        Precision of the entries of `A`, where it is less than that of the vectors.

    References
    ----------
    A. V. Knyazev, Toward the optimal preconditioned eigensolver: locally optimal block
    preconditioned conjugate gradient method, SIAM J. Sci. Comput. 23 (2001); for the basis:
    U. Hetmaniuk, R. Lehoucq, Basis selection in LOBPCG, J. Comput. Phys. 218 (2006).
    """
    pencil, m = Pencil(A, B, total), X.shape[1]
    start = pencil.block(X)
    size, rounding = pencil.size(start), torch.finfo(X.dtype).eps
    zero, least = max(_ZERO * rounding, eps) * size, _ROUNDINGS * rounding * size / rtol
    block, values = _rotated(pencil, start)
    P: Block | None = None
    fresh = True  # whether products are of the vectors themselves, not of a recurrence
    for iteration in range(maxiter + 1):
        R, norms = pencil.residuals(block, values, n_wanted, zero, least)
        active = np.flatnonzero(~(norms <= rtol))
        done = not (active < n_wanted).any()
        if (done or iteration == maxiter) and not fresh:
            block, values = _rotated(pencil, pencil.block(block.x))
            R, norms = pencil.residuals(block, values, n_wanted, zero, least)
            active, P = np.flatnonzero(~(norms <= rtol)), None
            done = not (active < n_wanted).any()
        if done or iteration == maxiter or not np.isfinite(norms).all():
            break
        R = R[:, torch.as_tensor(active, device=R.device)]
        W = _away_from(pencil, R if M is None else M @ R, block)
        S = block.beside(pencil.block(W), *([] if P is None else [P]))
        values, C, of_b = pencil.rayleigh_ritz(S)
        values, C = values[:m], C[:, :m]
        P, block = S.combined(_directions(C, of_b, m, active)), S.combined(C)
        fresh = False
    return EigenSolution(values, block.x, norms, done, iteration)


def _rotated(pencil: Pencil, S: Block) -> tuple[Block, Array]:
    """Ritz vectors and values within `S`."""
    values, C, _ = pencil.rayleigh_ritz(S)
    return S.combined(C), values


def _orthonormal(gram: Array) -> Array:
    """Coefficients of an orthonormal basis, in which directions of rounding are left out.

    References
    ----------
    A. Stathopoulos, K. Wu, A block orthogonalization procedure with constant synchronization
    requirements, SIAM J. Sci. Comput. 23 (2002): SVQB.
    """
    diagonal = gram.diagonal().real
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    sizes, V = np.linalg.eigh(scale[:, None] * gram * scale)
    if (diagonal < 0).any() or sizes[0] < -_NEGATIVE * max(sizes[-1], 1.0):
        raise ValueError("M is not positive definite: eigenvalues need a mass that is")
    keep = sizes > _DEPENDENT * sizes[-1]
    basis: Array = scale[:, None] * V[:, keep] / np.sqrt(sizes[keep])
    return basis


def _away_from(pencil: Pencil, W: Tensor, X: Block) -> Tensor:
    """`W` without its part in the present vectors, which are orthonormal; twice is enough."""
    for _ in range(2):
        W = W - X.x @ numbers_beside(W, pencil.total(X.bx.mH @ W))
    return W


def _directions(C: Array, of_b: Array, m: int, active: Array) -> Array:
    """What the step of the active columns added, orthogonal to the new vectors."""
    steps = C[:, active].copy()
    steps[:m] = 0
    steps -= C @ (C.conj().T @ (of_b @ steps))
    return steps
