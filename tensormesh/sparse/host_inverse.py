"""Approximate inverses of a matrix of scipy, on the host."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pyamg.aggregation import smoothed_aggregation_solver
from scipy.sparse.linalg import spilu
from torch import Tensor

Array = np.ndarray[Any, np.dtype[Any]]
# From ``[n]`` or ``[n, k]`` to the same.
HostSolver = Callable[[Array], Array]


def cycle(matrix: Any) -> HostSolver:
    """One V-cycle of smoothed aggregation, symmetric positive definite where `matrix` is.

    Parameters
    ----------
    matrix
        A ``csr_matrix`` of scipy with 32-bit indices, as pyamg asks.
    """
    if not matrix.shape[0]:
        return lambda r: r
    M = smoothed_aggregation_solver(matrix).aspreconditioner()

    def solve(r: Array) -> Array:
        return M @ r if r.ndim == 1 else np.stack([M @ column for column in r.T], axis=1)

    return solve


def incomplete_factors(matrix: Any, transposed: bool = False) -> HostSolver:
    """Incomplete factors, of any matrix, or of its transpose.

    Raises
    ------
    RuntimeError
        If a factor is singular.
    """
    if not matrix.shape[0]:
        return lambda r: r
    factors = spilu((matrix.T if transposed else matrix).tocsc())
    dtype = matrix.dtype

    def solve(r: Array) -> Array:
        x: Array = factors.solve(np.ascontiguousarray(r.astype(dtype)))
        return x

    return solve


def applied(solve: HostSolver, r: Tensor) -> Tensor:
    """Result for a tensor, where it is and in its dtype."""
    return torch.from_numpy(solve(r.detach().cpu().numpy())).to(r.device, r.dtype)
