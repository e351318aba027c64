"""What the user's code raises on one rank reaches all of them, without a message of its own."""

from typing import Any

import torch
from torch import Tensor

from tensormesh.distributed.collectives import raise_together
from tensormesh.distributed.system import System
from tensormesh.sparse.krylov.preconditioner import Preconditioner, name_of
from tensormesh.sparse.krylov.solution import Array, Callback


class Guard:
    """Keeps an exception until the next sum over the ranks, which tells all of them of it.

    A rank where the user's code has failed goes on with what takes part in the products and sums of
    the iteration, so that no other one waits; the next sum has one number more, and all raise.

    Parameters
    ----------
    system
        Whose sums are taken.
    """

    def __init__(self, system: System) -> None:
        self._system, self._device_mesh = system, system.matrix.layout.device_mesh
        self._error: Exception | None = None

    def total(self, x: Tensor) -> Array:
        """Sum of a small tensor over the ranks, as `System.total`; raises what was kept."""
        failed = x.new_full((1,), float(self._error is not None))
        sums = self._system.total(torch.cat([x.flatten(), failed]))
        if sums[-1] != 0:
            raise_together(self._error, self._device_mesh)
        found: Array = sums[:-1].reshape(x.shape)
        return found

    def callback(self, call: Callback) -> Callback:
        """`call`, which does not raise."""

        def guarded(iteration: int, residual: float) -> None:
            if self._error is None:
                try:
                    call(iteration, residual)
                except Exception as error:
                    self._error = error

        return guarded

    def preconditioner(self, M: Preconditioner) -> Preconditioner:
        """`M`, which does not raise."""
        return _Guarded(M, self)

    def product(self, M: Preconditioner, r: Tensor) -> Tensor:
        """``M @ r``, or `r` itself where that has failed."""
        if self._error is None:
            try:
                return _checked(M @ r, r, name_of(M))
            except Exception as error:
                self._error = error
        return r


class _Guarded:
    def __init__(self, M: Preconditioner, guard: Guard) -> None:
        self._M, self._guard, self.name = M, guard, name_of(M)

    def __matmul__(self, r: Tensor) -> Tensor:
        return self._guard.product(self._M, r)


def _checked(x: Any, r: Tensor, name: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"preconditioner {name!r} gives {type(x).__name__}; expected a tensor")
    if x.shape != r.shape:
        raise ValueError(
            f"preconditioner {name!r} gives shape {tuple(x.shape)} for {tuple(r.shape)}; expected "
            "the same"
        )
    return x
