"""What Newton's method reports."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class NewtonStep:
    """One step of Newton's method.

    Parameters
    ----------
    residual
        ``|F|`` over the free unknowns after the step.
    length
        Share of the full step that was taken.
    linear_iterations
        Iterations of the linear solver; 0 of a direct one.
    """

    residual: float
    length: float
    linear_iterations: int


@dataclass(frozen=True)
class NewtonInfo:
    """Honest account of a nonlinear solve.

    Parameters
    ----------
    converged
        Whether the residual met the tolerance.
    iterations
        Number of steps.
    initial
        ``|F|`` that `rtol` refers to: at the first guess, with the forces that the prescribed
        values add if the first guess does not have them.
    residual
        ``|F|`` at the solution.
    reason
        Why it stopped.
    seconds
        Wall-clock time.
    steps
        The steps in order.
    """

    converged: bool
    iterations: int
    initial: float
    residual: float
    reason: str
    seconds: float
    steps: list[NewtonStep] = field(default_factory=list, repr=False)

    @property
    def residuals(self) -> list[float]:
        """``|F|`` before the first and after each step."""
        return [self.initial, *(step.residual for step in self.steps)]
