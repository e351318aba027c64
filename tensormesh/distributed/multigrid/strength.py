"""Strength of connection: which nodes of this rank may share an aggregate."""

import numpy as np
import scipy.sparse as sp

from tensormesh.distributed.multigrid.level import Csr, Level


def strong_connections(level: Level, theta: float) -> Csr:
    """Graph of the nodes of this rank. Nothing is sent: connections to other ranks do not count.

    Nodes ``i`` and ``j`` are connected if ``|A_ij| > theta sqrt(|A_ii| |A_jj|)``, in Frobenius
    norms of the blocks of their unknowns; for ``theta = 0`` if an entry is stored.

    Parameters
    ----------
    level
        The matrix, its diagonal one.
    theta
        Threshold, from 0 to 1.

    Returns
    -------
    scipy.sparse.csr_matrix
        ``[n_nodes, n_nodes]``; symmetric, as the matrix is.

    References
    ----------
    P. Vanek, J. Mandel, M. Brezina, Algebraic multigrid by smoothed aggregation for second and
    fourth order elliptic problems, Computing 56 (1996), equation 3.1.
    """
    squares = _squares_between_nodes(level)
    if theta == 0:
        return squares
    row = np.repeat(np.arange(level.n_nodes), np.diff(squares.indptr))
    size = np.sqrt(squares.diagonal())
    strong = squares.data > theta**2 * size[row] * size[squares.indices]
    edges = row[strong], squares.indices[strong]
    return sp.csr_matrix((squares.data[strong], edges), shape=squares.shape)


def _squares_between_nodes(level: Level) -> Csr:
    """Sum of the squares of the entries in the block of each pair of nodes."""
    owned = level.stored[:, : level.n_owned]
    squares = sp.csr_matrix((owned.data**2, owned.indices, owned.indptr), shape=owned.shape)
    if level.n_nodes == level.n_owned:
        return squares
    ones = np.ones(level.n_owned)
    shape = (level.n_owned, level.n_nodes)
    of_node = sp.csr_matrix((ones, level.nodes, np.arange(level.n_owned + 1)), shape=shape)
    return (of_node.T.tocsr() @ (squares @ of_node)).tocsr()
