"""Generalized minimal residuals with restarts, for any matrix."""

from functools import partial
from typing import Unpack

import numpy as np
from torch import Tensor

from tensormesh.sparse.krylov.arnoldi import ArnoldiBasis, HessenbergLeastSquares
from tensormesh.sparse.krylov.iteration import Iteration, Options, Stop, iterate
from tensormesh.sparse.krylov.solution import (
    Array,
    Operator,
    Solution,
)


def gmres(
    A: Operator,
    b: Tensor,
    M: Operator | None = None,
    *,
    restart: int = 50,
    **options: Unpack[Options],
) -> Solution:
    """Solve ``A x = b`` for a square `A` of any kind. Collective if `A`, `M` or `total` is.

    Preconditioned from the right, so that the residual is that of the system itself. Each product
    is made orthogonal to the basis twice, by all its vectors at once: two messages an iteration.
    All columns go at once.

    Parameters
    ----------
    A, b
        As of `cg`.
    M
        Approximate inverse of `A`, the same in every iteration.
    restart
        Length of a cycle; as many vectors, and one, are stored for each column.
    **options
        See `Options`.

    Returns
    -------
    Solution
        The result; not converging is one, with its reason.

    References
    ----------
    Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, Algorithm 9.5; twice is enough:
    Giraud, Langou and Rozloznik, The loss of orthogonality in the Gram-Schmidt orthogonalization
    process, Comput. Math. Appl. 50 (2005), 1069-1075.
    """
    return iterate(partial(_cycle, restart=restart), A, b, M, **options)


def _cycle(state: Iteration, r: Tensor, going: Array, restart: int) -> Array:
    shape, steps = going.shape, min(restart, state.maxiter - state.iterations)
    rr = state.dots((r, r))[0]
    norms, going = np.sqrt(rr.real).reshape(-1), going.reshape(-1).copy()
    stops = np.zeros(going.shape, dtype=np.int64)
    basis = ArnoldiBasis(_rows(r), norms, steps, state.total)
    least = HessenbergLeastSquares(norms, steps, rr.dtype)
    for _ in range(steps):
        product = state.A @ state.precondition(basis.last.mT.reshape(r.shape))
        h, beta = basis.extend(_rows(product))
        norms, singular = least.add(h, beta, going)
        found = np.where(singular, int(Stop.SINGULAR), 0)
        found = np.where(np.isfinite(beta), found, int(Stop.NOT_FINITE))
        stops = np.where(going, found, stops)
        going = going & (found == 0)
        norms = np.where(going, norms, 0.0).reshape(shape)
        state.record(norms)
        going = going & state.too_large(norms).reshape(-1)
        if not going.any():
            break
    update = basis.combine(least.coefficients()).mT.reshape(r.shape)
    state.x.add_(state.precondition(update))
    stops = np.where(going, int(Stop.RESTART), stops)
    return stops.reshape(shape)


def _rows(x: Tensor) -> Tensor:
    """Columns of `x` as rows, ``[k, n_owned]``."""
    return x.unsqueeze(0) if x.dim() == 1 else x.mT
