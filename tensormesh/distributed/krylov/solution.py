"""What a Krylov method returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

Pair = tuple[Tensor, Tensor]
# Inner products of pairs of vectors, summed over the ranks in one message.
Dots = Callable[..., list[float]]


class Operator(Protocol):
    """Anything with ``@``, from ``[n_owned]`` to ``[n_owned]``."""

    def __matmul__(self, x: Tensor, /) -> Tensor:
        """Product."""


@dataclass
class Solution:
    """Result of a Krylov method: ``x``, and how it was reached.

    Parameters
    ----------
    x
        Owned slice of the solution, ``[n_owned]``.
    converged
        Whether the residual of ``x`` itself met the tolerance.
    iterations
        Number of iterations.
    residual
        Norm of ``b - A x`` over the norm of ``b``.
    reason
        Why it stopped: ``"converged"``, ``"maxiter"``, ``"singular"``, ``"indefinite"``,
        ``"stagnated"`` or ``"not finite"``.
    history
        Relative residual of each iteration by the recurrence.
    """

    x: Tensor
    converged: bool
    iterations: int
    residual: float
    reason: str
    history: list[float] = field(default_factory=list)
