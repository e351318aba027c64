"""Lowest eigenvectors of a graph Laplacian: LOBPCG preconditioned by a multigrid cycle."""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, inv
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, lobpcg

from tensormesh.errors import NotConvergedError
from tensormesh.mesh.partition.aggregation import coarsened, indicator

Array = NDArray[np.float64]

N_VECTORS = 4
"""Vectors in the block: a cube has three Fiedler vectors, one more keeps them from the others."""
N_DENSE = 500
"""Graphs up to this size, the coarsest grid among them, are solved densely."""
TOLERANCE = 1e-2
"""Residual of the Fiedler pair relative to its eigenvalue: about the angle to the eigenspace."""
ITERATIONS = 10
"""LOBPCG steps between two tests of convergence."""
MAX_CYCLES = 40
"""Tests of convergence before giving up."""


def fiedler_vectors(graph: csr_array) -> tuple[Array, Array]:
    """Lowest eigenpairs of the Laplacian of a connected graph, the constant vector left out.

    Parameters
    ----------
    graph
        Symmetric positive weights, (n, n), empty diagonal, connected, ``n >= 2``.

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
    if n <= N_DENSE:
        return eigh(laplacian.toarray(), subset_by_index=[1, min(N_VECTORS, n - 1)])
    multigrid = Multigrid(graph, laplacian)
    preconditioner = LinearOperator(
        (n, n), matvec=multigrid.cycle, matmat=multigrid.cycle, dtype=np.float64
    )
    values, vectors = multigrid.coarse_eigenpairs()
    for _ in range(MAX_CYCLES):
        with warnings.catch_warnings():
            # It warns that the last vectors of the block are not converged, which is not asked for.
            warnings.simplefilter("ignore", UserWarning)
            values, vectors = lobpcg(
                laplacian,
                vectors,
                M=preconditioner,
                Y=np.ones((n, 1)),
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


@dataclass(frozen=True)
class Level:
    """One grid of the hierarchy: its matrix, damped inverse diagonal and prolongation to it."""

    matrix: csr_array
    smoother: Array
    prolongation: csr_array
    restriction: csr_array


class Multigrid:
    """Smoothed aggregation for a graph Laplacian, the null space of constants kept on each level.

    Parameters
    ----------
    graph
        Symmetric positive weights, (n, n), connected.
    laplacian
        Its Laplacian, (n, n).

    References
    ----------
    Vanek, Mandel and Brezina, Algebraic multigrid by smoothed aggregation for second and fourth
    order elliptic problems, Computing 56 (1996) 179-196.
    """

    def __init__(self, graph: csr_array, laplacian: csr_array) -> None:
        random = np.random.default_rng(0)
        self.levels: list[Level] = []
        self.volumes = np.ones((graph.shape[0], 1))
        matrix = laplacian
        while graph.shape[0] > N_DENSE:
            graph, aggregate = coarsened(graph, random)
            level = smoothed_level(matrix, aggregate)
            matrix = (level.restriction @ matrix @ level.prolongation).tocsr()
            self.volumes = level.restriction @ self.volumes
            self.levels.append(level)
        self.coarse = 0.5 * (matrix + matrix.T).toarray()
        # The constants are its null space: a rank-one shift of its size makes it definite.
        shift = self.coarse.trace() / (self.volumes.sum() * len(self.volumes))
        self.coarse_inverse = inv(self.coarse + shift * self.volumes @ self.volumes.T)

    def cycle(self, residual: Array) -> Array:
        """Approximate solution for the right-hand sides `residual`, (n,) or (n, k) to (n, k)."""
        return self._cycle(0, residual.reshape(len(residual), -1))

    def _cycle(self, number: int, residual: Array) -> Array:
        if number == len(self.levels):
            return self.coarse_inverse @ residual
        level = self.levels[number]
        x = level.smoother * residual
        coarse = level.restriction @ (residual - level.matrix @ x)
        x += level.prolongation @ self._cycle(number + 1, coarse)
        return x + level.smoother * (residual - level.matrix @ x)

    def coarse_eigenpairs(self) -> tuple[Array, Array]:
        """Lowest pairs of the coarsest grid but for the constant, prolonged: (m,) and (n, m)."""
        values, vectors = eigh(
            self.coarse, np.diag(self.volumes[:, 0]), subset_by_index=[1, N_VECTORS]
        )
        for level in reversed(self.levels):
            vectors = level.prolongation @ vectors
        return values, vectors


def smoothed_level(matrix: csr_array, aggregate: NDArray[np.int64]) -> Level:
    """Prolongation from aggregates, smoothed by one step of damped Jacobi.

    The damping is 4/3 over a bound of the spectrum of ``D^-1 A``, its largest row sum.

    Parameters
    ----------
    matrix
        (n, n), positive semi-definite with the constants as null space.
    aggregate
        Aggregate of each node, (n,), numbered from 0.
    """
    inverse_diagonal = 1.0 / matrix.diagonal()
    bound = (abs(matrix).sum(axis=1) * inverse_diagonal).max()
    smoother = 4.0 / (3.0 * bound) * inverse_diagonal
    constants = indicator(aggregate)
    prolongation = (constants - diags_array(smoother) @ (matrix @ constants)).tocsr()
    return Level(matrix, smoother[:, None], prolongation, prolongation.T.tocsr())
