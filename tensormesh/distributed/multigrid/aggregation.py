"""Aggregates: disjoint sets of neighbouring nodes of one rank, each a node of the coarse level."""

import numpy as np
from pyamg.aggregation import standard_aggregation

from tensormesh.distributed.multigrid.level import Csr, Ints, Level


def aggregates(level: Level, graph: Csr) -> tuple[Ints, int]:
    """Aggregate of each node, and how many there are. Nothing is sent.

    Parameters
    ----------
    level
        The matrix.
    graph
        Strong connections within this rank.

    Returns
    -------
    aggregate, n_aggregates
        int ``[n_nodes]``; -1 for a node that is connected to nothing, which smoothing solves. A
        node whose connections all lead to other ranks is an aggregate by itself.
    """
    aggregate = np.full(level.n_nodes, -1)
    n_aggregates = 0
    if level.n_nodes:
        membership = standard_aggregation(graph)[0]
        members = np.diff(membership.indptr) > 0
        aggregate[members] = membership.indices
        n_aggregates = int(aggregate.max()) + 1
    alone = (aggregate < 0) & _coupled_to_other_ranks(level)
    aggregate[alone] = n_aggregates + np.arange(alone.sum())
    return aggregate, n_aggregates + int(alone.sum())


def _coupled_to_other_ranks(level: Level) -> Ints:
    """Bool ``[n_nodes]``."""
    matrix = level.matrix
    row = np.repeat(np.arange(level.n_owned), np.diff(matrix.indptr))
    off_rank = (matrix.indices >= level.n_owned) & (matrix.data != 0)
    coupled = np.zeros(level.n_nodes, dtype=bool)
    coupled[level.nodes[row[off_rank]]] = True
    return coupled
