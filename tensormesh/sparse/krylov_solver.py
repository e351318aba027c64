"""Iterative solution on one device by the methods that sharded systems are solved with."""

import logging
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from pyamg.aggregation import smoothed_aggregation_solver
from torch import Tensor

from tensormesh.errors import SingularMatrixError
from tensormesh.sparse.krylov.choice import METHODS, Kind, is_hermitian, method_for, report_failure
from tensormesh.sparse.krylov.null_space import NullSpace, Projected, vectors_of
from tensormesh.sparse.krylov.preconditioner import Adjoint, Preconditioner, name_of
from tensormesh.sparse.krylov.solution import Array, Callback, Solution, sum_on_one_rank
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import multiply
from tensormesh.sparse.solve_info import SolveInfo
from tensormesh.sparse.units import largest_exponent, times_power, unit_exponent

logger = logging.getLogger(__name__)

# Unknowns beyond which levels are worth their set-up, as of sharded matrices.
_MANY = 5_000
# Most unknowns of a point whose constants are looked for.
_MOST_COMPONENTS = 3


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
        A, right = _System(pattern, values.to(dtype)), b.to(dtype)
        if not b.numel():
            return b.clone()
        columns = right.unbind(1) if right.dim() == 2 else [right]
        of_A, *of_b = (unit_exponent(x, largest_exponent(x)) for x in (A.values, *columns))
        if of_A or any(of_b):
            of_columns = np.array(of_b if right.dim() == 2 else of_b[0])
            return self._in_units(pattern, A.values, right, of_A, of_columns).to(b.dtype)
        kind = A.kind()
        method = method_for(kind, self.method)
        self._hermitian = kind.hermitian
        space = self._space(A, right, kind)
        self._M = self._preconditioner(A, kind, method, b.dtype)
        if space is not None:
            right = space.removed_from(right)
        else:
            A.refuse_constants(right)
        method, solution = self._iterate(A, right, method, space)
        self.info = SolveInfo(
            converged=solution.converged,
            iterations=solution.iterations,
            residual=solution.residual,
            method=method,
            preconditioner="none" if self._M is None else name_of(self._M),
            reason=solution.reason,
            seconds=time.perf_counter() - start,
            history=solution.history,
        )
        logger.info("%s", self.info)
        if not self.info.converged:
            report_failure(self.info, self.rtol, self.on_failure)
        x = solution.x if space is None else space.removed_from(solution.x)
        return x.to(b.dtype)

    def _in_units(
        self, pattern: SparsityPattern, values: Tensor, b: Tensor, of_A: int, of_b: Array
    ) -> Tensor:
        """The same in powers of two as units, in which squares neither over- nor underflow."""
        x0 = None if self.x0 is None else times_power(self.x0.to(b), of_A - of_b)
        inside = replace(self, x0=x0, atol=np.ldexp(self.atol, -of_b))
        x = inside(pattern, times_power(values, -of_A), times_power(b, -of_b))
        self.info, self._hermitian, self._M = inside.info, inside._hermitian, inside._M
        return times_power(x, of_b - of_A)

    def _space(self, A: "_System", b: Tensor, kind: Kind) -> NullSpace | None:
        given = self.null_space
        if given is None:
            return None
        if not kind.hermitian:
            raise ValueError("null_space needs a symmetric (complex: Hermitian) matrix")
        h = (A.free_components() or 1) if isinstance(given, str) else 1
        return NullSpace(A, vectors_of(given, b, h))

    def _preconditioner(
        self, A: "_System", kind: Kind, method: str, dtype: torch.dtype
    ) -> Preconditioner | None:
        name = self.preconditioner
        if not isinstance(name, str):
            made_here = isinstance(name, _InDtype | _Jacobi | _Multilevel)
            return name if made_here else _InDtype(name, dtype)
        if name == "auto":
            many = A.pattern.shape[0] > _MANY and not A.values.is_complex()
            name = "multilevel" if method == "cg" and many else "jacobi"
            name = "none" if kind.diagonal == "with zeros" else name
        if name == "multilevel":
            return _Multilevel(A)
        return None if name == "none" else _Jacobi(A, absolute=method in ("cg", "minres"))

    def _iterate(
        self, A: "_System", b: Tensor, method: str, space: NullSpace | None
    ) -> tuple[str, Solution]:
        x0 = None if self.x0 is None else self.x0.detach().to(b)
        solution = self._run(A, b, method, space, x0)
        if (self.method, method, solution.reason) != ("auto", "cg", "indefinite"):
            return method, solution
        logger.info("cg: the matrix is not positive definite; going on with minres")
        if self.preconditioner == "auto":  # what suits cg is indefinite as well
            self._M = _Jacobi(A, absolute=True)
        second = self._run(A, b, "minres", space, x0)
        iterations = solution.iterations + second.iterations
        history = solution.history + second.history
        return "minres", replace(second, iterations=iterations, history=history)

    def _run(
        self, A: "_System", b: Tensor, method: str, space: NullSpace | None, x0: Tensor | None
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


class _System:
    """A matrix of numbers as an operator, and what is known of it."""

    def __init__(self, pattern: SparsityPattern, values: Tensor) -> None:
        self.pattern, self.values = pattern, values.detach()

    def __matmul__(self, x: Tensor) -> Tensor:
        return multiply(self.pattern, self.values, x)

    def total(self, x: Tensor) -> Array:
        return sum_on_one_rank(x)

    def row_sums(self) -> Tensor:
        return multiply(self.pattern, self.values.abs(), self._ones(1).real.flatten())

    def _ones(self, h: int) -> Tensor:
        """Constants of each of `h` components, ``[n, h]``."""
        n, like = self.pattern.shape[0], self.values
        return torch.eye(h, dtype=like.dtype, device=like.device).repeat(n // h, 1)

    def diagonal(self) -> Tensor:
        on = (self.pattern.row == self.pattern.col).nonzero().flatten()
        zeros = self.values.new_zeros(self.pattern.shape[0])
        return zeros.index_add(0, self.pattern.row[on], self.values[on])

    def kind(self) -> Kind:
        """What kind of matrix this is; a row of zeros is refused."""
        zero_rows = (self.row_sums() == 0).nonzero().flatten()
        if zero_rows.numel():
            raise SingularMatrixError(
                f"{zero_rows.numel()} rows (first: {int(zero_rows[0])}) are zero: unknowns "
                "without an equation, for instance at points that no cell uses; Condenser leaves "
                "these out"
            )
        diagonal = self.diagonal()
        real = diagonal.real if diagonal.is_complex() else diagonal
        zero = bool((diagonal == 0).any())
        kind = "with zeros" if zero else "positive" if bool((real > 0).all()) else "any"
        numbers = torch.arange(len(diagonal), device=diagonal.device)
        return Kind(is_hermitian(self, numbers, self.values.dtype, self.total), kind)

    def free_components(self) -> int:
        """How many interleaved components there are whose constants all go to zero."""
        size = float(self.row_sums().norm())
        slack = 1e3 * torch.finfo(self.values.dtype).eps * size
        for h in range(_MOST_COMPONENTS, 0, -1):
            if self.pattern.shape[0] % h == 0 and float((self @ self._ones(h)).norm()) <= slack:
                return h
        return 0

    def refuse_constants(self, b: Tensor) -> None:
        """Refuse a right-hand side that loads what the adjoint maps to zero."""
        h = _System(self.pattern.transpose, self.values.conj()).free_components()
        if not h:
            return
        columns = b if b.dim() == 2 else b.unsqueeze(1)
        loads, n = (self._ones(h).mH @ columns.to(self.values.dtype)).abs(), b.shape[0]
        slack = 1e3 * torch.finfo(self.values.dtype).eps
        if bool((loads > slack * (n / h) ** 0.5 * columns.norm(dim=0)).any()):
            raise SingularMatrixError(
                f"the matrix maps constants (of {h} components) to zero and the right-hand side "
                "loads them: no solution exists; constrain unknowns with Condenser, or give a "
                "right-hand side whose sum is zero"
            )


class _Jacobi:
    """Division by the diagonal, or by its absolute values."""

    name = "jacobi"

    def __init__(self, A: _System, absolute: bool) -> None:
        diagonal = A.diagonal()
        holes = (diagonal == 0).nonzero().flatten()
        if holes.numel():
            raise ValueError(
                f"preconditioner = 'jacobi': row {int(holes[0])} has a zero on the diagonal; use "
                "preconditioner='none'"
            )
        self._inverse = 1 / (diagonal.abs() if absolute else diagonal)

    def __matmul__(self, r: Tensor) -> Tensor:
        return (self._inverse if r.dim() == 1 else self._inverse.unsqueeze(1)) * r


class _Multilevel:
    """A V-cycle of pyamg's smoothed aggregation, on the host, for real symmetric matrices."""

    name = "multilevel"

    def __init__(self, A: _System) -> None:
        if A.values.is_complex():
            raise TypeError(
                f"the matrix is {A.values.dtype}: preconditioner 'multilevel' is for real ones; "
                "take 'jacobi'"
            )
        indices = (A.pattern.row.cpu().numpy(), A.pattern.col.cpu().numpy())
        entries = sp.coo_array((A.values.cpu().numpy(), indices), A.pattern.shape)
        # pyamg asks for the class that stands for matrices, and for 32-bit indices.
        matrix = sp.csr_matrix(entries.tocsr())
        self._cycle = smoothed_aggregation_solver(matrix).aspreconditioner()

    def __matmul__(self, r: Tensor) -> Tensor:
        on_host = r.cpu().numpy()
        columns = [self._cycle @ c for c in (on_host.T if r.dim() == 2 else [on_host])]
        found = np.stack(columns, axis=1) if r.dim() == 2 else columns[0]
        return torch.from_numpy(found).to(r)


class _InDtype:
    """An object of the user's, which is given vectors in the dtype that was asked for."""

    def __init__(self, M: Any, dtype: torch.dtype) -> None:
        self._M, self._dtype, self.name = M, dtype, name_of(M)

    @property
    def T(self) -> "_InDtype":
        return _InDtype(self._M.T, self._dtype)

    def __matmul__(self, r: Tensor) -> Tensor:
        found: Tensor = self._M @ r.to(self._dtype)
        return found.to(r.dtype)
