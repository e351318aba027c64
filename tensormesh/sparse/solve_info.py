"""What an iterative solve reports."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SolveInfo:
    """Honest account of a solve.

    Parameters
    ----------
    converged
        Whether the residual, computed anew from the solution, met the tolerance.
    iterations
        Number of iterations.
    residual
        ``|b - A x| / |b|``, computed anew from the solution; zero if ``b`` is zero. Of a result in
        single precision: that of the solution in double precision, before it is rounded.
    method, preconditioner
        Names of what ran.
    reason
        Why it stopped.
    seconds
        Wall-clock time.
    history
        Relative residual of each iteration, as the recurrence has it.
    """

    converged: bool
    iterations: int
    residual: float
    method: str
    preconditioner: str
    reason: str
    seconds: float
    history: list[float] = field(default_factory=list, repr=False)
