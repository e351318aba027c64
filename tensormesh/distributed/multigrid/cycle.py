"""The V-cycle: products and smoothing on the device, level by level."""

import logging

import torch
from torch import Tensor

from tensormesh.distributed.multigrid.coarsest import Coarsest
from tensormesh.distributed.multigrid.hierarchy import Hierarchy, Step
from tensormesh.distributed.multigrid.level import csr_tensor_of, product_of
from tensormesh.distributed.multigrid.smoother import Chebyshev
from tensormesh.distributed.multigrid.spectrum import largest_eigenvalue

logger = logging.getLogger(__name__)

# A dense inverse of more unknowns costs more than it saves.
_LARGEST_DENSE = 4000


class Cycle:
    """Approximate inverse of the finest matrix, symmetric positive definite. **Collective.**

    Parameters
    ----------
    hierarchy
        The levels.
    degree
        Degree of the smoothing polynomial.
    dtype
        Dtype of vectors and products.
    """

    def __init__(self, hierarchy: Hierarchy, degree: int, dtype: torch.dtype) -> None:
        self._stages = [_Stage(step, degree, dtype) for step in hierarchy.steps]
        self._coarsest = _solver(hierarchy, degree, dtype)

    def __matmul__(self, r: Tensor) -> Tensor:
        """One V-cycle for the residual `r`, ``[n_owned]`` or ``[n_owned, k]``. **Collective.**"""
        return self._descend(0, r)

    def _descend(self, number: int, r: Tensor) -> Tensor:
        """Correction at the owned unknowns of a level, for its owned residual."""
        if number == len(self._stages):
            return self._coarsest @ r
        stage = self._stages[number]
        x = stage.smooth(r)
        coarse = stage.restriction @ (r - stage.product @ x)
        x.add_(stage.prolongation @ self._below(number, coarse))
        return x.add_(stage.smooth(r - stage.product @ x))

    def _below(self, number: int, local: Tensor) -> Tensor:
        """Coarse correction at local unknowns, from contributions to their residual."""
        if number + 1 == len(self._stages) and isinstance(self._coarsest, Coarsest):
            return self._coarsest @ local
        halo = self._stages[number].halo
        owned = self._descend(number + 1, halo.scatter_reverse(local))
        return halo.scatter_forward(owned)


class _Stage:
    """What one level of the cycle multiplies with."""

    def __init__(self, step: Step, degree: int, dtype: torch.dtype) -> None:
        device = step.coarse.pattern.device
        self.product, self.halo = step.product, step.coarse.halo
        self.smooth = Chebyshev(step.product, step.largest, degree)
        self.prolongation = csr_tensor_of(step.prolongator, device, dtype)
        self.restriction = csr_tensor_of(step.prolongator.T.tocsr(), device, dtype)


class _Smoothing:
    """Smoothing alone, for a last level that is too large to be inverted."""

    def __init__(self, smoother: Chebyshev) -> None:
        self._smoother = smoother

    def __matmul__(self, r: Tensor) -> Tensor:
        return self._smoother(r)


def _solver(hierarchy: Hierarchy, degree: int, dtype: torch.dtype) -> Coarsest | _Smoothing:
    level = hierarchy.coarsest
    if level.n_global <= _LARGEST_DENSE:
        return Coarsest(level, dtype)
    logger.warning(
        "coarsening stopped at %d unknowns, too many to invert: the coarsest level is smoothed "
        "only; the rows of each rank should be neighbours of each other",
        level.n_global,
    )
    product = product_of(level, dtype)
    return _Smoothing(
        Chebyshev(product, largest_eigenvalue(product, level.layout, dtype), 4 * degree)
    )
