"""Choose how to solve a sparse system on one device, and check what was asked for."""

import time
from typing import Any

import torch
from torch import Tensor

from tensormesh.sparse.adjoint import Solver, differentiable_solve
from tensormesh.sparse.direct import Direct
from tensormesh.sparse.iterative import PYTORCH, SCIPY, Iterative
from tensormesh.sparse.krylov.choice import METHODS
from tensormesh.sparse.krylov.solution import Callback
from tensormesh.sparse.krylov_solver import Krylov
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import multiply
from tensormesh.sparse.solve_info import SolveInfo
from tensormesh.sparse.units import all_finite

_DIRECT = ("auto", "lu", "direct")
# Preconditioners that leave the choice of a method open.
_ANY_METHOD = ("auto", "none")
_METHODS = {
    "auto": (*_DIRECT, *SCIPY, *(m for m in PYTORCH if m not in SCIPY)),
    "scipy": (*_DIRECT, *SCIPY),
    "pytorch": PYTORCH,
}


def solve(
    pattern: SparsityPattern,
    values: Tensor,
    b: Tensor,
    backend: str = "auto",
    method: str = "auto",
    atol: float = 0.0,
    maxiter: int = 10000,
    tol: float = 1e-10,
    *,
    preconditioner: Any = "auto",
    x0: Tensor | None = None,
    on_failure: str = "raise",
    restart: int = 50,
    callback: Callback | None = None,
    null_space: Tensor | str | None = None,
) -> tuple[Tensor, SolveInfo]:
    """Solve ``A x = b``; see `SparseMatrix.solve` for the arguments.

    Returns
    -------
    x, info
        The solution in the shape of `b`, and the account of it.
    """
    _check(backend, method, atol, maxiter, tol, preconditioner, on_failure)
    for name, x in {"the matrix": values, "b": b}.items():
        if not all_finite(x):
            raise ValueError(f"{name} holds NaN or infinite entries")
    asked = {
        "preconditioner": not (isinstance(preconditioner, str) and preconditioner in _ANY_METHOD),
        "null_space": null_space is not None,
    }
    if method in ("lu", "direct") or (method == "auto" and not any(asked.values())):
        _refuse(asked, f"needs an iterative method, such as 'cg', not {method!r}")
        return direct(Direct(), pattern, values, b)
    if x0 is not None and x0.shape != b.shape:
        raise ValueError(f"x0 has shape {tuple(x0.shape)}, b has {tuple(b.shape)}")
    _check_krylov(restart, callback, null_space, b)
    guess = None if x0 is None else x0.detach()
    solver: Iterative | Krylov
    if backend == "auto" and method in ("auto", *METHODS):
        solver = Krylov(
            method, preconditioner, tol, atol, maxiter, on_failure, restart, guess, callback,
            null_space,
        )  # fmt: skip
    else:
        plain = isinstance(preconditioner, str) and preconditioner in ("jacobi", *_ANY_METHOD)
        asked["preconditioner"] = not plain
        asked["callback"] = callback is not None
        _refuse(asked, f"is for backend='auto' and methods {', '.join(METHODS)}")
        chosen = ("scipy" if method in SCIPY else "pytorch") if backend == "auto" else backend
        solver = Iterative(method, chosen, preconditioner, tol, atol, maxiter, on_failure, guess)
    x = differentiable_solve(solver, pattern, values, b)
    name = preconditioner if isinstance(preconditioner, str) else "none"
    return x, solver.info or SolveInfo(True, 0, 0.0, method, name, "nothing to solve", 0.0)


def direct(
    solver: Solver, pattern: SparsityPattern, values: Tensor, b: Tensor
) -> tuple[Tensor, SolveInfo]:
    """Solve with a direct solver, and compute the residual anew."""
    start = time.perf_counter()
    x = differentiable_solve(solver, pattern, values, b)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        columns = b.to(x.dtype) if b.dim() == 2 else b.to(x.dtype).unsqueeze(1)
        left = columns - multiply(pattern, values, x).reshape(columns.shape)
        sizes = columns.norm(dim=0)
        shares = left.norm(dim=0) / torch.where(sizes > 0, sizes, torch.ones_like(sizes))
        residual = float(shares.max()) if shares.numel() else 0.0
    return x, SolveInfo(True, 0, residual, "lu", "none", "direct", seconds)


def _refuse(asked: dict[str, bool], why: str) -> None:
    for name, given in asked.items():
        if given:
            raise ValueError(f"{name} {why}")


def _check_krylov(
    restart: int, callback: Callback | None, null_space: Tensor | str | None, b: Tensor
) -> None:
    if not isinstance(restart, int) or restart < 1:
        raise ValueError(f"restart must be an integer of at least 1, got {restart!r}")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {callback!r}")
    if isinstance(null_space, Tensor):
        if null_space.dim() != 2 or null_space.shape[0] != b.shape[0]:
            raise ValueError(
                f"null_space has shape {tuple(null_space.shape)}; expected [{b.shape[0]}, m]"
            )
    elif null_space not in (None, "constants"):
        raise ValueError(f"null_space must be a tensor, 'constants' or None, got {null_space!r}")


def _check(
    backend: str,
    method: str,
    atol: float,
    maxiter: int,
    tol: float,
    preconditioner: Any,
    on_failure: str,
) -> None:
    if backend not in _METHODS:
        raise ValueError(f"backend must be one of {', '.join(_METHODS)}, got {backend!r}")
    if backend == "pytorch" and method == "auto":
        raise ValueError(f"backend = 'pytorch' needs a method: one of {', '.join(PYTORCH)}")
    choices = {
        "method": (method, _METHODS[backend]),
        "on_failure": (on_failure, ("raise", "warn", "return")),
    }
    if not hasattr(type(preconditioner), "__matmul__"):
        choices["preconditioner"] = (preconditioner, ("jacobi", "multilevel", *_ANY_METHOD))
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            where = f" of backend {backend!r}" if name == "method" else ""
            raise ValueError(f"{name}{where} must be one of {', '.join(allowed)}, got {value!r}")
    if not (tol >= 0 and atol >= 0 and max(tol, atol) > 0):
        raise ValueError(f"tol = {tol}, atol = {atol}: give one positive, none negative")
    if maxiter < 1:
        raise ValueError(f"maxiter must be at least 1, got {maxiter}")
