"""Stabilized bi-conjugate gradients, for any matrix, in little memory."""

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.iteration import Iteration, Stop, iterate
from tensormesh.sparse.krylov.solution import (
    Array,
    Callback,
    Operator,
    Solution,
    Total,
    add_scaled_,
    scale_and_add_,
    sum_on_one_rank,
)


def bicgstab(
    A: Operator,
    b: Tensor,
    M: Operator | None = None,
    *,
    total: Total = sum_on_one_rank,
    rtol: float = 1e-8,
    atol: float | Array = 0.0,
    maxiter: int = 1000,
    x0: Tensor | None = None,
    callback: Callback | None = None,
) -> Solution:
    """Solve ``A x = b`` for a square `A` of any kind. Collective if `A`, `M` or `total` is.

    Preconditioned from the right, so that the residual is that of the system itself. All columns
    go at once, with two products and two messages an iteration. At a breakdown it begins anew
    from the present solution, if that has come nearer; else it says so.

    Parameters
    ----------
    A, b, total, rtol, atol, maxiter, x0, callback
        As of `cg`.
    M
        Approximate inverse of `A`.

    Returns
    -------
    Solution
        The result; not converging is one, with its reason.

    References
    ----------
    H. A. van der Vorst, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution
    of nonsymmetric linear systems, SIAM J. Sci. Stat. Comput. 13 (1992), 631-644.
    """
    return iterate(
        _cycle,
        A,
        b,
        M,
        total=total,
        rtol=rtol,
        atol=atol,
        maxiter=maxiter,
        x0=x0,
        callback=callback,
    )


def _cycle(state: Iteration, r: Tensor, going: Array) -> Array:
    shadow, p = r.clone(), r.clone()
    (rho,) = state.dots((r, r))
    shadow_norm = np.sqrt(rho.real)
    eps = torch.finfo(r.dtype).eps
    stops = np.zeros(rho.shape, dtype=np.int64)
    while going.any():
        if state.iterations >= state.maxiter:
            return np.where(going, Stop.MAXITER, stops)
        y = state.precondition(p)
        v = state.A @ y
        sigma, vv = state.dots((shadow, v), (v, v))
        sizes = shadow_norm * np.sqrt(vv.real)
        stops = np.where(going, _stops(sigma, eps * sizes), stops)
        going = going & (stops == 0)
        alpha = np.where(going, rho / sigma, 0.0)
        add_scaled_(r, -alpha, v)
        z = state.precondition(r)
        t = state.A @ z
        ts, tt, ss, of_s, of_t = state.dots((t, r), (t, t), (r, r), (shadow, r), (shadow, t))
        omega = np.where(going & (tt.real > 0), ts / tt.real, 0.0)
        add_scaled_(state.x, alpha, y)
        add_scaled_(state.x, omega, z)
        add_scaled_(r, -omega, t)
        rr = np.maximum(ss.real - np.abs(ts) * np.abs(omega), 0.0)
        rho_old, rho = rho, of_s - omega * of_t
        norms = np.where(going, np.sqrt(rr), 0.0)
        state.record(norms)
        going = going & state.too_large(norms)
        small = eps * shadow_norm * norms
        stops = np.where(going, _stops(rho * omega, small * np.abs(omega)), stops)
        going = going & (stops == 0)
        beta = np.where(going, (rho / rho_old) * (alpha / omega), 0.0)
        # p_next = r + beta (p - omega v).
        add_scaled_(p, -omega, v)
        scale_and_add_(p, beta, r)
    return stops


def _stops(product: Array, small: Array) -> Array:
    """Breakdown where an inner product is no more than rounding; zero elsewhere."""
    conditions = [~np.isfinite(product), np.abs(product) <= small]
    return np.select(conditions, [int(Stop.NOT_FINITE), int(Stop.BREAKDOWN)], 0)
