"""Stabilized bi-conjugate gradients, for any matrix, in little memory."""

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


def bicgstab(
    A: Operator,
    b: Tensor,
    M: Operator | None = None,
    **options: Unpack[Options],
) -> Solution:
    """Solve ``A x = b`` for a square `A` of any kind. Collective if `A`, `M` or `total` is.

    Preconditioned from the right, so that the residual is that of the system itself. All columns
    go at once, with two products and two messages an iteration. At a breakdown it begins anew
    from the present solution, if that has come nearer; else it says so.

    Parameters
    ----------
    A, b
        As of `cg`.
    M
        Approximate inverse of `A`.
    **options
        See `Options`.

    Returns
    -------
    Solution
        The result; not converging is one, with its reason.

    References
    ----------
    H. A. van der Vorst, Bi-CGSTAB: a fast and smoothly converging variant of Bi-CG for the solution
    of nonsymmetric linear systems, SIAM J. Sci. Stat. Comput. 13 (1992), 631-644.
    """
    return iterate(_cycle, A, b, M, **options)


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
