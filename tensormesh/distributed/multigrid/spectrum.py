"""The largest eigenvalue of a sharded symmetric matrix, as damping and smoothing need it."""

import math

import numpy as np
import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_reduce_sum
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.product import ShardedProduct

# Their estimate is some per cent low, which the users of it allow for.
_STEPS = 12


def largest_eigenvalue(product: ShardedProduct, layout: MatrixLayout, dtype: torch.dtype) -> float:
    """Estimate from below by a few steps of Lanczos. **Collective.**

    Parameters
    ----------
    product
        Product with the matrix, which is positive semi-definite.
    layout
        Its layout.
    dtype
        Dtype of the vectors.

    Returns
    -------
    float
        The same on every rank; 1 for a matrix without rows.

    References
    ----------
    Saad, Numerical Methods for Large Eigenvalue Problems, 2nd ed. 2011, Algorithm 6.5.
    """
    diagonal: list[float] = []
    beside: list[float] = []
    v, before = _random(layout, dtype), None
    beta = _norm(v, layout)
    while len(diagonal) < _STEPS and beta > torch.finfo(dtype).eps * max([1.0, *diagonal]):
        v = v / beta
        w = product @ v
        if before is not None:
            w = w - beta * before
            beside.append(beta)
        diagonal.append(_dot(v, w, layout))
        w = w - diagonal[-1] * v
        before, v = v, w
        beta = _norm(v, layout)
    if not diagonal:
        return 1.0
    T = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    return float(np.linalg.eigvalsh(T)[-1])


def _random(layout: MatrixLayout, dtype: torch.dtype) -> Tensor:
    """Vector of no particular direction, of owned unknowns, the same in each run."""
    generator = torch.Generator("cpu").manual_seed(layout.index_map.rank)
    v = torch.rand(layout.n_owned, generator=generator, dtype=torch.float64, device="cpu") - 0.5
    return v.to(layout.pattern.device, dtype)


def _dot(x: Tensor, y: Tensor, layout: MatrixLayout) -> float:
    return float(all_reduce_sum(torch.dot(x, y), layout.device_mesh))


def _norm(x: Tensor, layout: MatrixLayout) -> float:
    return math.sqrt(_dot(x, x, layout))
