"""Colours for the nodes of a graph such that neighbours differ."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, sparray, spmatrix
from torch import Tensor

from tensormesh.mesh.partition.graph import undirected
from tensormesh.sparse import SparseMatrix


def graph_coloring(
    adjacency: SparseMatrix | sparray | spmatrix, max_iter: int | None = None
) -> Tensor:
    """Colour the nodes of a graph; neighbours differ.

    In rounds: each node that comes before all its neighbours without a colour takes the smallest
    colour that no neighbour has. The order is by degree, the largest first, and for equal degrees
    by a fixed shuffle, so the same graph gets the same colours, at most one more than the largest
    degree.

    Parameters
    ----------
    adjacency
        (N, N), of `tensormesh` or scipy. An entry off the diagonal is an edge, whatever its value
        and whether or not its mirror image is there.
    max_iter
        Accepted for compatibility: each round colours a node at least, so the rounds end.

    Returns
    -------
    Tensor
        (N,) int64 on the CPU, colours 0, 1, ...

    Raises
    ------
    ValueError
        If the matrix is not square.
    TypeError
        If `adjacency` is no sparse matrix.

    References
    ----------
    Jones and Plassmann, A parallel graph coloring heuristic, SIAM J. Sci. Comput. 14, 1993.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> triangle = csr_array([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    >>> sorted(graph_coloring(triangle).tolist())
    [0, 1, 2]
    """
    graph = undirected(adjacency)
    rank = _ranks(np.diff(graph.indptr))
    colours = np.full(graph.shape[0], -1, np.int64)
    row, col = graph.tocoo().coords
    first, second = row[rank[row] < rank[col]], col[rank[row] < rank[col]]
    while (colours < 0).any():
        may_choose = colours < 0
        may_choose[second] = False
        ready = np.flatnonzero(may_choose)
        colours[ready] = _smallest_free(graph, ready, colours)
        waiting = colours[first] < 0
        first, second = first[waiting], second[waiting]
    return torch.from_numpy(colours)


def _ranks(degree: NDArray[np.int32]) -> NDArray[np.int64]:
    """Place of each node in the order in which nodes choose, (N,), each once."""
    # A shuffle keeps chains of nodes that wait for each other short.
    shuffled = np.random.default_rng(0).permutation(len(degree))
    order = np.lexsort((shuffled, -degree))
    rank = np.empty(len(degree), np.int64)
    rank[order] = np.arange(len(degree))
    return rank


def _smallest_free(
    graph: csr_array, nodes: NDArray[np.int64], colours: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Smallest colour that no neighbour of each of `nodes` has, (k,)."""
    part = graph[nodes].tocoo()
    used = np.stack([part.coords[0], colours[part.coords[1]]])
    number, colour = np.unique(used[:, used[1] >= 0], axis=1)
    start = np.searchsorted(number, np.arange(len(nodes)))
    # Among distinct colours in order, the ones before the first gap stand at their own place.
    in_place = colour == np.arange(len(colour)) - start[number]
    return np.bincount(number[in_place], minlength=len(nodes))
