"""Structures and waves: ``M u'' + C u' + K u = f``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tensormesh.time.system import StepSystem, between, check_numbers, check_step


@dataclass(frozen=True)
class Motion:
    """Displacement, velocity and acceleration at one time.

    Parameters
    ----------
    u, v, a
        ``[N]`` each.
    """

    u: Tensor
    v: Tensor
    a: Tensor


class _AlphaMethod:
    """Steps of the generalised-alpha family.

    The equation of motion holds between two times, of the acceleration at ``1 - alpha_m`` and of
    the rest at ``1 - alpha_f`` of the step; the new acceleration is solved for.
    """

    def __init__(
        self,
        matrices: tuple[Any, Any, Any],
        dt: float,
        beta: float,
        gamma: float,
        alphas: tuple[float, float],
        condenser: Any,
        solve_options: Mapping[str, Any] | None,
    ) -> None:
        check_step(dt)
        check_numbers(beta=beta, gamma=gamma)
        if not beta > 0:
            raise ValueError(f"beta must be positive, got {beta!r}: explicit steps are not offered")
        self.dt, self.beta, self.gamma = dt, beta, gamma
        self._alpha_m, self._alpha_f = alphas
        self._M, self._C, self._K = matrices
        self._condenser, self._solve_options = condenser, solve_options
        share = 1 - self._alpha_f
        A = self._M * (1 - self._alpha_m) + self._K * (share * beta * dt**2)
        if self._C is not None:
            A = A + self._C * (share * gamma * dt)
        self.system = StepSystem(A, condenser, solve_options)

    def start(self, u: Tensor, v: Tensor, load: Tensor | None = None) -> Motion:
        """Motion at the first time, with the acceleration that the equation gives.

        Parameters
        ----------
        u, v
            Displacement and velocity, ``[N]``. Constrained unknowns are taken to have no
            acceleration.
        load
            ``f`` at that time, ``[N]``; None is zero.

        Returns
        -------
        Motion
            The motion.
        """
        system = StepSystem(self._M, self._condenser, self._solve_options)
        right = between(load, None, 0.0) - self._forces(u, v)
        return Motion(u, v, system.solve(right, None, torch.zeros_like(u)))

    def step(
        self,
        motion: Motion,
        load: Tensor | None = None,
        next_load: Tensor | None = None,
        prescribed: Tensor | None = None,
    ) -> Motion:
        """Motion after one more step.

        Parameters
        ----------
        motion
            Now.
        load, next_load
            ``f`` now and after the step, ``[N]``. One alone is constant; none is zero.
        prescribed
            Displacements of constrained unknowns after the step, in the forms that `Condenser`
            takes; None keeps those that it has.

        Returns
        -------
        Motion
            Differentiable.

        Raises
        ------
        SolveError
            If the linear system cannot be solved.
        """
        dt, u, v, a = self.dt, motion.u, motion.v, motion.a
        u_predicted = u + dt * v + (0.5 - self.beta) * dt**2 * a
        v_predicted = v + (1 - self.gamma) * dt * a
        u_between = torch.lerp(u_predicted, u, self._alpha_f)
        v_between = torch.lerp(v_predicted, v, self._alpha_f)
        right = between(load, next_load, 1 - self._alpha_f) - self._forces(u_between, v_between)
        if self._alpha_m:
            right = right - self._M @ (self._alpha_m * a)
        given = self.system.prescribed(u, prescribed)
        if given is not None:
            given = (given - u_predicted) / (self.beta * dt**2)
        a_next = self.system.solve(right, given, a)
        return Motion(
            u_predicted + self.beta * dt**2 * a_next, v_predicted + self.gamma * dt * a_next, a_next
        )

    def _forces(self, u: Tensor, v: Tensor) -> Tensor:
        forces: Tensor = self._K @ u
        return forces if self._C is None else forces + self._C @ v


class Newmark(_AlphaMethod):
    """Newmark's method; by default the average acceleration, of order 2, which keeps the energy.

    The matrix of a step is condensed once. **Collective over the matrix's device mesh** if it is
    sharded; vectors are owned slices then.

    Parameters
    ----------
    M, K
        Mass and stiffness, `SparseMatrix` or `DSparseMatrix` of one layout.
    dt
        Step of time.
    C
        Damping, or None.
    beta, gamma
        Parameters: stable for steps of any length if ``2 beta >= gamma >= 1/2``, of order 2 if
        ``gamma = 1/2``.
    condenser, solve_options
        As of `ThetaMethod`.

    Attributes
    ----------
    system
        The matrix of the new acceleration, and without constrained unknowns `system.reduced`.

    Raises
    ------
    ValueError
        If `dt` or `beta` is not positive, or the matrices do not fit together.

    References
    ----------
    N. M. Newmark, A method of computation for structural dynamics, J. Eng. Mech. Div. ASCE 85
    (1959) 67-94. T. J. R. Hughes, The Finite Element Method, Dover 2000, section 9.1.

    Examples
    --------
    A spring of stiffness 4 and a mass of 1, pulled by 1 and let go: half a period is ``pi / 2``.

    >>> import math, torch, tensormesh as tm
    >>> M, K = tm.SparseMatrix.eye(1), tm.SparseMatrix.eye(1, value=4.0)
    >>> spring = tm.time.Newmark(M, K, dt=math.pi / 200)
    >>> motion = spring.start(torch.ones(1), torch.zeros(1))
    >>> for _ in range(100):
    ...     motion = spring.step(motion)
    >>> round(motion.u.item(), 3)
    -1.0
    """

    def __init__(
        self,
        M: Any,
        K: Any,
        dt: float,
        C: Any = None,
        *,
        beta: float = 0.25,
        gamma: float = 0.5,
        condenser: Any = None,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__((M, C, K), dt, beta, gamma, (0.0, 0.0), condenser, solve_options)


class GeneralizedAlpha(_AlphaMethod):
    """The generalised-alpha method: of order 2, and damps what the step is too long for.

    As `Newmark` otherwise.

    Parameters
    ----------
    M, K, dt, C
        As of `Newmark`.
    rho
        What is left in each step of a frequency far above ``1 / dt``, between 0 and 1: 1 keeps the
        energy, 0 annihilates in one step.
    condenser, solve_options
        As of `ThetaMethod`.

    Attributes
    ----------
    system
        The matrix of the new acceleration, and without constrained unknowns `system.reduced`.

    Raises
    ------
    ValueError
        If `dt` is not positive, `rho` outside [0, 1], or the matrices do not fit together.

    References
    ----------
    J. Chung, G. M. Hulbert, A time integration algorithm for structural dynamics with improved
    numerical dissipation: the generalized-alpha method, J. Appl. Mech. 60 (1993) 371-375.
    """

    def __init__(
        self,
        M: Any,
        K: Any,
        dt: float,
        C: Any = None,
        *,
        rho: float = 0.8,
        condenser: Any = None,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_numbers(rho=rho)
        if not 0 <= rho <= 1:
            raise ValueError(f"rho must lie between 0 and 1, got {rho!r}")
        alpha_m, alpha_f = (2 * rho - 1) / (rho + 1), rho / (rho + 1)
        gamma = 0.5 - alpha_m + alpha_f
        beta = (1 - alpha_m + alpha_f) ** 2 / 4
        super().__init__((M, C, K), dt, beta, gamma, (alpha_m, alpha_f), condenser, solve_options)
