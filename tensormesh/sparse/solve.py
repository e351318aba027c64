"""Choose how to solve a sparse system on one device, and check what was asked for."""

import time

import torch
from torch import Tensor

from tensormesh.sparse.adjoint import differentiable_solve
from tensormesh.sparse.direct import direct_solve
from tensormesh.sparse.iterative import PYTORCH, SCIPY, Iterative
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import multiply
from tensormesh.sparse.solve_info import SolveInfo

_DIRECT = ("auto", "lu")
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
    preconditioner: str = "auto",
    x0: Tensor | None = None,
    on_failure: str = "raise",
) -> tuple[Tensor, SolveInfo]:
    """Solve ``A x = b``; see `SparseMatrix.solve` for the arguments.

    Returns
    -------
    x, info
        The solution in the shape of `b`, and the account of it.
    """
    _check(backend, method, atol, maxiter, tol, preconditioner, on_failure)
    if method in _DIRECT:
        return _direct(pattern, values, b, preconditioner)
    chosen = _backend(backend, method)
    if x0 is not None and x0.shape != b.shape:
        raise ValueError(f"x0 has shape {tuple(x0.shape)}, b has {tuple(b.shape)}")
    guess = None if x0 is None else x0.detach()
    solver = Iterative(method, chosen, preconditioner, tol, atol, maxiter, on_failure, guess)
    x = differentiable_solve(solver, pattern, values, b)
    return x, solver.info or SolveInfo(True, 0, 0.0, method, "none", "nothing to solve", 0.0)


def _direct(
    pattern: SparsityPattern, values: Tensor, b: Tensor, preconditioner: str
) -> tuple[Tensor, SolveInfo]:
    if preconditioner == "jacobi":
        raise ValueError("preconditioner = 'jacobi' needs an iterative method, such as 'cg'")
    start = time.perf_counter()
    x = direct_solve(pattern, values, b)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        right = b.to(x.dtype)
        size = float(right.norm())
        residual = float((right - multiply(pattern, values, x)).norm()) / size if size else 0.0
    return x, SolveInfo(True, 0, residual, "lu", "none", "direct", seconds)


def _backend(backend: str, method: str) -> str:
    if backend == "auto":
        return "scipy" if method in SCIPY else "pytorch"
    return backend


def _check(
    backend: str,
    method: str,
    atol: float,
    maxiter: int,
    tol: float,
    preconditioner: str,
    on_failure: str,
) -> None:
    if backend not in _METHODS:
        raise ValueError(f"backend must be one of {', '.join(_METHODS)}, got {backend!r}")
    if backend == "pytorch" and method == "auto":
        raise ValueError(f"backend = 'pytorch' needs a method: one of {', '.join(PYTORCH)}")
    choices = {
        "method": (method, _METHODS[backend]),
        "preconditioner": (preconditioner, ("auto", "jacobi", "none")),
        "on_failure": (on_failure, ("raise", "warn", "return")),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            where = f" of backend {backend!r}" if name == "method" else ""
            raise ValueError(f"{name}{where} must be one of {', '.join(allowed)}, got {value!r}")
    if not (tol >= 0 and atol >= 0 and max(tol, atol) > 0):
        raise ValueError(f"tol = {tol}, atol = {atol}: give one positive, none negative")
    if maxiter < 1:
        raise ValueError(f"maxiter must be at least 1, got {maxiter}")
