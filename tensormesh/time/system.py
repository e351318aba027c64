"""One matrix, solved with in each step."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tensormesh.arguments import check_number

# What a direct solve takes or leaves: with no other options a serial matrix is factored, once.
_OF_DIRECT = {"method", "rtol", "tol", "atol", "maxiter", "on_failure"}


class StepSystem:
    """``A x = b`` where `x` is given on constrained unknowns: condensed once, solved often.

    Parameters
    ----------
    A
        `SparseMatrix` or `DSparseMatrix`.
    condenser
        `Condenser` of the constrained unknowns, or None.
    solve_options
        Arguments of ``solve``.

    Attributes
    ----------
    reduced
        The matrix of the free unknowns.
    """

    def __init__(self, A: Any, condenser: Any, solve_options: Mapping[str, Any] | None) -> None:
        self._full, self._condenser = A, condenser
        self._solve_options = dict(solve_options or {})
        self.reduced = A if condenser is None else condenser(A)[0]
        options = self._solve_options
        direct = options.get("method", "auto") in ("auto", "lu", "direct")
        once = direct and set(options) <= _OF_DIRECT and hasattr(self.reduced, "factorized")
        self._factors = self.reduced.factorized() if once else None

    def solve(self, b: Tensor, given: Tensor | None, guess: Tensor) -> Tensor:
        """``x`` with the entries of `given` on constrained unknowns; without it, zero there."""
        if self._condenser is None:
            return self._solve(b, guess)
        restrict, prolong = self._condenser.restrict, self._condenser.prolong
        lifted = None if given is None else given - prolong(restrict(given))
        right = b if lifted is None else b - self._full @ lifted
        x: Tensor = prolong(self._solve(restrict(right), restrict(guess)))
        return x if lifted is None else x + lifted

    def _solve(self, b: Tensor, guess: Tensor) -> Tensor:
        if self._factors is not None:
            x: Tensor = self._factors.solve(b)
        else:
            x = self.reduced.solve(b, **{"x0": guess, **self._solve_options})
        return x

    def prescribed(self, like: Tensor, value: Tensor | None) -> Tensor | None:
        """Vector of the condenser's values, zero on free unknowns; `value` replaces them first."""
        if self._condenser is None:
            if value is not None:
                raise ValueError("prescribed values were given, but there is no condenser")
            return None
        if value is not None:
            self._condenser.update_dirichlet(value)
        prescribed: Tensor = self._condenser.recover(
            torch.zeros_like(self._condenser.restrict(like))
        )
        return prescribed


def check_numbers(**numbers: Any) -> None:
    """Refuse parameters of a scheme that are no numbers; a tensor is one, to be differentiated."""
    for name, number in numbers.items():
        if not isinstance(number, Tensor):
            check_number(name, number)


def check_step(dt: Any) -> None:
    """Refuse a step of time that is not positive."""
    check_numbers(dt=dt)
    if not dt > 0:
        raise ValueError(f"dt must be positive, got {dt!r}")


def between(old: Tensor | None, new: Tensor | None, share: float) -> Tensor | float:
    """Load ``(1 - share) old + share new``; a load alone is constant, none is zero."""
    if old is None:
        return 0.0 if new is None else new
    return old if new is None else torch.lerp(old, new, share)
