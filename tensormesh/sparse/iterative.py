"""Iterative solution on one device: methods of scipy or torch-sla, accepted by true residuals."""

import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl
import torch
from torch import Tensor
from torch_sla.backends import pytorch_backend as sla

from tensormesh.errors import NotConvergedError
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import multiply
from tensormesh.sparse.solve_info import SolveInfo

logger = logging.getLogger(__name__)

# Correction for a residual ``r``: relative tolerance and iterations left -> step, iterations.
Correction = Callable[[Tensor, float, int], tuple[Tensor, int]]

SCIPY = ("cg", "bicgstab", "gmres", "lgmres", "minres", "qmr")
PYTORCH = ("cg", "bicgstab", "gmres", "minres", "lsqr", "lsmr")
_WITHOUT_PRECONDITIONER = ("lsqr", "lsmr")
# A method that leaves more than this share of the residual has come to its end.
_STAGNATION = 0.5


@dataclass
class Iterative:
    """One way to iterate; a `Solver`.

    A method measures its residual in its own way, by a recurrence or in another norm. What counts
    here is ``|b - A x|``, computed anew; while it is too large and still shrinks, the method goes
    on with the residual as its right-hand side.

    Parameters
    ----------
    method
        One of `SCIPY` or `PYTORCH`.
    backend
        ``"scipy"`` works on the host in double precision, ``"pytorch"`` where the matrix is.
    preconditioner
        ``"auto"``: the diagonal where it has no zero and the method takes one; ``"jacobi"``,
        ``"none"``.
    rtol, atol
        Stop when ``|b - A x| <= max(rtol |b|, atol)``, for each column.
    maxiter
        Bound of the iterations, for each column.
    on_failure
        ``"raise"``, ``"warn"`` or ``"return"``.
    x0
        First guess, in the shape of `b`.

    Attributes
    ----------
    info
        Account of the last solve: of the column that is worst.
    """

    method: str
    backend: str
    preconditioner: str
    rtol: float
    atol: float
    maxiter: int
    on_failure: str
    x0: Tensor | None = None
    info: SolveInfo | None = field(default=None, init=False)

    @property
    def adjoint(self) -> "Iterative":
        """The same for a derivative, which has another guess and may not fail unheard."""
        return replace(self, x0=None, on_failure="raise")

    def __call__(self, pattern: SparsityPattern, values: Tensor, b: Tensor) -> Tensor:
        """Solve for numbers."""
        start = time.perf_counter()
        # Single precision could not reach the tolerance; it is rounded once, at the end.
        dtype = torch.promote_types(values.dtype, torch.float64)
        wide, right = values.to(dtype), b.to(dtype)
        name, step = self._step(pattern, wide)
        guess = torch.zeros_like(right) if self.x0 is None else self.x0.to(right)
        columns = [right] if right.dim() == 1 else list(right.unbind(1))
        guesses = [guess] if right.dim() == 1 else list(guess.unbind(1))
        found = [
            self._column(pattern, wide, c, g, step) for c, g in zip(columns, guesses, strict=True)
        ]
        if not found:
            return b.clone()
        self.info = self._report(found, name, time.perf_counter() - start)
        logger.info("%s", self.info)
        if not self.info.converged:
            self._fail(self.info)
        x = torch.stack([f.x for f in found], dim=1) if right.dim() == 2 else found[0].x
        return x.to(b.dtype)

    def _step(self, pattern: SparsityPattern, values: Tensor) -> tuple[str, Correction]:
        on = (pattern.row == pattern.col).nonzero().flatten()
        diagonal = values.new_zeros(pattern.shape[0]).index_add(0, pattern.row[on], values[on])
        holes = (diagonal == 0).nonzero().flatten()
        wanted = self.preconditioner
        if wanted == "jacobi" and (holes.numel() or self.method in _WITHOUT_PRECONDITIONER):
            why = (
                f"row {int(holes[0])} has a zero on the diagonal"
                if holes.numel()
                else f"method {self.method!r} takes none"
            )
            raise ValueError(f"preconditioner = 'jacobi': {why}; use preconditioner='none'")
        if wanted == "auto":
            fits = self.method not in _WITHOUT_PRECONDITIONER and not holes.numel()
            wanted = "jacobi" if fits else "none"
        make = _scipy_step if self.backend == "scipy" else _pytorch_step
        return wanted, make(self.method, pattern, values, diagonal if wanted == "jacobi" else None)

    def _column(
        self, pattern: SparsityPattern, values: Tensor, b: Tensor, x: Tensor, step: Correction
    ) -> "_Found":
        target = max(self.rtol * float(b.norm()), self.atol)
        r = b - multiply(pattern, values, x)
        size, used, reason = float(r.norm()), 0, "converged"
        while size > target:
            # A little below the target: recurrences and rounding lose some of it.
            d, n = step(r, min(0.1, 0.5 * target / size), self.maxiter - used)
            used += max(n, 1)
            left = r - multiply(pattern, values, d)
            before, after = size, float(left.norm())
            if after <= before:
                x, r, size = x + d, left, after
            if size > target and (used >= self.maxiter or not after <= _STAGNATION * before):
                reason = "maxiter" if used >= self.maxiter else "stagnated"
                break
        true = float((b - multiply(pattern, values, x)).norm())
        if reason == "converged" and true > 2 * target:
            reason = "stagnated"
        scale = float(b.norm())
        return _Found(x, reason, used, true / scale if scale else true)

    def _report(self, found: "list[_Found]", preconditioner: str, seconds: float) -> SolveInfo:
        worst = max(found, key=lambda f: (f.reason != "converged", f.residual))
        return SolveInfo(
            converged=worst.reason == "converged",
            iterations=max(f.iterations for f in found),
            residual=worst.residual,
            method=self.method,
            preconditioner=preconditioner,
            reason=worst.reason,
            seconds=seconds,
        )

    def _fail(self, info: SolveInfo) -> None:
        message = (
            f"{info.method} stopped after {info.iterations} iterations at a relative residual of "
            f"{info.residual:.3e} (tol = {self.rtol:g}, atol = {self.atol:g}): {info.reason}; "
            "check that the method suits the matrix ('cg' needs it symmetric positive definite), "
            "raise maxiter, loosen the tolerance, or use the direct method='lu'"
        )
        if self.on_failure == "raise":
            raise NotConvergedError(message)
        if self.on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=3)


@dataclass(frozen=True)
class _Found:
    x: Tensor
    reason: str
    iterations: int
    residual: float


def _scipy_step(
    method: str, pattern: SparsityPattern, values: Tensor, diagonal: Tensor | None
) -> Correction:
    entries = values.detach().cpu().resolve_conj().numpy()
    matrix = sp.coo_array((entries, (pattern.row.cpu(), pattern.col.cpu())), pattern.shape).tocsr()
    options: dict[str, Any] = {}
    if diagonal is not None:
        inverse = 1 / diagonal.detach().cpu().resolve_conj().numpy()
        # minres asks for a positive definite preconditioner.
        inverse = abs(inverse) if method == "minres" else inverse
        jacobi = spl.LinearOperator(
            matrix.shape,
            matvec=lambda x: inverse * x,
            rmatvec=lambda x: inverse.conj() * x,
            dtype=matrix.dtype,
        )
        identity = spl.aslinearoperator(sp.eye_array(len(inverse)))
        options = {"M1": jacobi, "M2": identity} if method == "qmr" else {"M": jacobi}
    if method == "gmres":
        options["callback_type"] = "pr_norm"

    def step(r: Tensor, rtol: float, maxiter: int) -> tuple[Tensor, int]:
        count = 0

        def counted(_: object) -> None:
            nonlocal count
            count += 1

        bound = maxiter if method not in ("gmres", "lgmres") else max(1, maxiter // 20)
        solve = getattr(spl, method)
        with np.errstate(all="ignore"):
            x, _ = solve(
                matrix, r.cpu().numpy(), rtol=rtol, maxiter=bound, callback=counted, **options
            )
        return torch.from_numpy(np.asarray(x)).to(r), count

    return step


_SLA = {
    "cg": sla.pcg_solve_fused,
    "bicgstab": sla.pbicgstab_solve,
    "gmres": sla.pgmres_solve,
    "minres": sla.minres_solve,
    "lsqr": sla.lsqr_solve,
    "lsmr": sla.lsmr_solve,
}


def _pytorch_step(
    method: str, pattern: SparsityPattern, values: Tensor, diagonal: Tensor | None
) -> Correction:
    solve = _SLA[method]
    matrix = (values.detach(), pattern.row, pattern.col, pattern.shape)

    def step(r: Tensor, rtol: float, maxiter: int) -> tuple[Tensor, int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether it converged is judged by the residual
            if method in _WITHOUT_PRECONDITIONER:
                x, n, *_ = solve(*matrix, r, atol=0.0, btol=rtol, maxiter=maxiter)
            else:
                name = "none" if diagonal is None else "jacobi"
                x, n, *_ = solve(
                    *matrix, r, atol=0.0, rtol=rtol, maxiter=maxiter, preconditioner=name
                )
        return x, int(n)

    return step
