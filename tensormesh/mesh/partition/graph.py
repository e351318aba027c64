"""Partition of a graph that is given by its adjacency matrix."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, sparray, spmatrix
from torch import Tensor

from tensormesh.mesh.partition.metis import metis_labels
from tensormesh.mesh.partition.spectral import spectral_labels
from tensormesh.sparse import SparseMatrix

GraphMethod = Callable[[csr_array, int, NDArray[np.float64]], NDArray[np.int64]]

GRAPH_METHODS: dict[str, GraphMethod] = {"spectral": spectral_labels, "metis": metis_labels}


def graph_partition(
    adjacency: SparseMatrix | sparray | spmatrix, n_parts: int, method: str = "spectral"
) -> Tensor:
    """Share the nodes of a graph out among parts of equal size with few edges between them.

    Parameters
    ----------
    adjacency
        (N, N), of `tensormesh` or scipy. An entry off the diagonal is an edge, whatever its value
        and whether or not its mirror image is there.
    n_parts
        Number of parts, from 1 to N.
    method
        ``"spectral"`` or ``"metis"``.

    Returns
    -------
    Tensor
        Part of each node, (N,) int64, no part empty; the same for the same input.

    Raises
    ------
    ValueError
        If the method is unknown, the matrix is not square, or `n_parts` is out of range.
    TypeError
        If `adjacency` is no sparse matrix, or `n_parts` no integer.
    ImportError
        If METIS is asked for and `pymetis` is not installed.
    NotConvergedError
        If the eigensolver did not converge.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> path = csr_array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]])
    >>> labels = graph_partition(path, 2)
    >>> bool(labels[0] == labels[1] != labels[2] == labels[3])
    True
    """
    check_method(method, GRAPH_METHODS)
    graph = undirected(adjacency)
    check_n_parts(n_parts, graph.shape[0], "nodes")
    return torch.from_numpy(GRAPH_METHODS[method](graph, n_parts, np.ones(graph.shape[0])))


def undirected(adjacency: SparseMatrix | sparray | spmatrix) -> csr_array:
    """Pattern of a square matrix: symmetric int32 ones, empty diagonal."""
    if isinstance(adjacency, SparseMatrix):
        adjacency = adjacency.to_scipy_coo()
    elif not isinstance(adjacency, sparray | spmatrix):
        raise TypeError(
            f"adjacency must be a SparseMatrix or a scipy sparse matrix, got {type(adjacency)}."
        )
    if adjacency.shape[0] != adjacency.shape[1]:
        raise ValueError(f"adjacency must be square, got shape {adjacency.shape}.")
    coo = adjacency.tocoo()
    edge = coo.row != coo.col
    ones = np.ones(2 * np.count_nonzero(edge), np.int32)
    row, col = coo.row[edge], coo.col[edge]
    graph = csr_array(
        (ones, (np.concatenate([row, col]), np.concatenate([col, row]))), shape=coo.shape
    )
    graph.sum_duplicates()
    graph.data[:] = 1
    return graph


def check_method(method: str, known: dict[str, GraphMethod] | tuple[str, ...]) -> None:
    """Raise `ValueError` unless `method` is one of `known`."""
    if method not in known:
        raise ValueError(f"Unknown partition method {method!r}; known are {', '.join(known)}.")


def check_n_parts(n_parts: int, n: int, what: str) -> None:
    """Raise unless `n_parts` is an integer from 1 to `n`, the number of `what`."""
    if isinstance(n_parts, bool) or not isinstance(n_parts, int | np.integer):
        raise TypeError(f"n_parts must be an integer, got {n_parts!r}.")
    if not 1 <= n_parts <= n:
        raise ValueError(
            f"n_parts = {n_parts} is impossible with {n} {what}: choose from 1 to {n}."
        )
