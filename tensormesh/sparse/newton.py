"""Newton's method for ``F(u, ...) = 0``: the same code for serial and for sharded matrices."""

import logging
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from tensormesh.errors import NotConvergedError
from tensormesh.sparse.equations import Equations
from tensormesh.sparse.implicit import implicit
from tensormesh.sparse.newton_info import NewtonInfo, NewtonStep

logger = logging.getLogger(__name__)

# An accepted step lowers the residual by at least this share of what a full one promises.
_ARMIJO = 1e-4
_MOST_HALVINGS = 20
_ON_FAILURE = ("raise", "warn", "return")


def newton(
    residual: Callable[..., Tensor],
    tangent: Callable[..., Any],
    u0: Tensor,
    params: Sequence[Any] = (),
    *,
    condenser: Any = None,
    rtol: float = 1e-8,
    atol: float = 0.0,
    max_iter: int = 25,
    line_search: bool = True,
    on_failure: str = "raise",
    return_info: bool = False,
    solve_options: Mapping[str, Any] | None = None,
) -> Any:
    """Solve ``residual(u, *params) = 0`` by Newton's method.

    With matrices and vectors of one process, or with sharded ones; then **collective over the
    matrix's device mesh**, and vectors are owned slices.

    Parameters
    ----------
    residual
        From ``u`` ``[N]`` and `params` to ``F`` ``[N]``.
    tangent
        From the same to ``dF/du``, a `SparseMatrix` or `DSparseMatrix`.
    u0
        First guess ``[N]``, real. No gradient goes to it.
    params
        Further arguments of both. Tensors among them that require grad get gradients; others must
        not hide in the functions.
    condenser
        `Condenser` of the constrained unknowns; its values may be differentiated. Where `u0` does
        not have them, the first step is that of the linear problem and puts them in, undamped:
        large ones are approached in load steps, each from the solution of the one before.
    rtol, atol
        Stop when ``|F| <= max(rtol |F(u0)|, atol)``, over the unknowns that are free.
    max_iter
        Bound of the steps.
    line_search
        Whether to halve a step until it lowers ``|F|``.
    on_failure
        ``"raise"``, ``"warn"`` or ``"return"`` when the tolerance is not reached. A linear system
        that cannot be solved raises always.
    return_info
        Whether to return the `NewtonInfo` too.
    solve_options
        Arguments of the linear solves, ``K.solve(b, **solve_options)``.

    Returns
    -------
    u or (u, info)
        The solution ``[N]``, with first derivatives by the implicit function theorem, for one more
        linear solve.

    Raises
    ------
    NotConvergedError
        If the tolerance is not reached and `on_failure` is ``"raise"``.
    SolveError
        If a linear system cannot be solved.
    ValueError, TypeError
        If an argument is wrong, or a tensor outside `params` requires grad.

    References
    ----------
    C. T. Kelley, Iterative Methods for Linear and Nonlinear Equations, SIAM 1995, algorithm 8.2.1.
    On derivatives: M. B. Giles, N. A. Pierce, An introduction to the adjoint approach to design,
    2000.

    Examples
    --------
    >>> import torch
    >>> import tensormesh as tm
    >>> class Reaction(tm.NodeAssembler):
    ...     def forward(self, v, gradv, u, gradu):
    ...         return gradu @ gradv + (torch.exp(u) - 1) * v
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.25)
    >>> form = Reaction.from_mesh(mesh)
    >>> u, info = tm.newton(
    ...     lambda u: form(point_data={"u": u}),
    ...     lambda u: form.tangent(point_data={"u": u}),
    ...     torch.zeros(mesh.n_points, dtype=mesh.dtype),
    ...     condenser=tm.Condenser(mesh.boundary_mask, mesh.points[:, 0]),
    ...     return_info=True,
    ... )
    >>> info.converged, info.iterations < 6
    (True, True)
    """
    options = Options(rtol, atol, max_iter, line_search, on_failure)
    _check_guess(u0)

    def equations(given: Sequence[Any]) -> Equations:
        return Equations(residual, tangent, given, condenser, solve_options or {})

    start = equations([p.detach() if isinstance(p, Tensor) else p for p in params])
    guess = u0.detach()
    with torch.no_grad():
        start.linearize(guess)
    start.refuse_different([repr(options), str(u0.dtype)])
    start.refuse_hidden_gradients(guess)
    infos: list[NewtonInfo] = []

    def run(prescribed: Tensor | None) -> Tensor:
        u, info = _iterate(start, guess, prescribed, options)
        infos.append(info)
        return u

    u = implicit(run, equations, start.prescribed(guess), params)
    (info,) = infos
    logger.info("%s", info)
    if not info.converged:
        _fail(info, options)
    return (u, info) if return_info else u


@dataclass(frozen=True)
class Options:
    """Checked options of `newton`."""

    rtol: float
    atol: float
    max_iter: int
    line_search: bool
    on_failure: str

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            number: Any = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, Real) or not float(number) >= 0:
                raise ValueError(f"{name} must be a number that is not negative, got {number!r}")
        most: Any = self.max_iter
        if isinstance(most, bool) or not isinstance(most, Integral) or most < 1:
            raise ValueError(f"max_iter must be an integer of at least 1, got {most!r}")
        if self.on_failure not in _ON_FAILURE:
            raise ValueError(
                f"on_failure must be one of {', '.join(_ON_FAILURE)}, got {self.on_failure!r}"
            )


def _check_guess(u0: Tensor) -> None:
    if not isinstance(u0, Tensor) or not u0.is_floating_point():
        kind = getattr(u0, "dtype", type(u0).__name__)
        raise TypeError(
            f"u0 must be a tensor of real numbers, got {kind}; split real and imaginary parts"
        )
    if u0.dim() != 1:
        raise ValueError(f"u0 must be 1-D, got shape {tuple(u0.shape)}")


class _Run:
    """One run: where it is, and what it has done. The equations are linearised at its start."""

    def __init__(self, equations: Equations, u: Tensor, line_search: bool) -> None:
        self._equations, self._line_search = equations, line_search
        self._linear_at = self.u = u
        self.f = equations.residual(u)
        self.size = self.initial = equations.norm(self.f)
        self.steps: list[NewtonStep] = []

    def lift(self, prescribed: Tensor) -> None:
        """Take the step of the linear problem to a vector with the prescribed values."""
        to_prescribed = self._equations.on_constrained(prescribed - self.u)
        if self._equations.norm(to_prescribed) == 0:
            return
        load = self.f + self._equations.force_of(to_prescribed)
        self.initial = self._equations.norm(load)
        step, iterations = self._equations.correction(load)
        self._take(self.u + to_prescribed + step, 1.0, iterations)

    def step(self) -> bool:
        """Take one step, shortened until it lowers the residual; False if none does."""
        if self._linear_at is not self.u:
            self._equations.linearize(self.u)
        direction, iterations = self._equations.correction(self.f)
        origin, before, length = self.u, self.size, 1.0
        for _ in range(_MOST_HALVINGS):
            self._take(origin + length * direction, length, iterations)
            if not self._line_search or self.size <= (1 - _ARMIJO * length) * before:
                return True
            self.steps.pop()
            length /= 2
        return False

    def _take(self, u: Tensor, length: float, iterations: int) -> None:
        self.u, self.f = u, self._equations.residual(u)
        self.size = self._equations.norm(self.f)
        self.steps.append(NewtonStep(self.size, length, iterations))


def _iterate(
    equations: Equations, u: Tensor, prescribed: Tensor | None, options: Options
) -> tuple[Tensor, NewtonInfo]:
    start = time.perf_counter()
    run = _Run(equations, u, options.line_search)
    if prescribed is not None:
        run.lift(prescribed)
    goal = max(options.rtol * run.initial, options.atol)
    reason = ""
    while not reason:
        if not math.isfinite(run.size):
            reason = "not finite"
        elif run.size <= goal:
            reason = "converged"
        elif len(run.steps) >= options.max_iter:
            reason = "maxiter"
        elif not run.step():
            reason = "stagnated"
    info = NewtonInfo(
        converged=reason == "converged",
        iterations=len(run.steps),
        initial=run.initial,
        residual=run.size,
        reason=reason,
        seconds=time.perf_counter() - start,
        steps=run.steps,
    )
    return run.u, info


_ADVICE = {
    "maxiter": "start nearer to the solution (in load steps), raise max_iter, or check the tangent "
    "against finite differences",
    "stagnated": "no step along its direction lowers |F|: the tolerance is below rounding, or the "
    "tangent is not the derivative of the residual",
    "not finite": "the residual is NaN or infinite: approach the load or the prescribed values in "
    "smaller steps",
}


def _fail(info: NewtonInfo, options: Options) -> None:
    message = (
        f"newton stopped after {info.iterations} iterations at |F| = {info.residual:.3e} (from "
        f"{info.initial:.3e}; rtol = {options.rtol:g}, atol = {options.atol:g}): {info.reason}; "
        f"{_ADVICE[info.reason]}"
    )
    if options.on_failure == "raise":
        raise NotConvergedError(message)
    if options.on_failure == "warn":
        warnings.warn(message, RuntimeWarning, stacklevel=3)
