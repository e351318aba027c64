"""Lowest eigenvectors of a graph Laplacian: LOBPCG with a two-level preconditioner."""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, inv
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, lobpcg

from tensormesh.errors import NotConvergedError

N_VECTORS = 4
"""Vectors in the block: a cube has three Fiedler vectors, one more keeps them from the others."""
N_COARSE = 1000
"""Graphs up to this size are solved densely, larger ones get a coarse space no larger than it."""
TOLERANCE = 1e-2
"""Residual of the Fiedler pair relative to its eigenvalue: about the angle to the eigenspace."""
ITERATIONS = 10
"""LOBPCG steps between two tests of convergence."""
MAX_CYCLES = 40
"""Tests of convergence before giving up."""


def fiedler_vectors(graph: csr_array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lowest eigenpairs of the Laplacian of a connected graph, the constant vector left out.

    Parameters
    ----------
    graph
        Symmetric non-negative weights, (n, n), empty diagonal, connected, ``n >= 2``.

    Returns
    -------
    values, vectors
        (m,) ascending and (n, m), with ``m = min(4, n - 1)``; the first pair has converged, the
        others approximate eigenvectors.

    Raises
    ------
    NotConvergedError
        If the eigensolver did not converge.

    References
    ----------
    Knyazev, Toward the optimal preconditioned eigensolver: locally optimal block preconditioned
    conjugate gradient method, SIAM J. Sci. Comput. 23 (2001) 517-541.
    """
    graph = graph.astype(np.float64)
    n = graph.shape[0]
    laplacian = diags_array(graph.sum(axis=1)).tocsr() - graph
    if n <= N_COARSE:
        return eigh(laplacian.toarray(), subset_by_index=[1, min(N_VECTORS, n - 1)])
    preconditioner, values, vectors = two_level(laplacian, aggregation(graph, N_COARSE))
    constant = np.ones((n, 1))
    for _ in range(MAX_CYCLES):
        with warnings.catch_warnings():
            # It warns that the last vectors of the block are not converged, which is not asked for.
            warnings.simplefilter("ignore", UserWarning)
            values, vectors = lobpcg(
                laplacian,
                vectors,
                M=preconditioner,
                Y=constant,
                tol=TOLERANCE * values[0],
                maxiter=ITERATIONS,
                largest=False,
            )
        first = vectors[:, 0]
        residual = np.linalg.norm(laplacian @ first - values[0] * first) / values[0]
        if residual <= TOLERANCE:
            return values, vectors
    raise NotConvergedError(
        f"The Fiedler vector of a graph of {n} cells did not converge: relative residual"
        f" {residual:.1e} after {MAX_CYCLES * ITERATIONS} iterations, {TOLERANCE:.0e} is needed."
        " Use method='metis' or method='coordinate' for this mesh."
    )


def two_level(
    laplacian: csr_array, aggregate: NDArray[np.int64]
) -> tuple[LinearOperator, NDArray[np.float64], NDArray[np.float64]]:
    """Jacobi plus a dense solve on piecewise constants, and their lowest eigenpairs as first guess.

    Parameters
    ----------
    laplacian
        (n, n).
    aggregate
        Aggregate of each node, (n,), numbered from 0.

    Returns
    -------
    preconditioner, values, vectors
        Symmetric positive definite operator; (m,) and (n, m).
    """
    n = laplacian.shape[0]
    inverse_diagonal = 1.0 / laplacian.diagonal()[:, None]
    prolongation = indicator(aggregate)
    restriction = prolongation.T.tocsr()
    coarse = (restriction @ laplacian @ prolongation).toarray()
    sizes = np.bincount(aggregate).astype(np.float64)
    values, vectors = eigh(coarse, np.diag(sizes), subset_by_index=[1, N_VECTORS])
    # The constants are the null space of `coarse`: a rank-one shift of its size makes it definite.
    coarse_inverse = inv(coarse + np.outer(sizes, sizes) * (coarse.trace() / (n * len(sizes))))

    def apply(block: NDArray[np.float64]) -> NDArray[np.float64]:
        block = block.reshape(n, -1)
        return inverse_diagonal * block + prolongation @ (coarse_inverse @ (restriction @ block))

    operator = LinearOperator((n, n), matvec=apply, matmat=apply, dtype=np.float64)
    return operator, values, prolongation @ vectors


def aggregation(graph: csr_array, n_max: int) -> NDArray[np.int64]:
    """Aggregates of neighbours, at most `n_max` of them, by repeated matching of the graph.

    Parameters
    ----------
    graph
        Symmetric positive weights, (n, n), connected.
    n_max
        Largest number of aggregates.

    Returns
    -------
    NDArray
        Aggregate of each node, (n,) int64, numbered from 0.
    """
    random = np.random.default_rng(0).random
    aggregate = np.arange(graph.shape[0])
    while graph.shape[0] > n_max:
        merged = matching(graph, random(graph.shape[0]))
        prolongation = indicator(merged)
        graph = (prolongation.T.tocsr() @ graph @ prolongation).tocsr()
        graph.setdiag(0)
        graph.eliminate_zeros()
        aggregate = merged[aggregate]
    return aggregate


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
