"""`solve`: choose a method, iterate, report honestly."""

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tensormesh.distributed.adjoint import differentiable_solve
from tensormesh.distributed.collectives import agree
from tensormesh.distributed.direct import direct
from tensormesh.distributed.guard import Guard
from tensormesh.distributed.owned_vector import like
from tensormesh.distributed.preconditioner import (
    Adjoint,
    Jacobi,
    Preconditioner,
    Scaled,
    preconditioner_named,
)
from tensormesh.distributed.solve_options import SolveOptions, check_vectors
from tensormesh.distributed.system import System
from tensormesh.distributed.units import unit_exponents
from tensormesh.sparse.krylov.choice import (
    METHODS,
    RESTART,
    Kind,
    default_rtol,
    method_after,
    method_for,
    report_failure,
)
from tensormesh.sparse.krylov.null_space import NullSpace, Projected, vectors_of
from tensormesh.sparse.krylov.preconditioner import InDtype, name_of
from tensormesh.sparse.krylov.solution import Array, Solution
from tensormesh.sparse.solve_info import SolveInfo
from tensormesh.sparse.units import all_finite, times_power

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix

logger = logging.getLogger(__name__)


def solve(
    A: "DSparseMatrix", b: Any, options: SolveOptions, transposed: bool = False
) -> tuple[Any, SolveInfo]:
    """Solve ``A x = b`` or ``A.T x = b``; see `DSparseMatrix.solve`. **Collective.**"""
    if isinstance(b, DTensor):
        guess = options.x0
        guess = guess.to_local() if isinstance(guess, DTensor) else guess
        x, info = solve(A, b.to_local(), replace(options, x0=guess), transposed)
        return like(b, x, A.layout), info
    with agree(A.layout.device_mesh):
        options.check()
        check_vectors(b, options.x0, options.null_space, A.layout.n_owned)
        if not all_finite(A.values):
            raise ValueError("the matrix holds NaN or infinite entries")
    options.refuse_different(b, A.values, A.layout.device_mesh)
    dtype = torch.promote_types(A.values.dtype, b.dtype)
    solver = _Solver(A, options, transposed, dtype)
    x = differentiable_solve(A.layout, A.values.to(dtype), b.to(dtype), transposed, solver)
    return x, solver.info


class _Solver:
    """Solves a system and, in backward, its adjoint, with what was found out the first time."""

    info: SolveInfo

    def __init__(
        self, A: "DSparseMatrix", options: SolveOptions, transposed: bool, dtype: torch.dtype
    ) -> None:
        self._A, self._options, self._transposed = A, options, transposed
        self._rtol = default_rtol(dtype) if options.rtol is None else options.rtol
        self._kind: Kind | None = None
        self._method = ""
        self._M: Preconditioner | None = None
        self._null_space: NullSpace | None = None

    def __call__(self, values: Tensor, b: Tensor, transposed: bool) -> Tensor:
        start, dtype = time.perf_counter(), b.dtype
        # Single precision could not reach a tolerance; it is rounded once, at the end.
        wide = torch.promote_types(dtype, torch.float64)
        values, b = values.to(wide), b.to(wide)
        if self._kind is not None and self._kind.hermitian and transposed != self._transposed:
            values, transposed = values.conj().resolve_conj(), self._transposed
        columns = b.unbind(1) if b.dim() == 2 else [b]
        of_A, *of_b = unit_exponents([values, *columns], self._A.layout.device_mesh)
        of_columns = np.array(of_b if b.dim() == 2 else of_b[0])
        scaled = self._A._with_values(times_power(values, -of_A))
        system = System(scaled, transposed, torch.finfo(self._A.values.dtype).eps)
        x0 = None
        if self._kind is None:
            self._kind = self._prepare(system, b, of_A, dtype)
            x0 = self._options.x0
            x0 = None if x0 is None else times_power(x0.detach().to(b.dtype), of_A - of_columns)
        b, atol = times_power(b, -of_columns), np.ldexp(self._options.atol, -of_columns)
        solution = self._found(system, b, atol, x0)
        self._report(solution, time.perf_counter() - start)
        return times_power(solution.x, of_columns - of_A).to(dtype)

    def _found(self, system: System, b: Tensor, atol: Array, x0: Tensor | None) -> Solution:
        """Solution of a system in moderate units. **Collective.**"""
        null_space = self._null_space
        if null_space is not None:
            b = null_space.removed_from(b)
        system.check_constants(b, self._kind is not None and self._kind.hermitian)
        if self._method == "direct":
            return direct(system, b)
        solution = self._iterate(system, b, atol=atol, x0=x0)
        if null_space is not None:
            solution.x = null_space.removed_from(solution.x)
        return solution

    def _prepare(self, system: System, b: Tensor, exponent: int, dtype: torch.dtype) -> Kind:
        """Choose the method and the preconditioner. **Collective.**"""
        kind, space = system.kind(), self._options.null_space
        given = self._options.preconditioner
        self._method = method_for(kind, self._options.method, given)
        if space is not None:
            if not kind.hermitian:
                raise ValueError("null_space needs a symmetric (complex: Hermitian) matrix")
            self._null_space = NullSpace(system, vectors_of(space, b, system.matrix.layout.h))
        if not isinstance(given, str):
            self._M = given if b.dtype == dtype else InDtype(given, dtype)
            self._M = Scaled(self._M, exponent) if exponent else self._M
        elif self._method != "direct":
            self._M = self._named(given, system, kind)
        return kind

    def _named(self, given: str, system: System, kind: Kind) -> Preconditioner | None:
        name = "none" if given == "auto" and kind.diagonal == "with zeros" else given
        M = preconditioner_named(
            name,
            system.matrix,
            definite=self._method in ("cg", "minres"),
            levels=self._method == "cg",
        )
        return M if M is None or not system.transposed else _transpose(M)

    def _iterate(self, system: System, b: Tensor, **options: Any) -> Solution:
        given, solution = self._options.preconditioner, self._run(system, b, **options)
        while self._options.method == "auto" and (
            other := method_after(self._method, solution.reason, given)
        ):
            logger.info("%s: %s; going on with %s", self._method, solution.reason, other)
            self._method = other
            if isinstance(given, str) and self._kind is not None:
                self._M = self._named(given, system, self._kind)  # what suits one may not the other
            solution = solution.followed_by(self._run(system, b, **options))
        return solution

    def _run(self, system: System, b: Tensor, **options: Any) -> Solution:
        M, total, callback = self._M, system.total, self._options.callback
        if system.transposed != self._transposed and M is not None:
            M = self._adjoint_of(M, system)
        of_user = M is not None and not isinstance(self._options.preconditioner, str)
        if of_user or callback is not None:
            guard = Guard(system)
            total = guard.total
            callback = None if callback is None else guard.callback(callback)
            M = guard.preconditioner(M) if M is not None and of_user else M
        if self._null_space is not None and M is not None:
            M = Projected(M, self._null_space)
        if self._method == "gmres":
            options["restart"] = self._options.restart or RESTART
        return METHODS[self._method](
            system,
            b,
            M,
            total=total,
            rtol=self._rtol,
            maxiter=self._options.bound(system.matrix.shape[0]),
            callback=callback,
            **options,
        )

    def _adjoint_of(self, M: Preconditioner, system: System) -> Preconditioner:
        if hasattr(M, "T"):
            return Adjoint(M.T)
        logger.warning(
            "preconditioner %r has no T: gradients are solved for with jacobi", name_of(M)
        )
        return Jacobi(system.matrix)

    def _report(self, solution: Solution, seconds: float) -> None:
        info = SolveInfo(
            converged=solution.converged,
            iterations=solution.iterations,
            residual=solution.residual,
            method=self._method,
            preconditioner="none" if self._M is None else name_of(self._M),
            reason=solution.reason,
            seconds=seconds,
            history=solution.history,
        )
        logger.info("%s", info)
        if not hasattr(self, "info"):
            self.info = info
        if not info.converged:
            report_failure(info, self._rtol, self._options.on_failure)


def _transpose(M: Preconditioner) -> Preconditioner:
    if hasattr(M, "T"):
        transpose: Preconditioner = M.T
        return transpose
    raise ValueError(f"preconditioner {name_of(M)!r} has no transpose, as A.T.solve needs it")
