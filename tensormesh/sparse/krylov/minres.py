"""Minimal residuals, for Hermitian matrices that need not be definite."""

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
    scale_,
    scaled,
)

# Roundings below which the next step, or the gradient of the residual's norm, is zero.
_SLACK = 16.0


def minres(
    A: Operator,
    b: Tensor,
    M: Operator | None = None,
    **options: Unpack[Options],
) -> Solution:
    """Solve ``A x = b`` for Hermitian `A`. Collective if `A`, `M` or `total` is.

    The method minimizes the norm that `M` defines; the Euclidean norm of the residual, which
    decides, goes along by a recurrence. All columns go at once, with two messages an iteration.

    Parameters
    ----------
    A, b
        As of `cg`.
    M
        Hermitian positive definite, even where `A` is not: for instance an approximate inverse of
        its absolute value.
    **options
        See `Options`.

    Returns
    -------
    Solution
        The result; not converging is one, with its reason.

    References
    ----------
    C. C. Paige and M. A. Saunders, Solution of sparse indefinite systems of linear equations,
    SIAM J. Numer. Anal. 12 (1975), 617-629; with a preconditioner: Elman, Silvester and Wathen,
    Finite Elements and Fast Iterative Solvers, 2nd ed. 2014, Algorithm 4.1.
    """
    return iterate(_cycle, A, b, M, **options)


def _cycle(state: Iteration, r: Tensor, going: Array) -> Array:
    # v and v_old: Lanczos vectors before preconditioning, of norm beta and old_beta in the norm of
    # M; z = M v. The residual is phi q.
    v, v_old, z = r, torch.zeros_like(r), state.precondition(r)
    vz, vv = state.dots((v, z), (v, v)).real
    beta, old_beta = np.sqrt(np.maximum(vz, 0.0)), np.ones_like(vz)
    zero = np.zeros_like(vz)
    stops = np.where(going, _stops(vz, vz, zero, vz, zero), 0)
    going = going & (stops == 0)
    q = scaled(v, _inverse(beta))
    w, w_old = torch.zeros_like(r), torch.zeros_like(r)
    phi, c, s = beta, zero - 1, zero
    d_bar, epsilon, size2 = zero, zero, zero
    slack = _SLACK * torch.finfo(r.dtype).eps
    while going.any():
        if state.iterations >= state.maxiter:
            return np.where(going, Stop.MAXITER, stops)
        # Lanczos: v_next = A z / beta - (alpha / beta) v - (beta / old_beta) v_old.
        direction = scaled(z, _inverse(beta))
        v_next = state.A @ direction
        (alpha,) = state.dots((direction, v_next)).real
        add_scaled_(v_next, -beta * _inverse(old_beta), v_old)
        add_scaled_(v_next, -alpha * _inverse(beta), v)
        v_old, v = v, v_next
        z = state.precondition(v)
        vz, vv, qv, qq = state.dots((v, z), (v, v), (q, v), (q, q)).real
        old_beta, beta = beta, np.sqrt(np.maximum(vz, 0.0))
        # One reflection more makes the tridiagonal matrix triangular.
        old_epsilon, delta, g_bar = epsilon, c * d_bar + s * alpha, s * d_bar - c * alpha
        epsilon, d_bar = s * beta, -c * beta
        size2 = size2 + alpha**2 + beta**2
        gradient = np.hypot(g_bar, d_bar)  # |A r| / |r|, before this step
        found = _stops(vz, alpha, slack * size2, gradient, slack * np.sqrt(size2))
        stops = np.where(going, found, stops)
        going = going & (stops == 0)
        gamma = np.hypot(g_bar, beta)
        c, s = g_bar * _inverse(gamma), beta * _inverse(gamma)
        step, phi = np.where(going, c * phi, 0.0), np.where(going, s * phi, phi)
        # w_next = (direction - old_epsilon w_old - delta w) / gamma.
        add_scaled_(direction, -old_epsilon, w_old)
        add_scaled_(direction, -delta, w)
        w_old, w = w, scaled(direction, _inverse(gamma))
        add_scaled_(state.x, step, w)
        # q_next = s q - (c / beta) v.
        of_v = c * _inverse(beta)
        qq = s**2 * qq - 2 * s * of_v * qv + of_v**2 * vv
        scale_(q, s)
        add_scaled_(q, -of_v, v)
        norms = np.abs(phi) * np.sqrt(np.maximum(qq, 0.0))
        state.record(norms)
        going = going & state.too_large(norms)
    return stops


def _inverse(x: Array) -> Array:
    """``1 / x``, or zero where `x` is zero."""
    return np.where(x != 0, 1 / x, 0.0)


def _stops(vz: Array, alpha: Array, small: Array, gradient: Array, tiny: Array) -> Array:
    """Why each column cannot go on; zero where it can."""
    conditions = [~(np.isfinite(vz) & np.isfinite(alpha)), vz < -small, gradient <= tiny]
    reasons = [Stop.NOT_FINITE, Stop.INDEFINITE_PRECONDITIONER, Stop.SINGULAR]
    return np.select(conditions, [int(r) for r in reasons], 0)
