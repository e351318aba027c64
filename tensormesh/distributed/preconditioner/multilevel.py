"""Smoothed aggregation as a preconditioner."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensormesh.arguments import check_integer, check_number
from tensormesh.distributed.collectives import agree, all_max
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.multigrid import Cycle, build, finest_level
from tensormesh.sparse.units import times_power

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


# Less than the exponent of any number.
_NOTHING = 10_000
# Residuals are scaled to this power of two, as far from overflow as from slow subnormal numbers.
_HEADROOM = 30


class Multilevel:
    """One V-cycle of smoothed aggregation. **Making one, and each product, is collective.**

    For a symmetric positive definite matrix it is symmetric positive definite too, and the number
    of iterations of conjugate gradients hardly grows with the mesh or the number of ranks.

    Parameters
    ----------
    A
        The matrix.
    near_null_space
        Vectors that the matrix maps to almost zero, owned slices ``[n_owned, k]``; for elasticity
        rigid motions, ``condenser.restrict(dmesh.rigid_modes())``. Default: a constant a component.
    theta
        Connections weaker than this do not make aggregates; 0 takes all stored entries.
    degree
        Degree of the smoothing polynomial.
    max_coarse
        Unknowns over all ranks that are few enough to be gathered and inverted.
    precision
        Dtype of the cycle. Default: float32, in which the outer iteration loses nothing.

    Raises
    ------
    TypeError, ValueError
        On every rank, if the matrix is complex, if a diagonal entry is not positive, or if an
        argument is wrong.

    References
    ----------
    P. Vanek, J. Mandel, M. Brezina, Algebraic multigrid by smoothed aggregation for second and
    fourth order elliptic problems, Computing 56 (1996); R. S. Tuminaro, C. Tong, Parallel smoothed
    aggregation multigrid, Supercomputing 2000, for aggregates that do not cross ranks.
    """

    name = "multilevel"

    def __init__(
        self,
        A: "DSparseMatrix",
        near_null_space: Tensor | None = None,
        theta: float = 0.0,
        degree: int = 2,
        max_coarse: int = 600,
        precision: torch.dtype = torch.float32,
    ) -> None:
        layout = A.layout
        self._n_owned, self._device_mesh, self._dtype = (
            layout.n_owned,
            layout.device_mesh,
            precision,
        )
        with agree(layout.device_mesh):
            _check(A, near_null_space, theta, degree, max_coarse, precision)
            self._scale = _checked_diagonal(A).double().rsqrt()
            vectors = constants(layout) if near_null_space is None else near_null_space.detach()
        values = A.values.detach().double()
        level = finest_level(layout, values, self._scale, vectors.double())
        hierarchy = build(level, theta, max_coarse, precision)
        self.sizes = [level.n_global for level in hierarchy.levels]
        self.operator_complexity = hierarchy.operator_complexity()
        self._cycle = Cycle(hierarchy, degree, precision)

    @torch.no_grad()
    def __matmul__(self, r: Tensor) -> Tensor:
        """Apply to owned slices ``[n_owned]`` or ``[n_owned, k]``; the dtype of `r` is kept.

        Raises
        ------
        ValueError
            If the length is not that of the owned slice.
        """
        if r.dim() not in (1, 2) or r.shape[0] != self._n_owned:
            raise ValueError(
                f"r has shape {tuple(r.shape)}; expected the owned slice [{self._n_owned}], or "
                "columns of it"
            )
        scale = self._scale if r.dim() == 1 else self._scale[:, None]
        scaled = r * scale
        unit = self._unit(scaled)
        x = self._cycle @ times_power(scaled, -unit).to(self._dtype)
        return (times_power(x.to(scaled.dtype), unit) * scale).to(r.dtype)

    @property
    def T(self) -> "Multilevel":
        """The same: a cycle is symmetric."""
        return self

    def _unit(self, x: Tensor) -> int:
        """Exponent of the largest entry over all ranks, lest a narrower dtype lose small ones."""
        largest = float(x.abs().max()) if x.numel() else 0.0
        exponent = math.frexp(largest)[1] if largest else -_NOTHING
        exponent = all_max(exponent, self._device_mesh)
        return exponent - _HEADROOM if exponent > -_NOTHING else 0


def constants(layout: MatrixLayout) -> Tensor:
    """A constant for each component, ``[n_owned, h]``."""
    unknowns, h = layout.unknowns
    return torch.nn.functional.one_hot(unknowns % h, h)


def _checked_diagonal(A: "DSparseMatrix") -> Tensor:
    """Owned slice of the diagonal."""
    diagonal = A.diagonal().detach()
    bad = (~(torch.isfinite(diagonal) & (diagonal > 0))).nonzero().flatten()
    if bad.numel():
        raise ValueError(
            f"preconditioner = 'multilevel': {bad.numel()} diagonal entries on this rank (first: "
            f"unknown {int(A.layout.owned_dofs[bad[0]])}, {diagonal[bad[0]].item():g}) are not "
            "positive; use 'jacobi' or 'schwarz'"
        )
    return diagonal


def _check(
    A: "DSparseMatrix",
    near_null_space: Any,
    theta: float,
    degree: int,
    max_coarse: int,
    precision: torch.dtype,
) -> None:
    if A.values.is_complex():
        raise TypeError(
            f"the matrix is {A.values.dtype}: preconditioner 'multilevel' is for real ones; take "
            "'jacobi'"
        )
    if precision not in (torch.float32, torch.float64):
        raise ValueError(f"precision must be torch.float32 or torch.float64, got {precision}")
    check_number("theta", theta)
    if not 0 <= theta < 1:
        raise ValueError(f"theta must be at least 0 and below 1, got {theta}")
    check_integer("degree", degree, 1)
    check_integer("max_coarse", max_coarse, 1)
    if near_null_space is None:
        return
    if not isinstance(near_null_space, Tensor):
        kind = type(near_null_space).__name__
        raise TypeError(f"near_null_space must be a tensor or None, got {kind}")
    n = A.layout.n_owned
    if near_null_space.dim() != 2 or near_null_space.shape[0] != n:
        raise ValueError(
            f"near_null_space has shape {tuple(near_null_space.shape)}; expected owned slices in "
            f"columns, [{n}, k]"
        )
