"""METIS: multilevel recursive bisection of the dual graph, by `pymetis`."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

N_CUTS = 8
"""Partitions tried in each bisection; the shortest is kept. One leaves cuts some 5 % longer."""
N_REFINEMENTS = 20
"""Passes of refinement on each level."""
SEED = 0
TOTAL_WEIGHT = 2**30
"""METIS sums weights in 32 bits; real weights are scaled to this total and rounded."""
INT32_MAX = 2**31 - 1


def metis_labels(graph: csr_array, n_parts: int, weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Label the nodes of a graph with METIS.

    Bisection is used for any number of parts: its k-way method lets parts differ by more than 3 %,
    leaves some empty where there are few nodes a part, and cuts no fewer edges.

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
    ImportError
        If `pymetis` is not installed.
    ValueError
        If the graph is too large for the 32-bit integers of METIS.

    References
    ----------
    Karypis and Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs,
    SIAM J. Sci. Comput. 20 (1998) 359-392.
    """
    try:
        import pymetis
    except ImportError as error:
        raise ImportError(
            "method='metis' needs pymetis: pip install pymetis, or use method='coordinate' or"
            " method='spectral'."
        ) from error
    if max(graph.nnz, graph.shape[0]) > INT32_MAX:
        raise ValueError(
            f"The graph has {graph.shape[0]} nodes and {graph.nnz} entries, METIS counts to"
            f" {INT32_MAX}. Use method='coordinate'."
        )
    _, labels = pymetis.part_graph(
        n_parts,
        pymetis.CSRAdjacency(graph.indptr.astype(np.int32), graph.indices.astype(np.int32)),
        vweights=integer_weights(weights),
        recursive=True,
        options=pymetis.Options(seed=SEED, ncuts=N_CUTS, niter=N_REFINEMENTS),
    )
    return fill_empty_parts(np.asarray(labels, np.int64), n_parts)


def fill_empty_parts(labels: NDArray[np.int64], n_parts: int) -> NDArray[np.int64]:
    """Give each empty part one node of the largest parts.

    With one or two nodes a part METIS leaves some empty.

    Parameters
    ----------
    labels
        (n,) with ``n >= n_parts``.
    n_parts
        Number of parts.

    Returns
    -------
    NDArray
        (n,) int64, every part from 0 to ``n_parts - 1`` occurs.
    """
    sizes = np.bincount(labels, minlength=n_parts)
    empty = np.flatnonzero(sizes == 0)
    by_size = np.lexsort([labels, -sizes[labels]])
    # Every part but for its first node, from the largest part to the smallest.
    spare = by_size[np.diff(labels[by_size], prepend=-1) == 0]
    labels = labels.copy()
    labels[spare[: len(empty)]] = empty
    return labels


def integer_weights(weights: NDArray[np.float64]) -> NDArray[np.int32] | None:
    """Weights in proportion, as positive integers whose sum fits; None if all are equal."""
    if np.all(weights == weights[0]):
        return None
    scale = (TOTAL_WEIGHT - len(weights)) / weights.sum()
    return np.maximum(np.rint(weights * scale), 1).astype(np.int32)
