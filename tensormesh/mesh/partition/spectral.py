"""Spectral bisection: cut the dual graph across its Fiedler vector."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from tensormesh.mesh.partition.bisection import recursive_bisection
from tensormesh.mesh.partition.fiedler import fiedler_vectors

NEAR = 1.3
"""Eigenvectors up to this multiple of the smallest eigenvalue are as good as the first."""
DIRECTIONS = 40
"""Combinations tried for each eigenvector beyond the first."""
DIFFUSION_STEPS = (32, 16, 8, 4, 2)
"""Steps of diffusion between two cuts, from smoothing the whole interface to a few cells."""


def spectral_labels(
    graph: csr_array, n_parts: int, weights: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Label the nodes of a graph by recursive bisection across the Fiedler vector.

    Each set is cut at the proportional quantile, so that any number of parts comes out balanced.
    A disconnected set is cut between its components where possible: only the component that the
    cut meets is cut.

    Parameters
    ----------
    graph
        Symmetric 0/1 adjacency, (n, n), empty diagonal.
    n_parts
        Number of parts.
    weights
        Weight of each node, (n,).

    Returns
    -------
    NDArray
        Part of each node, (n,) int64.

    Raises
    ------
    NotConvergedError
        If the eigensolver did not converge.

    References
    ----------
    Pothen, Simon and Liou, Partitioning sparse matrices with eigenvectors of graphs, SIAM J. Matrix
    Anal. Appl. 11 (1990) 430-452.
    """

    def order(cells: NDArray[np.int64], fraction: float) -> NDArray[np.int64]:
        return spectral_order(graph, cells, weights, fraction)

    return recursive_bisection(weights, n_parts, order)


def spectral_order(
    graph: csr_array, cells: NDArray[np.int64], weights: NDArray[np.float64], fraction: float
) -> NDArray[np.int64]:
    """Cells ordered for a cut after `fraction` of their weight.

    Components come one after the other, the largest first; the one that the cut meets is ordered
    by its Fiedler vector.
    """
    _, component = connected_components(graph[cells][:, cells], directed=False)
    sizes = np.bincount(component)
    by_size = np.argsort(-sizes, kind="stable")
    place = np.empty_like(by_size)
    place[by_size] = np.arange(len(by_size))
    cells = cells[np.argsort(place[component], kind="stable")]

    weight_before = np.cumsum(weights[cells])
    target = fraction * weight_before[-1]
    ends = np.cumsum(sizes[by_size])
    met = min(int(np.searchsorted(weight_before[ends - 1], target)), len(ends) - 1)
    inside = slice(ends[met] - sizes[by_size[met]], ends[met])
    part = cells[inside]
    below = target - (weight_before[ends[met] - 1] - weights[part].sum())
    if 0 < below < weights[part].sum() and len(part) > 1:
        share = below / weights[part].sum()
        cells[inside] = part[connected_order(graph[part][:, part].astype(np.float64), share)]
    return cells


def connected_order(graph: csr_array, fraction: float) -> NDArray[np.int64]:
    """Order the nodes of a connected graph for a short cut after `fraction` of them.

    Parameters
    ----------
    graph
        Symmetric 0/1 adjacency, (n, n), connected.
    fraction
        Where the cut will be, from 0 to 1.

    Returns
    -------
    NDArray
        Permutation of the nodes, (n,).
    """
    n = graph.shape[0]
    n_below = min(max(round(fraction * n), 1), n - 1)
    values, vectors = fiedler_vectors(graph)
    near = vectors[:, values <= NEAR * values[0]]
    start = min(
        (near @ direction for direction in directions(near.shape[1])),
        key=lambda vector: cut_size(graph, lowest(vector, n_below)),
    )
    values, below = smooth_cut(graph, start, n_below)
    return np.lexsort((values, ~below))


def directions(n: int) -> NDArray[np.float64]:
    """Unit vectors of an n-dimensional eigenspace, both ways, (k, n): the axes and a fixed sample.

    A square has two Fiedler vectors and a cube three; which mixture the eigensolver returns is
    chance, and a cut across the diagonal is longer than one across an axis.
    """
    sample = np.random.default_rng(0).standard_normal((DIRECTIONS * (n - 1), n))
    half = np.concatenate([np.eye(n), sample / np.linalg.norm(sample, axis=1, keepdims=True)])
    return np.concatenate([half, -half])


def smooth_cut(
    graph: csr_array, values: NDArray[np.float64], n_below: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Shorten the cut below the `n_below` lowest values, the number of nodes below it kept.

    Threshold dynamics: diffuse the indicator of the part below and cut again at the same quantile,
    which moves an interface by its curvature. Only steps that shorten the cut are taken.

    Parameters
    ----------
    graph
        Symmetric 0/1 adjacency, (n, n).
    values
        (n,).
    n_below
        Number of nodes below the cut.

    Returns
    -------
    values, below
        New values, (n,), and a mark on the `n_below` lowest of them, (n,).

    References
    ----------
    Merriman, Bence and Osher, Motion of multiple junctions: a level set approach, J. Comput. Phys.
    112 (1994) 334-363.
    """
    degree = graph.sum(axis=1)
    step = 0.5 / degree.max()
    below = lowest(values, n_below)
    length = cut_size(graph, below)
    for n_steps in DIFFUSION_STEPS:
        shorter = True
        while shorter:
            heat = below.astype(np.float64)
            for _ in range(n_steps):
                heat += step * (graph @ heat - degree * heat)
            moved = lowest(-heat, n_below)
            moved_length = cut_size(graph, moved)
            shorter = moved_length < length
            if shorter:
                values, below, length = -heat, moved, moved_length
    return values, below


def lowest(values: NDArray[np.float64], n_below: int) -> NDArray[np.bool_]:
    """Mark the `n_below` lowest values, exactly that many."""
    mark = np.zeros(len(values), bool)
    mark[np.argpartition(values, n_below - 1)[:n_below]] = True
    return mark


def cut_size(graph: csr_array, below: NDArray[np.bool_]) -> int:
    """Number of edges between the marked nodes and the others."""
    return int((graph @ (~below).astype(graph.dtype))[below].sum())
