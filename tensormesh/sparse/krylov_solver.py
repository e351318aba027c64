"""Iterative solution on one device by the methods that sharded systems are solved with."""

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.choice import (
    METHODS,
    Kind,
    method_after,
    method_for,
    report_failure,
)
from tensormesh.sparse.krylov.null_space import NullSpace, Projected, vectors_of
from tensormesh.sparse.krylov.preconditioner import Adjoint, InDtype, Preconditioner
from tensormesh.sparse.krylov.solution import Array, Callback, Solution
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.preconditioner import MADE_HERE, preconditioner_named
from tensormesh.sparse.solve_info import SolveInfo
from tensormesh.sparse.system import System
from tensormesh.sparse.units import largest_exponent, times_power, unit_exponent

logger = logging.getLogger(__name__)


@dataclass
class Krylov:
    """One way to iterate, all columns at once; a `Solver`.

    Parameters
    ----------
    method
        ``"auto"`` or one of `METHODS`.
    preconditioner
        A name, or an object with ``M @ r``.
    rtol, atol
        Stop when ``|b - A x| <= max(rtol |b|, atol)``, for each column.
    maxiter
        Bound of the iterations.
    on_failure
        ``"raise"``, ``"warn"`` or ``"return"``.
    restart
        Length of a cycle of gmres.
    x0
        First guess, in the shape of `b`.
    callback
        Called with the number and the relative residual of each iteration.
    null_space
        What a Hermitian matrix maps to zero: ``[n, m]``, ``"constants"`` or None.
    eps
        Precision of the entries, where it is not that of their dtype.

    Attributes
    ----------
    info
        Account of the last solve.
    """

    method: str
    preconditioner: Any
    rtol: float
    atol: float | Array
    maxiter: int
    on_failure: str
    restart: int = 50
    x0: Tensor | None = None
    callback: Callback | None = None
    null_space: Tensor | str | None = None
    eps: float | None = None
    info: SolveInfo | None = field(default=None, init=False)
    _hermitian: bool = field(default=False, init=False)
    _M: Preconditioner | None = field(default=None, init=False)

    @property
    def adjoint(self) -> "Krylov":
        """The same for a derivative, which has another guess and may not fail unheard."""
        M = self.preconditioner
        if self._hermitian:
            M = "none" if self._M is None else self._M
        elif not isinstance(M, str) and hasattr(M, "T"):
            M = Adjoint(M.T)
        elif not isinstance(M, str):
            logger.warning("preconditioner %r has no T: gradients are solved for with jacobi", M)
            M = "jacobi"
        return replace(self, x0=None, on_failure="raise", preconditioner=M)

    def __call__(self, pattern: SparsityPattern, values: Tensor, b: Tensor) -> Tensor:
        """Solve for numbers."""
        start = time.perf_counter()
        # Single precision could not reach the tolerance; it is rounded once, at the end.
        dtype = torch.promote_types(values.dtype, torch.float64)
        A = System(pattern, values.to(dtype), self.eps or torch.finfo(values.dtype).eps)
        right = b.to(dtype)
        if not b.numel():
            return b.clone()
        columns = right.unbind(1) if right.dim() == 2 else [right]
        of_A, *of_b = (unit_exponent(x, largest_exponent(x)) for x in (A.values, *columns))
        if of_A or any(of_b):
            of_columns = np.array(of_b if right.dim() == 2 else of_b[0])
            return self._in_units(A, right, of_A, of_columns).to(b.dtype)
        kind = A.kind()
        method = method_for(kind, self.method, self.preconditioner)
        self._hermitian = kind.hermitian
        space = self._space(A, right, kind)
        self._M = self._made(A, kind, method, b.dtype)
        if space is not None:
            right = space.removed_from(right)
        else:
            A.check_constants(right, kind.hermitian)
        method, solution = self._iterate(A, right, kind, method, space)
        self.info = SolveInfo(
            converged=solution.converged,
            iterations=solution.iterations,
            residual=solution.residual,
            method=method,
            preconditioner="none" if self._M is None else self._M.name,
            reason=solution.reason,
            seconds=time.perf_counter() - start,
            history=solution.history,
        )
        logger.info("%s", self.info)
        if not self.info.converged:
            report_failure(self.info, self.rtol, self.on_failure)
        x = solution.x if space is None else space.removed_from(solution.x)
        return x.to(b.dtype)

    def _in_units(self, A: System, b: Tensor, of_A: int, of_b: Array) -> Tensor:
        """The same in powers of two as units, in which squares neither over- nor underflow."""
        x0 = None if self.x0 is None else times_power(self.x0.to(b), of_A - of_b)
        inside = replace(self, x0=x0, atol=np.ldexp(self.atol, -of_b), eps=A.eps)
        x = inside(A.pattern, times_power(A.values, -of_A), times_power(b, -of_b))
        self.info, self._hermitian, self._M = inside.info, inside._hermitian, inside._M
        return times_power(x, of_b - of_A)

    def _space(self, A: System, b: Tensor, kind: Kind) -> NullSpace | None:
        given = self.null_space
        if given is None:
            return None
        if not kind.hermitian:
            raise ValueError("null_space needs a symmetric (complex: Hermitian) matrix")
        h = (A.free_components() or 1) if isinstance(given, str) else 1
        return NullSpace(A, vectors_of(given, b, h))

    def _made(
        self, A: System, kind: Kind, method: str, dtype: torch.dtype
    ) -> Preconditioner | None:
        given = self.preconditioner
        if not isinstance(given, str):
            made: Preconditioner = given if isinstance(given, MADE_HERE) else InDtype(given, dtype)
            return made
        name = "none" if given == "auto" and kind.diagonal == "with zeros" else given
        return preconditioner_named(name, A, method)

    def _iterate(
        self, A: System, b: Tensor, kind: Kind, method: str, space: NullSpace | None
    ) -> tuple[str, Solution]:
        x0 = None if self.x0 is None else self.x0.detach().to(b)
        solution = self._run(A, b, method, space, x0)
        while self.method == "auto" and (
            other := method_after(method, solution.reason, self.preconditioner)
        ):
            logger.info("%s: %s; going on with %s", method, solution.reason, other)
            method = other
            if isinstance(self.preconditioner, str):  # what suits one may not suit the other
                self._M = self._made(A, kind, method, b.dtype)
            solution = solution.followed_by(self._run(A, b, method, space, x0))
        return method, solution

    def _run(
        self, A: System, b: Tensor, method: str, space: NullSpace | None, x0: Tensor | None
    ) -> Solution:
        M = self._M if self._M is None or space is None else Projected(self._M, space)
        options = {"restart": self.restart} if method == "gmres" else {}
        return METHODS[method](
            A,
            b,
            M,
            rtol=self.rtol,
            atol=self.atol,
            maxiter=self.maxiter,
            x0=x0,
            callback=self.callback,
            **options,
        )
