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
from tensormesh.sparse.krylov.choice import METHODS, Kind, method_for, report_failure
from tensormesh.sparse.krylov.null_space import NullSpace, Projected, vectors_of
from tensormesh.sparse.krylov.preconditioner import name_of
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
    solver = _Solver(A, options, transposed)
    x = differentiable_solve(A.layout, A.values.to(dtype), b.to(dtype), transposed, solver)
    return x, solver.info


class _Solver:
    """Solves a system and, in backward, its adjoint, with what was found out the first time."""

    info: SolveInfo

    def __init__(self, A: "DSparseMatrix", options: SolveOptions, transposed: bool) -> None:
        self._A, self._options, self._transposed = A, options, transposed
        self._kind: Kind | None = None
        self._method = ""
        self._M: Preconditioner | None = None
        self._null_space: NullSpace | None = None

    def __call__(self, values: Tensor, b: Tensor, transposed: bool) -> Tensor:
        start = time.perf_counter()
        if self._kind is not None and self._kind.hermitian and transposed != self._transposed:
            values, transposed = values.conj().resolve_conj(), self._transposed
        columns = b.unbind(1) if b.dim() == 2 else [b]
        of_A, *of_b = unit_exponents([values, *columns], self._A.layout.device_mesh)
        of_columns = np.array(of_b if b.dim() == 2 else of_b[0])
        system = System(self._A._with_values(times_power(values, -of_A)), transposed)
        x0 = None
        if self._kind is None:
            self._kind = self._prepare(system, b, of_A)
            x0 = self._options.x0
            x0 = None if x0 is None else times_power(x0.detach().to(b.dtype), of_A - of_columns)
        b, atol = times_power(b, -of_columns), np.ldexp(self._options.atol, -of_columns)
        solution = self._found(system, b, atol, x0)
        self._report(solution, time.perf_counter() - start)
        return times_power(solution.x, of_columns - of_A)

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

    def _prepare(self, system: System, b: Tensor, exponent: int) -> Kind:
        """Choose the method and the preconditioner. **Collective.**"""
        kind, space = system.kind(), self._options.null_space
        self._method = method_for(kind, self._options.method)
        if space is not None:
            if not kind.hermitian:
                raise ValueError("null_space needs a symmetric (complex: Hermitian) matrix")
            self._null_space = NullSpace(system, vectors_of(space, b, system.matrix.layout.h))
        if self._method != "direct":
            self._M = self._preconditioner(system, kind, exponent)
        return kind

    def _preconditioner(self, system: System, kind: Kind, exponent: int) -> Preconditioner | None:
        given = self._options.preconditioner
        if not isinstance(given, str):
            return Scaled(given, exponent) if exponent else given
        name = "none" if given == "auto" and kind.diagonal == "with zeros" else given
        M = preconditioner_named(
            name,
            system.matrix,
            definite=self._method in ("cg", "minres"),
            levels=self._method == "cg",
        )
        return M if M is None or not system.transposed else _transpose(M)

    def _iterate(self, system: System, b: Tensor, **options: Any) -> Solution:
        solution = self._run(system, b, **options)
        if (self._options.method, self._method) == ("auto", "cg") and (
            solution.reason == "indefinite"
        ):
            logger.info("cg: the matrix is not positive definite; going on with minres")
            self._method = "minres"
            if self._options.preconditioner == "auto":  # what suits cg is indefinite as well
                self._M = Jacobi(system.matrix, absolute=True)
            second = self._run(system, b, **options)
            iterations = solution.iterations + second.iterations
            history = solution.history + second.history
            solution = replace(second, iterations=iterations, history=history)
        return solution

    def _run(self, system: System, b: Tensor, **options: Any) -> Solution:
        M = self._M
        if system.transposed != self._transposed and M is not None:
            M = self._adjoint_of(M, system)
        if self._null_space is not None and M is not None:
            M = Projected(M, self._null_space)
        if self._method == "gmres":
            options["restart"] = self._options.restart
        return METHODS[self._method](
            system,
            b,
            M,
            total=system.total,
            rtol=self._options.rtol,
            maxiter=self._options.bound(system.matrix.shape[0]),
            callback=self._options.callback,
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
            report_failure(info, self._options.rtol, self._options.on_failure)


def _transpose(M: Preconditioner) -> Preconditioner:
    if hasattr(M, "T"):
        transpose: Preconditioner = M.T
        return transpose
    raise ValueError(f"preconditioner {name_of(M)!r} has no transpose, as A.T.solve needs it")
