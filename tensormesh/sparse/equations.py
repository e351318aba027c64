"""Nonlinear equations of the free unknowns, linearised where asked."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


class Equations:
    """``F(u, *params) = 0`` for the unknowns that no condition constrains.

    Vectors of all unknowns are called full, those of free ones reduced. What is asked of the
    matrix and the condenser is the same for serial and for sharded ones.

    Parameters
    ----------
    residual, tangent
        From a full vector and `params` to ``F`` (full), and to ``dF/du``.
    params
        Their further arguments.
    condenser
        `Condenser`, or None.
    solve_options
        Arguments of linear solves.
    """

    def __init__(
        self,
        residual: Callable[..., Tensor],
        tangent: Callable[..., Any],
        params: Sequence[Any],
        condenser: Any,
        solve_options: Mapping[str, Any],
    ) -> None:
        self._residual, self._tangent, self._params = residual, tangent, params
        self._condenser, self._solve_options = condenser, solve_options
        self._full: Any = None
        self._reduced: Any = None

    def linearize(self, u: Tensor) -> None:
        """Make the tangent at `u` the matrix of the linear systems."""
        self._full = self._tangent(u, *self._params).detach()
        self._reduced = self._full if self._condenser is None else self._condenser(self._full)[0]

    def forces(self, u: Tensor) -> Tensor:
        """``F(u)``, full."""
        value = self._residual(u, *self._params)
        self._full._raise_if(misfit(value, u))
        return value

    def residual(self, u: Tensor) -> Tensor:
        """``F(u)``, reduced."""
        return self.restrict(self.forces(u))

    def restrict(self, f: Tensor) -> Tensor:
        """Full to reduced."""
        return f if self._condenser is None else self._condenser.restrict(f)

    def prolong(self, x: Tensor) -> Tensor:
        """Reduced to full, zero on constrained unknowns."""
        return x if self._condenser is None else self._condenser.prolong(x)

    def norm(self, x: Tensor) -> float:
        """Euclidean norm of a vector, over all ranks."""
        return float(self._full._vector_norm(x))

    def correction(self, f: Tensor) -> tuple[Tensor, int]:
        """``-K^-1 f``, full, and the iterations that it took."""
        x, info = self._reduced.solve(-f, return_info=True, **self._solve_options)
        return self.prolong(x), info.iterations

    def adjoint(self, g: Tensor) -> Tensor:
        """``K^-T g``, full: what the derivative of a solve is, however the matrix solves."""
        with torch.enable_grad():
            b = torch.zeros_like(self.restrict(g)).requires_grad_()
            x = self._reduced.solve(b, **self._solve_options)
            (found,) = torch.autograd.grad(x, b, self.restrict(g))
        return self.prolong(found)

    # -- prescribed values -----------------------------------------------------------------

    def prescribed(self, like: Tensor) -> Tensor | None:
        """Full vector with the prescribed values, zero elsewhere; None without a condenser."""
        if self._condenser is None:
            return None
        prescribed: Tensor = self._condenser.recover(torch.zeros_like(self.restrict(like)))
        return prescribed

    def on_constrained(self, x: Tensor) -> Tensor:
        """A full vector without its entries on free unknowns."""
        return x - self.prolong(self.restrict(x))

    def force_of(self, displacement: Tensor) -> Tensor:
        """``K w``, reduced."""
        return self.restrict(self._full @ displacement)

    def transposed_force_of(self, adjoint: Tensor) -> Tensor:
        """``K^T w``, full."""
        force: Tensor = self._full.T @ adjoint
        return force

    # -- agreement -------------------------------------------------------------------------

    def refuse_different(self, given: Sequence[str]) -> None:
        """Raise, on every rank, unless all ranks have the same options."""
        self._full._refuse_different(given)

    def refuse_hidden_gradients(self, u: Tensor) -> None:
        """Raise if the residual has a gradient although `params` here have none."""
        hidden = torch.is_grad_enabled() and self.forces(u).requires_grad
        error = ValueError(
            "the residual depends on a tensor that requires grad and is not in params: pass it as "
            "params, or call newton under torch.no_grad() if its gradient is not wanted"
        )
        self._full._raise_if(error if hidden else None)


def misfit(value: Any, u: Tensor) -> ValueError | None:
    """What is wrong with `value` as the residual at `u`."""
    if isinstance(value, Tensor) and value.shape == u.shape:
        return None
    found = getattr(value, "shape", type(value).__name__)
    return ValueError(
        f"the residual must be a tensor of the shape of u0, {tuple(u.shape)}, got {found}"
    )
