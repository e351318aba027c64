"""What all Krylov methods share: tolerances, true residuals, restarts, and why they stop."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.solution import (
    Array,
    Callback,
    Operator,
    Solution,
    Total,
    sum_on_one_rank,
)


class Stop(IntEnum):
    """Why a column is not iterated any further, from good to bad."""

    CONVERGED = 0
    RESTART = 1
    MAXITER = 2
    STAGNATED = 3
    BREAKDOWN = 4
    SINGULAR = 5
    INDEFINITE = 6
    INDEFINITE_PRECONDITIONER = 7
    NOT_FINITE = 8

    @property
    def reason(self) -> str:
        """In words."""
        return self.name.lower().replace("_", " ")


# A cycle that ended so is followed by another one from the new residual, if that is smaller than
# this share of the last.
_GOES_ON = {Stop.CONVERGED: 0.5, Stop.RESTART: 0.999, Stop.BREAKDOWN: 0.5}


@dataclass
class Iteration:
    """An iteration under way, in the columns of ``x``.

    Parameters
    ----------
    A, M
        The matrix, and an approximate inverse or None.
    total
        Sum over the ranks.
    x
        The present solution, ``[n_owned]`` or ``[n_owned, k]``; changed in place.
    target, scale
        Of each column: the norm of the residual to reach, and that of the right-hand side.
    maxiter
        Bound of `iterations`.
    callback
        Called after each iteration.
    """

    A: Operator
    M: Operator | None
    total: Total
    x: Tensor
    target: Array
    scale: Array
    maxiter: int
    callback: Callback | None
    iterations: int = 0
    history: list[float] = field(default_factory=list)

    def dots(self, *pairs: tuple[Tensor, Tensor]) -> Array:
        """Inner products of pairs of vectors, column by column, in one message."""
        return dots(self.total, *pairs)

    def precondition(self, r: Tensor) -> Tensor:
        """``M r``, or `r` itself."""
        return r if self.M is None else self.M @ r

    def record(self, norms: Array) -> None:
        """Count an iteration that left residuals of these norms."""
        self.iterations += 1
        self.history.append(float(np.max(norms / self.scale, initial=0.0)))
        if self.callback is not None:
            self.callback(self.iterations, self.history[-1])

    def too_large(self, norms: Array) -> Array:
        """Columns whose residual is above the target, or no number."""
        return ~(norms <= self.target)


# From the iteration, the residual (which it may overwrite) and the columns to iterate: why each
# column stopped.
Cycle = Callable[[Iteration, Tensor, Array], Array]


def dots(total: Total, *pairs: tuple[Tensor, Tensor]) -> Array:
    """Inner products of pairs of vectors, column by column, in one message."""
    return total(torch.stack([torch.linalg.vecdot(a, b, dim=0) for a, b in pairs]))


class Options(TypedDict, total=False):
    """What every method takes.

    Parameters
    ----------
    total
        Sum of a small tensor over the ranks; by default there is one.
    rtol, atol
        Stop when ``|b - A x| <= max(rtol |b|, atol)`` in each column; 1e-8 and 0 by default.
    maxiter
        Bound of the iterations, 1000 by default.
    x0
        First guess in the shape of `b`; zero by default.
    callback
        Called with the number of the iteration and the relative residual by the recurrence.
    """

    total: Total
    rtol: float
    atol: float | Array
    maxiter: int
    x0: Tensor | None
    callback: Callback | None


def iterate(
    cycle: Cycle,
    A: Operator,
    b: Tensor,
    M: Operator | None,
    *,
    total: Total = sum_on_one_rank,
    rtol: float = 1e-8,
    atol: float | Array = 0.0,
    maxiter: int = 1000,
    x0: Tensor | None = None,
    callback: Callback | None = None,
) -> Solution:
    """Run cycles of a method until the residual, computed anew, meets the tolerance.

    A cycle stops when its recurrence has converged, at a restart, or at a breakdown. If rounding
    has carried the recurrence away from the residual, another cycle begins at the present solution,
    as long as that helps.
    """
    x = torch.zeros_like(b) if x0 is None else x0.clone()
    with np.errstate(all="ignore"):
        b_norm = np.sqrt(dots(total, (b, b))[0].real)
        if x0 is not None:
            # A load of zero has the solution zero, whatever the guess.
            x = torch.where(torch.as_tensor(b_norm > 0, device=x.device), x, torch.zeros_like(x))
        target = np.maximum(rtol * b_norm, atol)
        state = Iteration(
            A, M, total, x, target, np.where(b_norm > 0, b_norm, 1.0), maxiter, callback
        )
        stops, norms = _run(cycle, state, b, b if x0 is None else b - A @ x)
    residuals = norms / state.scale
    worst = max(stops.flat, default=0)
    residual = float(np.max(residuals, initial=0.0))
    reason = Stop(int(worst)).reason
    return Solution(state.x, bool(worst == 0), state.iterations, residual, reason, state.history)


def _run(cycle: Cycle, state: Iteration, b: Tensor, r: Tensor) -> tuple[Array, Array]:
    """Why each column stopped, and the norm of its residual."""
    norms = _norms(state, r)
    stops = np.zeros(norms.shape, dtype=np.int64)
    going = state.too_large(norms)
    while going.any():
        ended = cycle(state, r.clone() if r is b else r, going)
        before, r = norms, b - state.A @ state.x
        norms = _norms(state, r)
        more = going & state.too_large(norms) & (state.iterations < state.maxiter)
        for stop, share in _GOES_ON.items():
            more = more & ((ended != stop) | (norms < share * before))
        more = more & np.isin(ended, list(_GOES_ON)) & np.isfinite(norms)
        stops = np.where(going & ~more, _final(state, ended, norms), stops)
        going = more
    return stops, norms


def _norms(state: Iteration, r: Tensor) -> Array:
    return np.sqrt(state.dots((r, r))[0].real)


def _final(state: Iteration, ended: Array, norms: Array) -> Array:
    """Why columns stopped that are not iterated again."""
    out_of_time = state.iterations >= state.maxiter
    known = np.where(ended <= Stop.RESTART, Stop.MAXITER if out_of_time else Stop.STAGNATED, ended)
    known = np.where(np.isfinite(norms), known, Stop.NOT_FINITE)
    return np.where(state.too_large(norms), known, Stop.CONVERGED)
