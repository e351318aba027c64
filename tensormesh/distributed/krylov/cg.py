"""Preconditioned conjugate gradients."""

import math

import torch
from torch import Tensor

from tensormesh.distributed.krylov.solution import Dots, Operator, Solution

# A direction whose energy is below this many roundings of its preconditioned norm has none.
_NO_ENERGY = 64.0


def local_dots(*pairs: tuple[Tensor, Tensor]) -> list[float]:
    """Inner products on one rank."""
    return [float(torch.vdot(a, b).real) for a, b in pairs]


def cg(
    A: Operator,
    b: Tensor,
    M: Operator | None = None,
    *,
    dots: Dots = local_dots,
    rtol: float = 1e-8,
    atol: float = 0.0,
    maxiter: int = 1000,
    x0: Tensor | None = None,
) -> Solution:
    """Solve ``A x = b`` for symmetric positive definite `A`. Collective if `A`, `M` or `dots` is.

    The residual is computed anew before success is reported; if rounding has carried the recurrence
    away from it, the iteration restarts from the present solution.

    Parameters
    ----------
    A
        From ``[n_owned]`` to ``[n_owned]``.
    b
        Right-hand side ``[n_owned]``.
    M
        Approximate inverse of `A`, symmetric positive definite.
    dots
        Inner products of several pairs, in one message.
    rtol, atol
        Stop when ``|b - A x| <= max(rtol |b|, atol)``.
    maxiter
        Bound of the iterations.
    x0
        First guess; zero by default.

    Returns
    -------
    Solution
        The result; not converging is one, with its reason.

    References
    ----------
    Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, Algorithm 9.1.
    """
    x = torch.zeros_like(b) if x0 is None else x0.clone()
    r = b.clone() if x0 is None else b - A @ x
    b_norm, r_norm = (math.sqrt(s) for s in dots((b, b), (r, r)))
    if b_norm == 0.0:
        return Solution(torch.zeros_like(b), True, 0, 0.0, "converged")
    target, scale = max(rtol * b_norm, atol), b_norm
    state = Solution(x, False, 0, r_norm / scale, "maxiter")
    while True:
        reason = _cycle(A, M, state, r, dots, target, scale, maxiter)
        previous, r = r_norm, b - A @ state.x
        (rr,) = dots((r, r))
        r_norm = math.sqrt(rr) if rr >= 0 else math.nan
        state.residual, state.reason = r_norm / scale, reason
        if not math.isfinite(r_norm):
            state.reason = "not finite"
        elif r_norm <= target:
            state.converged, state.reason = True, "converged"
        elif reason == "converged" and r_norm < 0.5 * previous:
            continue
        elif reason == "converged":
            state.reason = "stagnated"
        return state


def _cycle(
    A: Operator,
    M: Operator | None,
    state: Solution,
    r: Tensor,
    dots: Dots,
    target: float,
    scale: float,
    maxiter: int,
) -> str:
    """Iterate from ``state.x`` with residual `r` until the recurrence converges or breaks down."""
    r = r.clone()
    z = r if M is None else M @ r
    p = z.clone()
    rz, rr = dots((r, z), (r, r))
    p_norm2 = rz  # p^T M^-1 p by its own recurrence
    no_energy = _NO_ENERGY * torch.finfo(r.dtype).eps
    while math.sqrt(max(rr, 0.0)) > target:
        if state.iterations >= maxiter:
            return "maxiter"
        Ap = A @ p
        (pAp,) = dots((p, Ap))
        if not (math.isfinite(pAp) and math.isfinite(rz)):
            return "not finite"
        if pAp <= no_energy * p_norm2:
            return "indefinite" if pAp < -no_energy * p_norm2 else "singular"
        alpha = rz / pAp
        state.x.add_(p, alpha=alpha)
        r.sub_(Ap, alpha=alpha)
        z = r if M is None else M @ r
        rz_old = rz
        rz, rr = dots((r, z), (r, r))
        beta = rz / rz_old
        p_norm2 = rz + beta * beta * p_norm2
        p.mul_(beta).add_(z)
        state.iterations += 1
        state.history.append(math.sqrt(max(rr, 0.0)) / scale)
    return "converged"
