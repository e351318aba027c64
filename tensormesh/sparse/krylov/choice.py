"""Which method fits a matrix, and what is said of one that did not converge."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tensormesh.errors import NotConvergedError, SingularMatrixError, SolveError
from tensormesh.sparse.krylov.bicgstab import bicgstab
from tensormesh.sparse.krylov.cg import cg
from tensormesh.sparse.krylov.gmres import gmres
from tensormesh.sparse.krylov.iteration import dots
from tensormesh.sparse.krylov.minres import minres
from tensormesh.sparse.krylov.solution import Operator, Solution, Total
from tensormesh.sparse.solve_info import SolveInfo

METHODS: dict[str, Callable[..., Solution]] = {
    "cg": cg,
    "minres": minres,
    "gmres": gmres,
    "bicgstab": bicgstab,
}
# Roundings that a sum over a row, or a product with a probe vector, may be off by.
SLACK = 1e3


@dataclass(frozen=True)
class Kind:
    """What decides which method fits.

    Parameters
    ----------
    hermitian
        Whether the matrix equals its conjugate transpose.
    diagonal
        ``"positive"``, ``"with zeros"`` or ``"any"``.
    """

    hermitian: bool
    diagonal: str


def is_hermitian(
    A: Operator, numbers: Tensor, dtype: torch.dtype, eps: float, total: Total
) -> bool:
    """Whether ``<x, A y> = <A x, y>`` for two vectors of no particular direction.

    Parameters
    ----------
    A
        The matrix.
    numbers
        Global numbers of the unknowns, ``[n_owned]``.
    dtype
        That of the entries.
    eps
        Their precision.
    total
        Sum of a small tensor over the ranks.
    """
    x = torch.sin(1.0 + numbers.to(torch.float64) * 0.73).to(dtype)
    y = torch.cos(2.0 + numbers.to(torch.float64) * 1.37).to(dtype)
    if dtype.is_complex:
        x, y = x + 1j * y, y - 0.5j * x
    Ax, Ay = A @ x, A @ y
    pairs = ((x, Ay), (Ax, y), (x, x), (Ay, Ay), (y, y), (Ax, Ax))
    left, right, xx, ay, yy, ax = dots(total, *pairs)
    scale = max(math.sqrt(xx.real * ay.real), math.sqrt(yy.real * ax.real))
    return bool(abs(left - right) <= SLACK * eps * scale)


def method_for(kind: Kind, wanted: str, preconditioner: Any = "auto") -> str:
    """Choose a method that fits, or refuse the one that was asked for and does not."""
    if wanted == "auto" and not kind.hermitian:
        return "gmres"
    if wanted == "auto":
        return "cg" if kind.diagonal == "positive" else _of_indefinite(preconditioner)
    if wanted in ("cg", "minres") and not kind.hermitian:
        raise ValueError(
            f"the matrix is not symmetric (complex: not Hermitian), and method {wanted!r} needs it "
            "to be; use 'auto', 'gmres' or 'bicgstab'"
        )
    if wanted == "cg" and kind.diagonal != "positive":
        raise ValueError(
            "diagonal entries are not positive, so that the matrix is not positive definite, as "
            "method 'cg' needs it to be; use 'auto' or 'minres'"
        )
    return wanted


def method_after(method: str, reason: str, preconditioner: Any) -> str | None:
    """Method that goes on where one that was chosen here has found that it does not fit, or None.

    Parameters
    ----------
    method, reason
        What stopped, and why.
    preconditioner
        What was asked for.
    """
    if method == "cg" and reason == "indefinite":
        return _of_indefinite(preconditioner)
    if method in ("cg", "minres") and reason == "indefinite preconditioner":
        automatic = isinstance(preconditioner, str) and preconditioner == "auto"
        return "minres" if automatic and method == "cg" else "gmres"
    return None


def _of_indefinite(preconditioner: Any) -> str:
    """Method for an indefinite Hermitian matrix: minres needs a definite preconditioner."""
    blocks = isinstance(preconditioner, str) and preconditioner == "schwarz"
    return "gmres" if blocks else "minres"


# Preconditioners by name.
PRECONDITIONERS = ("auto", "jacobi", "multilevel", "schwarz", "none")
# Length of a cycle of gmres.
RESTART = 50
# Unknowns beyond which levels are worth their set-up.
MANY = 5_000


def automatic_preconditioner(n: int, dtype: torch.dtype, levels: bool) -> str:
    """Name of the preconditioner that fits.

    Parameters
    ----------
    n
        Global unknowns.
    dtype
        Of the entries.
    levels
        Whether the matrix seems to be symmetric positive definite.
    """
    return "multilevel" if levels and n > MANY and not dtype.is_complex else "jacobi"


def default_rtol(dtype: torch.dtype) -> float:
    """Relative tolerance where none is given: 1e-10, of results in single precision 1e-8."""
    return 1e-10 if torch.finfo(dtype).eps < 1e-10 else 1e-8


_ADVICE = {
    "maxiter": "raise maxiter, loosen rtol, or check that the system is well posed",
    "stagnated": "more iterations of this kind do not help: loosen rtol, use float64, another "
    "method or preconditioner, or a larger restart of gmres",
    "breakdown": "the recurrence of the method cannot go on: use 'gmres'",
    "singular": "a direction has no energy: some motion is not held; add constraints",
    "indefinite": "the matrix is not positive definite: use 'auto' or 'minres'",
    "indefinite preconditioner": "the preconditioner is not Hermitian positive definite, as this "
    "method needs it to be",
    "not finite": "an overflow or NaN appeared: check coefficients and scaling",
}


def report_failure(info: SolveInfo, rtol: float, on_failure: str) -> None:
    """Raise, warn of or keep what did not converge, as asked for."""
    message = (
        f"{info.method} stopped after {info.iterations} iterations at a relative residual of "
        f"{info.residual:.3e} (rtol = {rtol:g}): {info.reason}; {_ADVICE[info.reason]}"
    )
    if on_failure == "raise":
        kinds: dict[str, type[SolveError]] = {"singular": SingularMatrixError}
        raise kinds.get(info.reason, NotConvergedError)(message)
    if on_failure == "warn":
        warnings.warn(message, RuntimeWarning, stacklevel=3)
