"""The coarse matrix ``P^T A P``, its rows summed at their owners."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from tensormesh.distributed.halo import Halo
from tensormesh.distributed.index_map import IndexMap
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.multigrid.level import Csr, Floats, Ints, Level
from tensormesh.distributed.multigrid.rows import extended, to_owners, widened, with_ghost_rows
from tensormesh.distributed.vector_map import VectorMap
from tensormesh.sparse.pattern import SparsityPattern

# Diagonal of a coarse unknown without energy: what rounding leaves of zero.
_NO_ENERGY = 1e-12


class Coarse(NamedTuple):
    """A coarse matrix, and the prolongator from its local unknowns.

    Parameters
    ----------
    layout
        Numbering and halo of the coarse unknowns.
    matrix
        ``[n_owned_coarse, n_local_coarse]``; its diagonal is one.
    prolongator
        ``[n_owned, n_local_coarse]``.
    scale
        What columns of the given prolongator were multiplied by for that, ``[n_local_coarse]``.
    """

    layout: MatrixLayout
    matrix: Csr
    prolongator: Csr
    scale: Floats


def galerkin(level: Level, P: Csr, columns: Ints, offsets: torch.Tensor) -> Coarse:
    """``P^T A P``, the columns of ``P`` scaled so that its diagonal is one. **Collective.**

    Each rank multiplies with its own rows of ``P`` on the left. What this gives for coarse rows of
    other ranks travels once, as contributions of cells do in an assembly.

    Parameters
    ----------
    level
        The matrix ``A``.
    P
        Prolongator, ``[n_owned, m]``; own coarse unknowns first.
    columns
        Global number of each of its columns, int64 ``[m]``.
    offsets
        Rank ``r`` owns the coarse unknowns ``offsets[r] .. offsets[r+1] - 1``.
    """
    device_mesh = level.layout.device_mesh
    rank = device_mesh.get_local_rank()
    first, stop = offsets[rank : rank + 2].tolist()
    n = stop - first
    local, wide = with_ghost_rows(P, columns, level.layout.halo, level.layout.h)
    product = (P.T.tocsr() @ (level.matrix @ local)).tocsr()
    elsewhere = product[n:].tocoo()
    row, col = columns[n + elsewhere.row], wide[elsewhere.col]
    row, col, values = to_owners(row, col, elsewhere.data, offsets.numpy(), device_mesh)
    wide, place = extended(wide, col)
    received = sp.csr_matrix((values, (row - first, place)), shape=(n, wide.size))
    return _numbered(level, widened(product[:n], wide.size) + received, P, wide, offsets)


def _numbered(level: Level, matrix: Csr, P: Csr, columns: Ints, offsets: torch.Tensor) -> Coarse:
    """The same in local numbering: owned unknowns, then the ghosts that are named, sorted."""
    n, device_mesh = matrix.shape[0], level.layout.device_mesh
    named = np.zeros(columns.size, dtype=bool)
    named[matrix.indices] = named[P.indices] = True
    named[:n] = True
    order = np.flatnonzero(named)
    order[n:] = order[n:][np.argsort(columns[order[n:]])]
    place = np.zeros(columns.size, dtype=np.int32)
    place[order] = np.arange(order.size)
    matrix, P = (
        sp.csr_matrix((M.data, place[M.indices], M.indptr), shape=(M.shape[0], order.size))
        for M in (matrix, P)
    )
    matrix.sort_indices()
    numbers = torch.from_numpy(columns[order]).to(device_mesh.device)
    layout = _layout(matrix, numbers, offsets, level.layout)
    return _with_unit_diagonal(layout, matrix, P)


def _with_unit_diagonal(layout: MatrixLayout, matrix: Csr, P: Csr) -> Coarse:
    diagonal = matrix.diagonal()
    held = diagonal > _NO_ENERGY
    owned = np.where(held, 1 / np.sqrt(np.where(held, diagonal, 1.0)), 1.0)
    scale = layout.with_ghosts(torch.from_numpy(owned).to(layout.pattern.device)).cpu().numpy()
    P.data *= scale[P.indices]
    matrix.data *= np.repeat(owned, np.diff(matrix.indptr)) * scale[matrix.indices]
    return Coarse(layout, matrix, P, scale)


def _layout(
    matrix: Csr, numbers: torch.Tensor, offsets: torch.Tensor, fine: MatrixLayout
) -> MatrixLayout:
    """Layout of a coarse matrix whose local columns have the given global numbers."""
    device_mesh = fine.device_mesh
    n = matrix.shape[0]
    index_map = IndexMap(
        offsets.to(device_mesh.device),
        device_mesh.get_local_rank(),
        numbers[n:],
        numbers[:n],
        numbers[n:],
    )
    halo = Halo(index_map, device_mesh)
    vectors = VectorMap(index_map, halo, device_mesh, int(offsets[-1]))
    row = torch.from_numpy(np.repeat(np.arange(n), np.diff(matrix.indptr)))
    col = torch.from_numpy(matrix.indices)
    pattern = SparsityPattern(row, col, matrix.shape).to(device_mesh.device)
    return MatrixLayout(pattern, index_map, halo, vectors, 1, fine.uuid)
