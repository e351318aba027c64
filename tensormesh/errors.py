"""What can go wrong in a solve, as exceptions that say so."""


class SolveError(RuntimeError):
    """A linear system could not be solved; the message says why and what to try."""


class SingularMatrixError(SolveError):
    """The matrix has a null space, for instance rigid motions that no condition holds."""


class NotConvergedError(SolveError):
    """An iteration stopped before it reached its tolerance."""
