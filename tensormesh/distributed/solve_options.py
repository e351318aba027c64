"""What can be asked of `solve`, and what is refused."""

import zlib
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tensormesh.arguments import check_integer, check_tolerances
from tensormesh.distributed.collectives import all_gather_ints
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.sparse.krylov.choice import PRECONDITIONERS
from tensormesh.sparse.krylov.solution import Callback
from tensormesh.sparse.units import all_finite

METHODS = ("auto", "cg", "minres", "gmres", "bicgstab", "direct")
_ON_FAILURE = ("raise", "warn", "return")


@dataclass(frozen=True)
class SolveOptions:
    """Arguments of `DSparseMatrix.solve` beside the right-hand side."""

    method: str = "auto"
    preconditioner: Any = "auto"
    rtol: float | None = None
    atol: float = 0.0
    maxiter: int | None = None
    x0: Tensor | None = None
    on_failure: str = "raise"
    restart: int | None = None
    callback: Callback | None = None
    null_space: Tensor | str | None = None

    def check(self) -> None:
        """Refuse unknown choices and numbers out of range."""
        choices = {
            "method": (self.method, METHODS),
            "on_failure": (self.on_failure, _ON_FAILURE),
        }
        if not hasattr(type(self.preconditioner), "__matmul__"):
            choices["preconditioner"] = (self.preconditioner, PRECONDITIONERS)
        for name, (value, allowed) in choices.items():
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
        check_tolerances(self.rtol, self.atol)
        check_integer("maxiter", self.maxiter, 1, optional=True)
        check_integer("restart", self.restart, 1, optional=True)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable or None, got {self.callback!r}")
        given = self.preconditioner
        open_choice = isinstance(given, str) and given in ("auto", "none")
        if self.method == "direct" and not open_choice:
            raise ValueError("preconditioner needs an iterative method, not 'direct'")
        self._check_null_space()

    def _check_null_space(self) -> None:
        given = self.null_space
        if given is not None and self.method == "direct":
            raise ValueError("null_space needs an iterative method, not 'direct'")
        if isinstance(given, str) and given != "constants":
            raise ValueError(f"null_space must be a tensor, 'constants' or None, got {given!r}")
        if not isinstance(given, Tensor | str | None):
            raise TypeError(f"null_space must be a tensor, 'constants' or None, got {given!r}")

    def bound(self, n: int) -> int:
        """Bound of the iterations for `n` global unknowns."""
        return self.maxiter if self.maxiter is not None else min(max(1000, 10 * n), 50_000)

    def refuse_different(self, b: Tensor, values: Tensor, device_mesh: DeviceMesh) -> None:
        """Refuse what differs between ranks, whose iterations would not match. **Collective.**"""
        given, given_space = self.preconditioner, self.null_space
        options = {
            "method": self.method,
            "preconditioner": given if isinstance(given, str) else type(given).__name__,
            "rtol": self.rtol,
            "atol": self.atol,
            "maxiter": self.maxiter,
            "x0": self.x0 is not None,
            "on_failure": self.on_failure,
            "restart": self.restart,
            "null_space": given_space
            if isinstance(given_space, str | None)
            else tuple(given_space.shape[1:]),
            "columns of b": tuple(b.shape[1:]),
            "dtypes": (b.dtype, values.dtype),
        }
        digests = all_gather_ints([zlib.crc32(repr(options).encode())], device_mesh)
        if bool((digests != digests[0]).any()):
            raise ValueError(
                f"the ranks call solve with different options; here they are {options}"
            )


def check_vectors(b: Any, x0: Any, null_space: Any, n_owned: int) -> None:
    """Refuse what are not owned slices, or not finite."""
    given = {"b": b, "x0": x0, "null_space": null_space}
    for name, x in given.items():
        if name != "b" and (x is None or isinstance(x, str)):
            continue
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if x.dim() not in (1, 2) or x.shape[0] != n_owned:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}; expected this rank's owned slice, "
                f"[{n_owned}] or [{n_owned}, k] (dmesh.scatter makes it from a global vector)"
            )
        if not all_finite(x):
            raise ValueError(f"{name} holds NaN or infinite entries")
    if b.dim() == 2 and b.shape[1] == 0:
        raise ValueError("b has no columns")
    if isinstance(null_space, Tensor) and null_space.dim() != 2:
        raise ValueError(f"null_space has shape {tuple(null_space.shape)}; expected [{n_owned}, m]")
    if x0 is not None and x0.shape != b.shape:
        raise ValueError(f"x0 has shape {tuple(x0.shape)}, b has {tuple(b.shape)}")
