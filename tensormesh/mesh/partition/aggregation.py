"""Aggregates of the nodes of a graph: each with its neighbours, for a coarse space."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

N_MATCHINGS = 2
"""Matchings in a row: about five nodes an aggregate. With three, long thin graphs converge slowly;
with one, the coarse matrices fill up."""


def coarsened(graph: csr_array, random: np.random.Generator) -> tuple[csr_array, NDArray[np.int64]]:
    """Join the nodes of a graph to aggregates.

    Parameters
    ----------
    graph
        Symmetric positive weights, (n, n), connected, ``n >= 2``, empty diagonal.
    random
        Decides between edges of one weight.

    Returns
    -------
    graph, aggregate
        Graph of the aggregates, with the sums of the weights between them; and the aggregate of
        each node, (n,) int64, numbered from 0.
    """
    aggregate = np.arange(graph.shape[0])
    for _ in range(N_MATCHINGS):
        group = matching(graph, random.random(graph.shape[0]))
        prolongation = indicator(group)
        graph = (prolongation.T.tocsr() @ graph @ prolongation).tocsr()
        graph.setdiag(0)
        graph.eliminate_zeros()
        aggregate = group[aggregate]
    return graph, aggregate


def matching(graph: csr_array, priority: NDArray[np.float64]) -> NDArray[np.int64]:
    """Join each node to a heavy neighbour; two to four nodes a group.

    Parameters
    ----------
    graph
        Symmetric positive weights, (n, n), every node with a neighbour, empty diagonal.
    priority
        Numbers in [0, 1), (n,), that decide between edges of one weight.

    Returns
    -------
    NDArray
        Group of each node, (n,) int64, numbered from 0.
    """
    edges = graph.tocoo()
    row, col = edges.row, edges.col
    weight = edges.data * (1.0 + 1e-3 * (priority[row] + priority[col]))
    group = np.arange(graph.shape[0])
    free = np.ones(len(group), bool)
    while len(row):
        # The heaviest edge left is the heaviest at both its ends, so each round finds some pair.
        chosen = heaviest(row, col, weight, len(group))
        pairs = np.flatnonzero(chosen[chosen] == np.arange(len(group)))
        pairs = pairs[chosen[pairs] != pairs]
        if len(pairs) == 0:
            break
        group[pairs] = np.minimum(pairs, chosen[pairs])
        free[pairs] = False
        usable = free[row] & free[col]
        row, col, weight = row[usable], col[usable], weight[usable]
    single = free[edges.row]
    chosen = heaviest(edges.row[single], edges.col[single], edges.data[single], len(group))
    join_singles(group, np.flatnonzero(free), chosen)
    return np.unique(group, return_inverse=True)[1]


def join_singles(
    group: NDArray[np.int64], singles: NDArray[np.int64], neighbour: NDArray[np.int64]
) -> None:
    """Pair the nodes that have one neighbour in common; an odd one joins that neighbour's group.

    Joining them all would make one group of a star, and leave nothing for the coarse space.

    Parameters
    ----------
    group
        Group of each node, (n,), changed in place.
    singles
        Nodes that are a group of their own.
    neighbour
        A neighbour of each node, (n,).
    """
    singles = singles[np.argsort(neighbour[singles], kind="stable")]
    place = np.arange(len(singles))
    starts = np.diff(neighbour[singles], prepend=-1) != 0
    odd = (place - np.maximum.accumulate(np.where(starts, place, 0))) % 2 == 1
    last = ~odd & np.append(starts[1:], True)[: len(singles)]
    group[singles[odd]] = singles[place[odd] - 1]
    group[singles[last]] = group[neighbour[singles[last]]]


def heaviest(row: NDArray, col: NDArray, weight: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Column of the heaviest entry of each row, the row itself where it has none.

    Parameters
    ----------
    row, col, weight
        Entries, (nnz,), sorted by row.
    n
        Number of rows.

    Returns
    -------
    NDArray
        (n,) int64.
    """
    chosen = np.arange(n)
    if len(row) == 0:
        return chosen
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    largest = np.repeat(np.maximum.reduceat(weight, starts), np.diff(starts, append=len(row)))
    best = weight == largest
    chosen[row[best]] = col[best]
    return chosen


def indicator(group: NDArray[np.int64]) -> csr_array:
    """Nodes against groups, one in each row, (n, n_groups) float64."""
    n = len(group)
    return csr_array((np.ones(n), group, np.arange(n + 1)), shape=(n, int(group.max()) + 1))
