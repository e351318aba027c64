"""What a Krylov method is given and what it returns."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

# Numbers of columns on the host, in double precision: of shape [], or [k] for k columns.
Array = np.ndarray[Any, np.dtype[Any]]
# Sum of a small tensor over the ranks, on the host.
Total = Callable[[Tensor], Array]
# Told the number of the iteration and the relative residual of the worst column.
Callback = Callable[[int, float], object]


class Operator(Protocol):
    """Anything with ``@``, from ``[n_owned]`` to ``[n_owned]``, or from columns to columns."""

    def __matmul__(self, x: Tensor, /) -> Tensor:
        """Product."""


@dataclass
class Solution:
    """Result of a Krylov method: ``x``, and how it was reached.

    Parameters
    ----------
    x
        Owned slice of the solution, ``[n_owned]`` or ``[n_owned, k]``.
    converged
        Whether the residual of ``x`` itself met the tolerance, in every column.
    iterations
        Number of iterations; of several columns, those of the slowest.
    residual
        Norm of ``b - A x`` over the norm of ``b``; of several columns, that of the worst.
    reason
        Why it stopped: a value of `Stop`; of several columns, that of the worst.
    history
        Relative residual of each iteration by the recurrence; of several columns, the largest.
    """

    x: Tensor
    converged: bool
    iterations: int
    residual: float
    reason: str
    history: list[float] = field(default_factory=list)

    def followed_by(self, other: "Solution") -> "Solution":
        """Account of `other`, which came after this one."""
        return replace(
            other,
            iterations=self.iterations + other.iterations,
            history=self.history + other.history,
        )


def sum_on_one_rank(x: Tensor) -> Array:
    """`Total` of a single rank."""
    wide = torch.complex128 if x.is_complex() else torch.float64
    return x.detach().to(wide).cpu().resolve_conj().numpy()


def numbers_beside(x: Tensor, numbers: Array) -> Tensor:
    """Numbers of the host where `x` is, in its dtype."""
    return torch.as_tensor(numbers, dtype=x.dtype, device=x.device)


def add_scaled_(y: Tensor, alpha: Array, x: Tensor) -> None:
    """``y += alpha x`` in place, with a number for each column."""
    if alpha.ndim == 0:
        y.add_(x, alpha=alpha.item())
    else:
        y.addcmul_(x, numbers_beside(y, alpha))


def scale_(x: Tensor, alpha: Array) -> None:
    """``x *= alpha`` in place, with a number for each column."""
    x.mul_(alpha.item() if alpha.ndim == 0 else numbers_beside(x, alpha))


def scale_and_add_(x: Tensor, alpha: Array, y: Tensor) -> None:
    """``x = alpha x + y`` in place, with a number for each column."""
    if alpha.ndim == 0:
        torch.add(y, x, alpha=alpha.item(), out=x)
    else:
        torch.addcmul(y, x, numbers_beside(x, alpha), out=x)


def scaled(x: Tensor, alpha: Array) -> Tensor:
    """``alpha x`` in a tensor of its own, with a number for each column."""
    return x * (alpha.item() if alpha.ndim == 0 else numbers_beside(x, alpha))
