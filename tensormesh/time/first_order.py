"""Heat and diffusion: ``M u' + K u = f``."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tensormesh.time.system import StepSystem, between, check_numbers, check_step


class ThetaMethod:
    """Steps of ``M (u1 - u0) / dt + K u_theta = f_theta``, ``u_theta = (1 - theta) u0 + theta u1``.

    ``theta = 1`` is implicit Euler: of order 1, and damps what the step is too long for.
    ``theta = 1/2`` is Crank-Nicolson: of order 2, and without damping. The matrix of a step is
    condensed once. **Collective over the matrix's device mesh** if it is sharded; vectors are owned
    slices then.

    Parameters
    ----------
    M, K
        Mass and stiffness, `SparseMatrix` or `DSparseMatrix` of one layout.
    dt
        Step of time.
    theta
        Between 0 and 1; below 1/2 long steps are unstable.
    condenser
        `Condenser` of the constrained unknowns, or None.
    solve_options
        Arguments of the linear solves, ``solve(b, **solve_options)``, such as a preconditioner that
        was made for `system.reduced`.

    Attributes
    ----------
    system
        The matrix ``M + theta dt K``, and without constrained unknowns `system.reduced`.

    Raises
    ------
    ValueError
        If `dt` is not positive, `theta` outside [0, 1], or the matrices do not fit together.

    References
    ----------
    E. Hairer, G. Wanner, Solving Ordinary Differential Equations II, Springer 1996, section IV.3.

    Examples
    --------
    >>> import tensormesh as tm
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.25)
    >>> M = tm.MassElementAssembler.from_mesh(mesh)()
    >>> K = tm.LaplaceElementAssembler.from_mesh(mesh)()
    >>> heat = tm.time.ThetaMethod(M, K, dt=0.1, theta=1.0)
    >>> u = mesh.points[:, 0]
    >>> for _ in range(100):
    ...     u = heat.step(u)
    >>> round(float(u.min()), 6), round(float(u.max()), 6)  # the mean stays
    (0.5, 0.5)
    """

    def __init__(
        self,
        M: Any,
        K: Any,
        dt: float,
        theta: float = 0.5,
        *,
        condenser: Any = None,
        solve_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_step(dt)
        check_numbers(theta=theta)
        if not 0 <= theta <= 1:
            raise ValueError(f"theta must lie between 0 and 1, got {theta!r}")
        self.dt, self.theta = dt, theta
        self._M, self._K = M, K
        self.system = StepSystem(M + K * (theta * dt), condenser, solve_options)

    def step(
        self,
        u: Tensor,
        load: Tensor | None = None,
        next_load: Tensor | None = None,
        prescribed: Tensor | None = None,
    ) -> Tensor:
        """Solution after one more step.

        Parameters
        ----------
        u
            Solution now, ``[N]``.
        load, next_load
            ``f`` now and after the step, ``[N]``. One alone is constant; none is zero.
        prescribed
            Values of constrained unknowns after the step, in the forms that `Condenser` takes; None
            keeps those that it has.

        Returns
        -------
        Tensor
            ``[N]``; differentiable.

        Raises
        ------
        SolveError
            If the linear system cannot be solved.
        """
        # M (u1 - u0) + theta dt K (u1 - u0) = dt (f - K u0): what is solved for is the increment.
        right = self.dt * (between(load, next_load, self.theta) - self._K @ u)
        given = self.system.prescribed(u, prescribed)
        change = None if given is None else given - u
        return u + self.system.solve(right, change, u.new_zeros(u.shape))
