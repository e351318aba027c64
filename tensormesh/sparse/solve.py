"""Choose how to solve a sparse system on one device, and check what was asked for."""

import time
from typing import Any

import torch
from torch import Tensor

from tensormesh.arguments import check_integer, check_tolerances
from tensormesh.sparse.adjoint import Solver, differentiable_solve
from tensormesh.sparse.direct import Direct
from tensormesh.sparse.iterative import PYTORCH, SCIPY, Iterative
from tensormesh.sparse.krylov.choice import METHODS, PRECONDITIONERS, RESTART, default_rtol
from tensormesh.sparse.krylov.solution import Callback
from tensormesh.sparse.krylov_solver import Krylov
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import multiply
from tensormesh.sparse.solve_info import SolveInfo
from tensormesh.sparse.units import all_finite

_DIRECT = ("auto", "lu", "direct")
# Bound of the iterations.
_MAXITER = 10_000
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
    maxiter: int | None = None,
    tol: float | None = None,
    *,
    rtol: float | None = None,
    preconditioner: Any = "auto",
    x0: Tensor | None = None,
    on_failure: str = "raise",
    restart: int | None = None,
    callback: Callback | None = None,
    null_space: Tensor | str | None = None,
) -> tuple[Tensor, SolveInfo]:
    """Solve ``A x = b``; see `SparseMatrix.solve` for the arguments.

    Returns
    -------
    x, info
        The solution in the shape of `b`, and the account of it.
    """
    _check_choices(backend, method, preconditioner, on_failure)
    check_tolerances(tol, atol, ("tol", "atol"))
    check_tolerances(rtol, atol)
    check_integer("maxiter", maxiter, 1, optional=True)
    _check_krylov(restart, callback, null_space, b)
    for name, x in {"the matrix": values, "b": b}.items():
        if not all_finite(x):
            raise ValueError(f"{name} holds NaN or infinite entries")
    plain = isinstance(preconditioner, str) and preconditioner in _ANY_METHOD
    asked = {"preconditioner": not plain, "null_space": null_space is not None}
    iterative = {"x0": x0, "callback": callback, "maxiter": maxiter, "restart": restart}
    given = [name for name, option in iterative.items() if option is not None]
    given += ["preconditioner"] * (not isinstance(preconditioner, str) or preconditioner != "auto")
    if method in ("lu", "direct") or (method == "auto" and not (given or any(asked.values()))):
        _refuse(asked, f"needs an iterative method, such as 'cg', not {method!r}")
        return direct(Direct(), pattern, values, b)
    if method == "auto" and backend != "auto":
        names = ", ".join(given or [name for name in asked if asked[name]])
        raise ValueError(f"backend = {backend!r} with {names} needs a method, such as 'cg'")
    if x0 is not None and x0.shape != b.shape:
        raise ValueError(f"x0 has shape {tuple(x0.shape)}, b has {tuple(b.shape)}")
    guess = None if x0 is None else x0.detach()
    tol = tol if rtol is None else rtol
    dtype = torch.promote_types(values.dtype, b.dtype)
    tol = default_rtol(dtype) if tol is None else tol
    bound = _MAXITER if maxiter is None else maxiter
    solver: Iterative | Krylov
    if backend == "auto" and method in ("auto", *METHODS):
        solver = Krylov(
            method, preconditioner, tol, atol, bound, on_failure, restart or RESTART, guess,
            callback, null_space,
        )  # fmt: skip
    else:
        asked["preconditioner"] = not (plain or preconditioner == "jacobi")
        asked["callback"] = callback is not None
        _refuse(asked, f"is for backend='auto' and methods {', '.join(METHODS)}")
        chosen = ("scipy" if method in SCIPY else "pytorch") if backend == "auto" else backend
        solver = Iterative(method, chosen, preconditioner, tol, atol, bound, on_failure, guess)
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


def _check_krylov(restart: Any, callback: Any, null_space: Tensor | str | None, b: Tensor) -> None:
    check_integer("restart", restart, 1, optional=True)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable or None, got {callback!r}")
    if isinstance(null_space, Tensor):
        if null_space.dim() != 2 or null_space.shape[0] != b.shape[0]:
            raise ValueError(
                f"null_space has shape {tuple(null_space.shape)}; expected [{b.shape[0]}, m]"
            )
    elif null_space not in (None, "constants"):
        raise ValueError(f"null_space must be a tensor, 'constants' or None, got {null_space!r}")


def _check_choices(backend: str, method: str, preconditioner: Any, on_failure: str) -> None:
    if backend not in _METHODS:
        raise ValueError(f"backend must be one of {', '.join(_METHODS)}, got {backend!r}")
    if backend == "pytorch" and method == "auto":
        raise ValueError(f"backend = 'pytorch' needs a method: one of {', '.join(PYTORCH)}")
    choices = {
        "method": (method, _METHODS[backend]),
        "on_failure": (on_failure, ("raise", "warn", "return")),
    }
    if not hasattr(type(preconditioner), "__matmul__"):
        choices["preconditioner"] = (preconditioner, PRECONDITIONERS)
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            where = f" of backend {backend!r}" if name == "method" else ""
            raise ValueError(f"{name}{where} must be one of {', '.join(allowed)}, got {value!r}")
