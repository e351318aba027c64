"""The hierarchy: levels that coarsen until one is small."""

import logging
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints, all_reduce_sum
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.multigrid.aggregation import aggregates
from tensormesh.distributed.multigrid.galerkin import galerkin
from tensormesh.distributed.multigrid.level import Csr, Level, csr_of, product_of
from tensormesh.distributed.multigrid.prolongator import smoothed
from tensormesh.distributed.multigrid.spectrum import largest_eigenvalue
from tensormesh.distributed.multigrid.strength import strong_connections
from tensormesh.distributed.multigrid.tentative import tentative_prolongator
from tensormesh.distributed.product import ShardedProduct
from tensormesh.sparse.pattern import SparsityPattern

logger = logging.getLogger(__name__)

# A level that is not smaller than this part of the one above is not worth it.
_STALLED = 0.9
# Entries of a matrix with unit diagonal that are nothing but rounding.
_ROUNDING = 1e-14
# Fewer entries than this part are worth a pattern of their own.
_MOST = 0.8


@dataclass(frozen=True)
class Step:
    """A level with a coarser one below it.

    Parameters
    ----------
    level
        The matrix.
    product
        Product with it, on the device.
    largest
        Its largest eigenvalue.
    prolongator
        ``[n_owned, n_local_coarse]``.
    coarse
        Layout of the coarse unknowns.
    """

    level: Level
    product: ShardedProduct
    largest: float
    prolongator: Csr
    coarse: MatrixLayout


@dataclass(frozen=True)
class Hierarchy:
    """Levels from fine to coarse.

    Parameters
    ----------
    steps
        Those with a coarser one below.
    coarsest
        The last level.
    """

    steps: list[Step]
    coarsest: Level

    @property
    def levels(self) -> list[Level]:
        """All levels."""
        return [*(step.level for step in self.steps), self.coarsest]

    def operator_complexity(self) -> float:
        """Stored entries of all levels over those of the first. **Collective.**"""
        device_mesh = self.coarsest.layout.device_mesh
        nnz = [level.matrix.nnz for level in self.levels]
        total = all_reduce_sum(torch.tensor(nnz, device=device_mesh.device), device_mesh)
        return float(total.sum() / max(int(total[0]), 1))


def finest_level(layout: MatrixLayout, values: Tensor, scale: Tensor, vectors: Tensor) -> Level:
    """Level of ``S A S``. **Collective.**

    Parameters
    ----------
    layout, values
        The matrix ``A``.
    scale
        Inverse square root of its diagonal, ``[n_owned]``.
    vectors
        Near-null vectors of ``A``, ``[n_owned, k]``.
    """
    row, col = layout.pattern.row, layout.pattern.col
    scaled = values.to(scale.dtype) * scale[row] * layout.with_ghosts(scale)[col]
    unknowns, h = layout.unknowns
    nodes = torch.unique(torch.div(unknowns, h, rounding_mode="floor"), return_inverse=True)[1]
    near_null_space = (vectors.to(scale.dtype) / scale[:, None]).cpu().numpy()
    stored = csr_of(layout, scaled)
    layout, scaled = _without_rounding(layout, scaled)
    return Level(layout, csr_of(layout, scaled), nodes.cpu().numpy(), near_null_space, stored)


def _without_rounding(layout: MatrixLayout, values: Tensor) -> tuple[MatrixLayout, Tensor]:
    """The same matrix without entries that are zero, where that saves much.

    On boxes cut into simplices, half of the entries of a Laplacian are.
    """
    entries = (values.abs() > _ROUNDING).nonzero().flatten()
    if entries.numel() > _MOST * values.numel():
        return layout, values
    pattern = layout.pattern
    kept = SparsityPattern(pattern.row[entries], pattern.col[entries], pattern.shape)
    smaller = MatrixLayout(
        kept, layout.index_map, layout.halo, layout.vectors, layout.h, layout.uuid, layout.unknowns
    )
    return smaller, values[entries]


def build(level: Level, theta: float, max_coarse: int, dtype: torch.dtype) -> Hierarchy:
    """Coarsen until a level has at most `max_coarse` unknowns, or hardly fewer than the one above.

    **Collective.**

    Parameters
    ----------
    level
        The finest.
    theta
        Threshold of `strong_connections`.
    max_coarse
        Unknowns over all ranks that are few enough.
    dtype
        Of the products.
    """
    steps: list[Step] = []
    while level.n_global > max_coarse:
        step, coarse = _coarsened(level, theta, dtype)
        if coarse.n_global > _STALLED * level.n_global:
            break
        steps.append(step)
        level = coarse
    logger.info("levels of %s unknowns", [s.level.n_global for s in steps] + [level.n_global])
    return Hierarchy(steps, level)


def _coarsened(level: Level, theta: float, dtype: torch.dtype) -> tuple[Step, Level]:
    layout = level.layout
    product = product_of(level, dtype)
    largest = largest_eigenvalue(product, layout, dtype)
    aggregate, n_aggregates = aggregates(level, strong_connections(level, theta))
    tentative = tentative_prolongator(aggregate[level.nodes], n_aggregates, level.near_null_space)
    counts = all_gather_ints([tentative.matrix.shape[1]], layout.device_mesh)[:, 0]
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    first = int(offsets[layout.index_map.rank])
    columns = np.arange(first, first + tentative.matrix.shape[1])
    P, columns = smoothed(level, tentative.matrix, columns, largest)
    coarse = galerkin(level, P, columns, offsets)
    vectors = tentative.near_null_space / coarse.scale[: coarse.matrix.shape[0], None]
    step = Step(level, product, largest, coarse.prolongator, coarse.layout)
    return step, Level(coarse.layout, coarse.matrix, tentative.nodes, vectors, coarse.matrix)
