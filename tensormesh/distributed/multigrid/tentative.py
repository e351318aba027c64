"""The tentative prolongator: near-null vectors cut to aggregates, and made orthonormal there."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from tensormesh.distributed.multigrid.level import Csr, Floats, Ints

# A vector of which less is left once the others are taken out depends on them.
_DEPENDENT = 1e-8


class Tentative(NamedTuple):
    """``T`` with ``T coarse = fine`` for the near-null vectors, its columns orthonormal.

    Parameters
    ----------
    matrix
        ``[n_owned, n_coarse]``: unknowns of this rank only.
    nodes
        Aggregate of each coarse unknown, ``[n_coarse]``, numbered from 0.
    near_null_space
        The vectors on the coarse level, ``[n_coarse, k]``.
    """

    matrix: Csr
    nodes: Ints
    near_null_space: Floats


def tentative_prolongator(aggregate: Ints, n_aggregates: int, vectors: Floats) -> Tentative:
    """Tentative prolongator of the unknowns of this rank. Nothing is sent.

    Vectors that depend on others within an aggregate, as the rotations do on a single node, have no
    coarse unknown there.

    Parameters
    ----------
    aggregate
        Aggregate of each unknown, ``[n_owned]``; -1 for none, which gives a zero row.
    n_aggregates
        Their number.
    vectors
        Near-null vectors, ``[n_owned, k]``.

    References
    ----------
    P. Vanek, J. Mandel, M. Brezina, Algebraic multigrid by smoothed aggregation for second and
    fourth order elliptic problems, Computing 56 (1996), Algorithm 4.1.
    """
    inside = np.flatnonzero(aggregate >= 0)
    of_inside = aggregate[inside]
    Q, R = _orthonormalize(vectors[inside], of_inside, n_aggregates)
    kept = np.diagonal(R, axis1=1, axis2=2) > 0
    number = (np.cumsum(kept) - 1).reshape(kept.shape)
    used = kept[of_inside] & (Q != 0)
    row, column = np.broadcast_to(inside[:, None], Q.shape), number[of_inside]
    shape = (aggregate.size, int(kept.sum()))
    T = sp.csr_matrix((Q[used], (row[used], column[used])), shape=shape)
    nodes = np.unique(np.nonzero(kept)[0], return_inverse=True)[1]
    return Tentative(T, nodes, R[kept])


def _orthonormalize(vectors: Floats, aggregate: Ints, n_aggregates: int) -> tuple[Floats, Floats]:
    """``Q`` ``[n, k]`` and ``R`` ``[n_aggregates, k, k]`` by Gram and Schmidt, all at once.

    A dependent vector gets a zero column and a zero on the diagonal.
    """
    k = vectors.shape[1]
    Q, R = vectors.copy(), np.zeros((n_aggregates, k, k))

    def dots(x: Floats, y: Floats) -> Floats:
        return np.bincount(aggregate, weights=x * y, minlength=n_aggregates)

    for c in range(k):
        before = np.sqrt(dots(Q[:, c], Q[:, c]))
        for _ in range(2):  # twice is enough (Giraud, Langou, Rozloznik 2005)
            for p in range(c):
                projection = dots(Q[:, p], Q[:, c])
                R[:, p, c] += projection
                Q[:, c] -= projection[aggregate] * Q[:, p]
        norm = np.sqrt(dots(Q[:, c], Q[:, c]))
        independent = norm > _DEPENDENT * before
        R[:, c, c] = np.where(independent, norm, 0.0)
        Q[:, c] *= np.where(independent, 1 / np.where(independent, norm, 1.0), 0.0)[aggregate]
    return Q, R
