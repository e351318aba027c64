"""`solve`: choose a method, check the system, report honestly."""

import logging
import math
import time
import warnings
import zlib
from numbers import Integral, Real
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.distributed.adjoint import differentiable_solve
from tensormesh.distributed.collectives import agree, all_gather_ints, all_reduce_sum
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.krylov import Solution, cg
from tensormesh.distributed.krylov.solution import Dots, Operator
from tensormesh.distributed.preconditioner import Jacobi
from tensormesh.distributed.product import ShardedProduct
from tensormesh.distributed.units import times_power, unit_exponents
from tensormesh.distributed.vector_map import VectorMap
from tensormesh.errors import NotConvergedError, SingularMatrixError, SolveError
from tensormesh.sparse.solve_info import SolveInfo

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix

logger = logging.getLogger(__name__)

_METHODS = ("auto", "cg")
_PRECONDITIONERS = ("auto", "jacobi", "none")
_ON_FAILURE = ("raise", "warn", "return")
# Roundings that a sum over a row, or a product with a probe vector, may be off by.
_SLACK = 1e3


def solve(
    A: "DSparseMatrix",
    b: Tensor,
    method: str,
    preconditioner: str,
    rtol: float,
    atol: float,
    maxiter: int | None,
    x0: Tensor | None,
    on_failure: str,
    return_info: bool,
) -> Tensor | tuple[Tensor, SolveInfo]:
    """Solve ``A x = b``; see `DSparseMatrix.solve`. **Collective over the device mesh.**"""
    vectors = A.layout.vectors
    options = (method, preconditioner, rtol, atol, maxiter, on_failure)
    with agree(vectors.device_mesh):
        _check_system(A, b, x0)
        _check_options(*options)
    _refuse_different((*options, x0 is None, b.dtype, A.values.dtype), vectors.device_mesh)
    dtype = torch.promote_types(A.values.dtype, b.dtype)
    bound = maxiter if maxiter is not None else min(max(1000, 10 * A.shape[0]), 50_000)
    infos: list[SolveInfo] = []
    first_guess = [None if x0 is None else x0.detach().to(dtype)]

    def solver(values: Tensor, right: Tensor) -> Tensor:
        # The guess is for the solution, not for the adjoint of a later backward.
        guess = first_guess.pop() if first_guess else None
        matrix = A._with_values(values)
        solution, info = _iterate(matrix, right, preconditioner, rtol, atol, bound, guess)
        infos.append(info)
        if not info.converged:
            _fail(info, rtol, on_failure)
        return solution

    x = differentiable_solve(A.layout, A.values.to(dtype), b.to(dtype), solver)
    return (x, infos[0]) if return_info else x


def _iterate(
    A: "DSparseMatrix",
    b: Tensor,
    preconditioner: str,
    rtol: float,
    atol: float,
    maxiter: int,
    x0: Tensor | None,
) -> tuple[Tensor, SolveInfo]:
    """Check the system, iterate, and report."""
    start = time.perf_counter()
    M: Operator | None = None if preconditioner == "none" else Jacobi(A)
    of_A, of_b = unit_exponents([A.values, b], A.layout.device_mesh)
    if of_A:
        A = A._with_values(times_power(A.values, -of_A))
        M = None if M is None else Jacobi(A)
    b, atol = times_power(b, -of_b), math.ldexp(atol, -of_b)
    x0 = None if x0 is None else times_power(x0, of_A - of_b)
    product = ShardedProduct(A.layout, A.values)
    dots = _dots(A.layout.vectors)
    _check_symmetric(product, b, dots, A.layout.owned_dofs)
    _check_translations_held(A, product, b)
    solution = cg(product, b, M, dots=dots, rtol=rtol, atol=atol, maxiter=maxiter, x0=x0)
    name = "none" if M is None else "jacobi"
    info = _report(solution, name, time.perf_counter() - start)
    logger.info("%s", info)
    return times_power(solution.x, of_b - of_A), info


def _dots(vectors: VectorMap) -> Dots:
    def dots(*pairs: tuple[Tensor, Tensor]) -> list[float]:
        local = torch.stack([torch.vdot(a, b).real for a, b in pairs])
        total: list[float] = all_reduce_sum(local, vectors.device_mesh).tolist()
        return total

    return dots


def _check_options(
    method: str,
    preconditioner: str,
    rtol: float,
    atol: float,
    maxiter: int | None,
    on_failure: str,
) -> None:
    choices = {
        "method": (method, _METHODS),
        "preconditioner": (preconditioner, _PRECONDITIONERS),
        "on_failure": (on_failure, _ON_FAILURE),
    }
    for name, (value, allowed) in choices.items():
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")
    numbers: dict[str, tuple[object, type, str]] = {
        "rtol": (rtol, Real, "a number"),
        "atol": (atol, Real, "a number"),
        "maxiter": (1 if maxiter is None else maxiter, Integral, "an integer or None"),
    }
    for name, (number, kind, expected) in numbers.items():
        if not isinstance(number, kind):
            raise TypeError(f"{name} must be {expected}, got {number!r}")
    if not (rtol >= 0 and atol >= 0 and max(rtol, atol) > 0):
        raise ValueError(f"rtol = {rtol}, atol = {atol}: give one positive, none negative")
    if maxiter is not None and maxiter < 1:
        raise ValueError(f"maxiter must be at least 1, got {maxiter}")


def _check_system(A: "DSparseMatrix", b: Tensor, x0: Tensor | None) -> None:
    for name, x in {"b": b, **({} if x0 is None else {"x0": x0})}.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if x.shape != (A.layout.n_owned,):
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}; expected this rank's owned slice, "
                f"[{A.layout.n_owned}] (dmesh.scatter makes it from a global vector)"
            )
    if not bool(torch.isfinite(b).all()) or not bool(torch.isfinite(A.values).all()):
        raise ValueError("the matrix or the right-hand side holds NaN or infinite entries")


def _refuse_different(options: tuple[object, ...], device_mesh: DeviceMesh) -> None:
    """Refuse options that differ between ranks, whose iterations would not match."""
    digests = all_gather_ints([zlib.crc32(repr(options).encode())], device_mesh)
    if bool((digests != digests[0]).any()):
        raise ValueError(
            "the ranks call solve with different options (method, preconditioner, rtol, atol, "
            f"maxiter, on_failure, whether x0 is None, dtypes); here they are {options}"
        )


def _check_symmetric(A: Operator, b: Tensor, dots: Dots, dofs: Tensor) -> None:
    """Refuse a matrix that is not Hermitian, which conjugate gradients would get wrong in silence.

    For two vectors of no particular direction, ``<x, A y> = <A x, y>``.
    """
    x = torch.sin(1.0 + dofs.to(torch.float64) * 0.73).to(b.dtype)
    y = torch.cos(2.0 + dofs.to(torch.float64) * 1.37).to(b.dtype)
    if b.is_complex():
        x, y = x + 1j * y, y - 0.5j * x
    Ax, Ay = A @ x, A @ y
    left, right, xx, ay, yy, ax = dots((x, Ay), (Ax, y), (x, x), (Ay, Ay), (y, y), (Ax, Ax))
    scale = max(math.sqrt(xx * ay), math.sqrt(yy * ax))
    if abs(left - right) > _SLACK * torch.finfo(b.dtype).eps * scale:
        raise ValueError(
            "the matrix is not symmetric, and method 'cg' needs it to be; for a matrix that fits "
            "on one device use to_single().solve()"
        )


def _check_translations_held(A: "DSparseMatrix", product: Operator, b: Tensor) -> None:
    """Refuse a system whose matrix maps a constant in some component to zero while `b` loads it.

    The usual cause is a missing Dirichlet condition. Of an elastic body these are translations.
    """
    layout, n = A.layout, b.shape[0]
    translations = torch.eye(layout.h, dtype=b.dtype, device=b.device).repeat(n // layout.h, 1)
    images = product @ translations
    row_sums = images.real.new_zeros(n)
    row_sums.index_add_(0, layout.pattern.row, A.values.detach().abs().to(row_sums.dtype))
    sums = torch.cat([images.abs().square().sum(0).to(b.dtype), translations.mH @ b])
    sums = torch.cat([sums, torch.stack([row_sums.square().sum().to(b.dtype), torch.vdot(b, b)])])
    found, loads, (size, bb) = all_reduce_sum(sums, layout.device_mesh).split([layout.h] * 2 + [2])
    slack = _SLACK * torch.finfo(b.dtype).eps
    free = found.abs() <= slack**2 * size.abs()
    loaded = loads.abs() > slack * (A.shape[0] / layout.h * bb.abs()).sqrt()
    bad = (free & loaded).nonzero().flatten().tolist()
    if bad:
        raise SingularMatrixError(
            f"the matrix maps constants (in component {bad[0]} of {layout.h}) to zero and the "
            "right-hand side loads them: no solution exists; constrain unknowns with Condenser, "
            "or give a right-hand side whose sum is zero"
        )


_ADVICE = {
    "maxiter": "raise maxiter, loosen rtol, or check that the system is well posed",
    "stagnated": "rounding keeps the residual above the tolerance: loosen rtol or use float64",
    "singular": "a direction has no energy: some motion is not held; add constraints",
    "indefinite": "the matrix is not positive definite: conjugate gradients does not apply",
    "not finite": "an overflow or NaN appeared: check coefficients and scaling",
}


def _report(solution: Solution, preconditioner: str, seconds: float) -> SolveInfo:
    return SolveInfo(
        converged=solution.converged,
        iterations=solution.iterations,
        residual=solution.residual,
        method="cg",
        preconditioner=preconditioner,
        reason=solution.reason,
        seconds=seconds,
        history=solution.history,
    )


def _fail(info: SolveInfo, rtol: float, on_failure: str) -> None:
    message = (
        f"{info.method} stopped after {info.iterations} iterations at a relative residual of "
        f"{info.residual:.3e} (rtol = {rtol:g}): {info.reason}; {_ADVICE[info.reason]}"
    )
    if on_failure == "raise":
        kinds: dict[str, type[SolveError]] = {"singular": SingularMatrixError}
        raise kinds.get(info.reason, NotConvergedError)(message)
    if on_failure == "warn":
        warnings.warn(message, RuntimeWarning, stacklevel=3)
