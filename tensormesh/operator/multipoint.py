"""Multi-point constraints: unknowns that follow others, as on periodic sides."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tensormesh.operator.shapes import beside, misfit_of_reduced
from tensormesh.operator.ties import Ties
from tensormesh.sparse.layout import _FEMSparsityMixin
from tensormesh.sparse.matrix import SparseMatrix


class MultiPoint:
    """Constraints ``u_slave = sum_j c_j u_master_j + g`` by elimination: ``u = T u_r + g``.

    The reduced system ``T^T K T u_r = T^T (f - K g)`` is symmetric if ``K`` is. Fix values besides
    with a `Condenser` of the reduced system.

    Of a sharded system all of this stays sharded: masters may be on other ranks, and each reduced
    unknown is where it was. **Making one, and each call, is collective then.**

    Parameters
    ----------
    n
        Number of unknowns, or a matrix of that many: on ranks the sharded one. It serves for all
        matrices of these unknowns.
    slave, master
        Unknowns of each term, int64 ``[n_terms]``, in the numbering of the input. A slave with
        several masters is repeated; a master may be a slave itself. On ranks: the same terms on
        all, or on each those of the slaves that it owns, as `periodic_pairs` gives them.
    coefficient
        ``[n_terms]``; None for one.

    Raises
    ------
    TypeError
        If an index is no integer, or a coefficient no real number.
    ValueError
        If lengths differ, a number is out of range, or unknowns follow each other in a cycle; of
        a sharded system on every rank, also if ranks give different terms of one slave.

    Examples
    --------
    >>> import torch, tensormesh as tm
    >>> mesh = tm.Mesh.gen_rectangle(n=(4, 4))
    >>> sides = tm.operator.periodic_pairs(mesh.points, torch.eye(2, dtype=torch.float64))
    >>> tm.operator.MultiPoint(mesh.n_points, *sides).n_reduced
    16
    """

    def __init__(
        self, n: Any, slave: Tensor, master: Tensor, coefficient: Tensor | None = None
    ) -> None:
        self._ties: Any = _maker(n)(slave, master, coefficient)

    @property
    def n_reduced(self) -> int:
        """Number of unknowns that follow no other, over all ranks."""
        n: int = self._ties.n_reduced
        return n

    def __call__(self, K: Any, f: Tensor, offset: Tensor | None = None) -> tuple[Any, Tensor]:
        """Reduce a system.

        Parameters
        ----------
        K
            Matrix ``[n, n]``. The symbolic part is done once per layout.
        f
            ``[n]`` or ``[n, k]``; of a sharded system the owned slice, or any form that data of a
            `Condenser` may have.
        offset
            ``g``, ``[n]`` or as `f`, read at slaves; None for zero.

        Returns
        -------
        K_r, f_r
            The reduced matrix, of the class of `K`, and the right-hand side; differentiable in
            `K`, `f` and `offset`.

        Raises
        ------
        TypeError
            If `K` is no matrix, or a sharded one and the constraints were not made with one.
        ValueError
            If the shape of `K`, `f` or `offset` does not fit; on every rank.
        """
        known = isinstance(K, _FEMSparsityMixin)
        no_matrix = TypeError(f"K must be a matrix of this package, got {type(K).__name__}")
        self._ties.raise_if(self._ties.misfit(K) if known else no_matrix)
        f, offset = self._ties.own(f=f, offset=offset)
        if offset is not None:
            self._ties.raise_if(_misfit(offset, f))
            f = f - beside(K @ self._full_offset(offset), f)
        return self._ties.reduced(K), self._ties.to_free(f)

    def recover(self, u_r: Tensor, offset: Tensor | None = None) -> Tensor:
        """Full solution ``T u_r + g`` ``[n, ...]`` from the reduced one; of ranks, owned slices.

        Raises
        ------
        TypeError, ValueError
            If `u_r` is no tensor, or a length does not fit.
        """
        self._ties.raise_if(misfit_of_reduced(u_r, self._ties.n_free))
        (offset,) = self._ties.own(offset=offset)
        u: Tensor = self._ties.of_free(u_r)
        if offset is None:
            return u
        self._ties.raise_if(_misfit(offset, u))
        return u + beside(self._full_offset(offset), u)

    def restrict(self, x: Tensor) -> Tensor:
        """Entries of a vector or mask ``[n, ...]`` at the unknowns that follow no other."""
        (own,) = self._ties.own(x=x)
        picked: Tensor = own[self._ties.free]
        return picked

    def _full_offset(self, offset: Tensor) -> Tensor:
        """What is added to slaves: their own, and that of those that they follow."""
        ties = self._ties
        # What is given elsewhere may be anything, even NaN.
        given = torch.where(beside(ties.free, offset), torch.zeros_like(offset), offset)
        full = given
        for _ in range(ties.depth):
            full = given + ties.of_masters(full)
        return full


def _maker(n: Any) -> Callable[..., Any]:
    """What makes ties of `n` unknowns, or of those of a matrix."""
    if not isinstance(n, SparseMatrix):
        return getattr(n, "_ties", partial(Ties, n))
    if n.shape[0] != n.shape[1]:
        raise ValueError(f"K must be square, got shape {tuple(n.shape)}")
    return partial(Ties, n.shape[0])


def _misfit(offset: Tensor, f: Tensor) -> ValueError | None:
    if offset.shape in (f.shape, f.shape[:1]):
        return None
    return ValueError(
        f"offset has shape {tuple(offset.shape)}; expected one value per unknown, "
        f"{list(f.shape[:1])}, or the shape {list(f.shape)}"
    )
