"""Multi-point constraints in one process: unknowns that follow others, as on periodic sides."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from tensormesh.sparse.matrix import SparseMatrix

# Masters may follow masters; a longer chain than this is taken for a cycle.
_LONGEST = 64


def periodic_pairs(
    points: Tensor, translations: Tensor, tolerance: float = 1e-8
) -> tuple[Tensor, Tensor]:
    """Nodes that are images of others under translations.

    Parameters
    ----------
    points
        ``[n, dim]``.
    translations
        ``[m, dim]``: what leads from a side to the opposite one. A node that is an image under
        several, as at a corner, follows the first; its master may follow the next.
    tolerance
        Largest distance of a node from the place of an image.

    Returns
    -------
    slave, master
        Node numbers, int64 ``[n_pairs]``; each slave once.

    Raises
    ------
    ValueError
        If shapes do not fit, or a translation leads from no node to another.
    """
    if points.dim() != 2 or translations.dim() != 2 or translations.shape[1] != points.shape[1]:
        raise ValueError(
            f"points and translations must be [n, dim] and [m, dim], got {tuple(points.shape)} and "
            f"{tuple(translations.shape)}"
        )
    places = points.detach().cpu().numpy()
    tree = cKDTree(places)
    master_of = np.full(len(places), -1)
    for shift in translations.detach().cpu().numpy():
        distance, image = tree.query(places + shift, distance_upper_bound=tolerance)
        master = np.flatnonzero(np.isfinite(distance) & (image != np.arange(len(places))))
        if not master.size:
            raise ValueError(
                f"translations: {shift.tolist()} leads from no node to another within tolerance = "
                f"{tolerance:g}; the meshes of opposite sides have to match"
            )
        new = master_of[image[master]] < 0
        master_of[image[master][new]] = master[new]
    slave = torch.from_numpy(np.flatnonzero(master_of >= 0)).to(points.device)
    return slave, torch.from_numpy(master_of).to(points.device)[slave]


class MultiPoint:
    """Constraints ``u_slave = sum_j c_j u_master_j + g`` by elimination: ``u = T u_r + g``.

    The reduced system ``T^T K T u_r = T^T (f - K g)`` is symmetric if ``K`` is. Fix values besides
    with a `Condenser` of the reduced system.

    Parameters
    ----------
    n
        Number of unknowns.
    slave, master
        Unknowns of each term, int64 ``[n_terms]``. A slave with several masters is repeated; a
        master may be a slave itself.
    coefficient
        ``[n_terms]``; None for one.

    Raises
    ------
    ValueError
        If lengths differ, a number is out of range, or unknowns follow each other in a cycle.

    Examples
    --------
    >>> import torch, tensormesh as tm
    >>> mesh = tm.Mesh.gen_rectangle(n=(4, 4))
    >>> sides = tm.operator.periodic_pairs(mesh.points, torch.eye(2, dtype=torch.float64))
    >>> tm.operator.MultiPoint(mesh.n_points, *sides).n_reduced
    16
    """

    def __init__(
        self, n: int, slave: Tensor, master: Tensor, coefficient: Tensor | None = None
    ) -> None:
        if coefficient is None:
            coefficient = torch.ones(slave.shape, dtype=torch.float64, device=slave.device)
        if not slave.shape == master.shape == coefficient.shape or slave.dim() != 1:
            shapes = [tuple(x.shape) for x in (slave, master, coefficient)]
            raise ValueError(f"slave, master, coefficient must be [n_terms] each, got {shapes}")
        for name, index in {"slave": slave, "master": master}.items():
            if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n:
                raise ValueError(f"{name} holds a number outside 0 .. {n - 1}")
        self._free = torch.ones(n, dtype=torch.bool, device=slave.device)
        self._free[slave] = False
        terms = (coefficient.cpu().numpy(), (slave.cpu().numpy(), master.cpu().numpy()))
        free = self._free.cpu().numpy()
        T, H = _resolved(sp.csr_matrix(terms, shape=(n, n)), free)
        self._of_offset = _matrix(H, slave.device)
        self._T = _matrix(T[:, free].tocsr(), slave.device)

    @property
    def n_reduced(self) -> int:
        """Number of unknowns that follow no other."""
        return int(self._free.sum())

    def __call__(
        self, K: Any, f: Tensor, offset: Tensor | None = None
    ) -> tuple[SparseMatrix, Tensor]:
        """Reduce a system.

        Parameters
        ----------
        K
            `SparseMatrix` ``[n, n]``.
        f
            ``[n]`` or ``[n, k]``.
        offset
            ``g``, ``[n]`` or as `f`, read at slaves; None for zero.

        Returns
        -------
        K_r, f_r
            Differentiable in `K`, `f` and `offset`.

        Raises
        ------
        TypeError
            If `K` is no `SparseMatrix`: a sharded one has to be gathered with ``to_single()``.
        ValueError
            If the shape of `K` or `f` does not fit.
        """
        n = self._free.numel()
        if not isinstance(K, SparseMatrix):
            kind = type(K).__name__
            raise TypeError(f"K must be a SparseMatrix, got {kind}; gather it with to_single()")
        if tuple(K.shape) != (n, n) or f.shape[:1] != (n,):
            raise ValueError(f"K is {tuple(K.shape)}, f {tuple(f.shape)}; expected {n} unknowns")
        T = self._T.to(dtype=K.values.dtype)
        if offset is not None:
            f = f - K @ self._full_offset(offset)
        return _galerkin(K, T), T.T @ f

    def recover(self, u_r: Tensor, offset: Tensor | None = None) -> Tensor:
        """Full solution ``T u_r + g`` ``[n, ...]`` from the reduced one."""
        u: Tensor = self._T.to(dtype=u_r.dtype) @ u_r
        return u if offset is None else u + self._full_offset(offset)

    def restrict(self, x: Tensor) -> Tensor:
        """Entries of a vector or mask ``[n, ...]`` at the unknowns that follow no other."""
        return x[self._free]

    def _full_offset(self, offset: Tensor) -> Tensor:
        given = offset * (~self._free).reshape(-1, *(1,) * (offset.dim() - 1))
        full: Tensor = self._of_offset.to(dtype=offset.dtype) @ given
        return full


def _resolved(terms: Any, free: Any) -> tuple[Any, Any]:
    """What all unknowns are in the free ones, and in the offsets: chains of masters followed."""
    step = terms + sp.diags_array(free.astype(float), format="csr")
    T, H = step, sp.identity(len(free), format="csr")
    for _ in range(_LONGEST):
        behind = T[:, ~free]
        behind.eliminate_zeros()
        if not behind.nnz:
            return T, H
        H = H + T
        T = (step @ T).tocsr()
    raise ValueError("slave, master: unknowns follow each other in a cycle")


def _matrix(A: Any, device: torch.device) -> SparseMatrix:
    A = A.tocoo()
    row, col = (torch.from_numpy(i.astype(np.int64)).to(device) for i in (A.row, A.col))
    return SparseMatrix(torch.from_numpy(A.data).to(device), row, col, A.shape)


def _galerkin(K: SparseMatrix, T: SparseMatrix) -> SparseMatrix:
    """``T^T K T``: each entry of ``K`` goes to all pairs of masters of its row and column."""
    T = T.coalesce()
    counts = torch.bincount(T.row, minlength=T.shape[0])
    first = counts.cumsum(0) - counts
    of_row, of_col = counts[K.row], counts[K.col]
    entry = torch.repeat_interleave(of_row * of_col)
    start = (of_row * of_col).cumsum(0) - of_row * of_col
    place = torch.arange(entry.numel(), device=entry.device) - start[entry]
    left = first[K.row][entry] + place // of_col[entry]
    right = first[K.col][entry] + place % of_col[entry]
    values = T.values[left] * K.values[entry] * T.values[right]
    n = T.shape[1]
    return SparseMatrix(values, T.col[left], T.col[right], (n, n)).coalesce()
