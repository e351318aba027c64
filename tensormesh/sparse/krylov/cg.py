"""Preconditioned conjugate gradients."""

from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.iteration import Iteration, Options, Stop, iterate
from tensormesh.sparse.krylov.solution import (
    Array,
    Operator,
    Solution,
    add_scaled_,
    scale_and_add_,
)

# A direction whose energy is below this many roundings of its preconditioned norm has none.
_NO_ENERGY = 64.0


def cg(
    A: Operator,
    b: Tensor,
    M: Operator | None = None,
    **options: Unpack[Options],
) -> Solution:
    """Solve ``A x = b`` for Hermitian positive definite `A`. Collective if `A`, `M` or `total` is.

    All columns go at once: an iteration is one product and one message, however many there are. The
    product with a direction is not computed but follows by a recurrence, so that the inner products
    of an iteration can be summed together.

    Parameters
    ----------
    A
        From ``[n_owned]`` to ``[n_owned]``, or columns ``[n_owned, k]``.
    b
        Right-hand side ``[n_owned]``, or columns of them.
    M
        Approximate inverse of `A`, Hermitian positive definite.
    **options
        See `Options`.

    Returns
    -------
    Solution
        The result; not converging is one, with its reason.

    References
    ----------
    Chronopoulos and Gear, s-step iterative methods for symmetric linear systems, Journal of
    Computational and Applied Mathematics 25, 1989.
    Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, Algorithm 9.1.
    """
    return iterate(_cycle, A, b, M, **options)


def _cycle(state: Iteration, r: Tensor, going: Array) -> Array:
    u = state.precondition(r)
    s = state.A @ u  # A p from here on
    ru, pAp, rr = state.dots((r, u), (u, s), (r, r)).real
    p = u.clone()
    p_norm2 = ru  # p^H M^-1 p by its own recurrence
    no_energy = _NO_ENERGY * torch.finfo(r.dtype).eps
    stops = np.zeros(rr.shape, dtype=np.int64)
    going = going & state.too_large(np.sqrt(rr))
    while going.any():
        if state.iterations >= state.maxiter:
            return np.where(going, Stop.MAXITER, stops)
        if not ((pAp > no_energy * p_norm2) & (ru > 0) & (pAp < np.inf) & (ru < np.inf)).all():
            found = _stops(pAp, ru, no_energy * p_norm2)
            stops = np.where(going, found, stops)
            going = going & (found == 0)
            if not going.any():
                break
        alpha = np.where(going, ru / pAp, 0.0)
        add_scaled_(state.x, alpha, p)
        add_scaled_(r, -alpha, s)
        u = state.precondition(r)
        w = state.A @ u
        ru_old = ru
        ru, uw, rr = state.dots((r, u), (u, w), (r, r)).real
        beta = np.where(going, ru / ru_old, 0.0)
        p_norm2 = ru + beta * beta * p_norm2
        pAp = uw - beta * beta * pAp  # p is conjugate to the direction before
        scale_and_add_(p, beta, u)
        scale_and_add_(s, beta, w)
        norms = np.sqrt(rr)
        state.record(norms)
        going = going & state.too_large(norms)
    return stops


def _stops(pAp: Array, rz: Array, no_energy: Array) -> Array:
    """Why each column cannot go along its direction; zero where it can."""
    conditions = [
        ~(np.isfinite(pAp) & np.isfinite(rz)),
        rz <= 0,
        pAp < -no_energy,
        pAp <= no_energy,
    ]
    reasons = [
        Stop.NOT_FINITE,
        Stop.INDEFINITE_PRECONDITIONER,
        Stop.INDEFINITE,
        Stop.SINGULAR,
    ]
    return np.select(conditions, [int(r) for r in reasons], 0)
