"""`VectorMap`: data in any of the forms that a user may have it in, as this rank's slices."""

import math
from functools import cached_property

import torch
from torch import Tensor

from tensormesh.distributed.collectives import (
    all_gather_rows,
    all_max,
    all_reduce_sum,
    raise_together,
    replicated,
)
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.forms import FormName, Item, agree_on_forms
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.index_map import IndexMap


class VectorMap:
    """Owned slices of vectors over an index map, with ``h`` unknowns an index.

    Data come as a *global* vector (replicated, in the input's numbering), for the nodes of this
    rank's *part* (in the part's order), or as the *owned* slice. They are told apart by length,
    and the ranks agree on the form, so that all of them take the same path.

    Parameters
    ----------
    index_map
        The numbering.
    halo
        Its halo.
    device_mesh
        1-D mesh of the ranks.
    n_global
        Length of a global vector, per unknown.
    part_to_local
        Local index of each node of this rank's part, int64 ``[n_part]``; None where there is no
        part, or several in one process.
    """

    def __init__(
        self,
        index_map: IndexMap,
        halo: Halo,
        device_mesh: DeviceMesh,
        n_global: int,
        part_to_local: Tensor | None = None,
    ) -> None:
        self.index_map, self.halo, self.device_mesh = index_map, halo, device_mesh
        self.n_global, self.part_to_local = n_global, part_to_local

    def item(self, x: Tensor, name: str, h: int = 1) -> Item:
        """`x` with the lengths of the forms that it may have here."""
        lengths: dict[FormName, int] = {"global": self.n_global * h}
        if self.part_to_local is not None:
            lengths["part"] = self.part_to_local.numel() * h
        lengths["owned"] = self.index_map.n_owned * h
        return Item.of(x, name, lengths, self._part_differs)

    @cached_property
    def _part_differs(self) -> bool:
        """Whether this rank owns as many nodes as its part has, but other ones."""
        if self.part_to_local is None or self.part_to_local.numel() != self.index_map.n_owned:
            return False
        return bool((self.part_to_local >= self.index_map.n_owned).any())

    def owned(self, x: Tensor, name: str, h: int = 1) -> Tensor:
        """Owned slice ``[n_owned * h, ...]`` of `x` in any form. **Collective.**

        Raises
        ------
        ValueError
            On every rank, if the length fits no form on one of them.
        """
        (form,) = agree_on_forms([self.item(x, name, h)], self.device_mesh)
        rows = x.to(self.index_map.device).reshape(-1, h, *x.shape[1:])
        if form == "global":
            rows = replicated(rows, self.device_mesh)[self.index_map.owned_ids]
        elif form == "part":
            rows = self._from_part(rows)[: self.index_map.n_owned]
        return rows.reshape(-1, *x.shape[1:])

    def local(self, x: Tensor, form: FormName) -> Tensor:
        """Owned and ghost values ``[n_local, ...]`` of `x` in an agreed form. **Collective.**"""
        x = x.to(self.index_map.device)
        if form == "global":
            return replicated(x, self.device_mesh)[self.index_map.original_ids]
        if form == "part":
            return self._from_part(x)
        return self.halo.scatter_forward(x)

    def _from_part(self, x: Tensor) -> Tensor:
        if self.part_to_local is None:
            raise ValueError("there is no part whose nodes these data could be of")
        local = x.new_zeros(self.index_map.n_local, *x.shape[1:])
        return self.halo.consistent(local.index_put((self.part_to_local,), x))

    def to_part(self, local: Tensor) -> Tensor:
        """Local values ``[n_local, ...]`` in the order of this rank's part ``[n_part, ...]``."""
        if self.part_to_local is None:
            raise ValueError("this process has several parts; ask for one of them")
        return local[self.part_to_local]

    def by_node(self, owned: Tensor) -> Tensor:
        """View ``[n_owned * h, ...]`` as ``[n_owned, h, ...]``, or as it is if ``h`` is 1.

        **Collective**: a rank that owns nothing learns ``h`` from the others.
        """
        h = self._width(owned)
        rest = owned.shape[1:]
        shape = (self.index_map.n_owned, *rest) if h == 1 else (self.index_map.n_owned, h, *rest)
        return owned.reshape(shape)

    # -- global reductions and motions -----------------------------------------------------

    def gather(self, owned: Tensor) -> Tensor:
        """Global vector in the input's numbering on every rank, from owned slices. **Collective.**

        Parameters
        ----------
        owned
            ``[n_owned * h, ...]`` for any ``h``.

        Returns
        -------
        Tensor
            ``[n_global * h, ...]``, zero where no rank owns anything.
        """
        h = self._width(owned)
        rows = owned.reshape(self.index_map.n_owned, h, *owned.shape[1:])
        everything = all_gather_rows(rows, self.device_mesh)
        ids = all_gather_rows(self.index_map.owned_ids, self.device_mesh)
        target = everything.new_zeros(self.n_global, *everything.shape[1:])
        return target.index_put((ids,), everything).flatten(0, 1)

    def _width(self, owned: Tensor) -> int:
        """Unknowns an index, agreed upon: a rank that owns nothing cannot tell by itself."""
        n = self.index_map.n_owned
        h = owned.shape[0] // n if n else 0
        fits = owned.dim() > 0 and owned.shape[0] == h * n
        error = ValueError(
            f"a vector of shape {tuple(owned.shape)} is no owned slice: this rank owns {n} indices"
        )
        raise_together(None if fits else error, self.device_mesh)
        width = all_max(h, self.device_mesh)
        raise_together(error if n and h != width else None, self.device_mesh)
        return max(width, 1)

    def scatter(self, vector: Tensor) -> Tensor:
        """Owned slice of ``[n_global * h, ...]``, which every rank has. **Collective.**"""
        h, rest = divmod(vector.shape[0], max(self.n_global, 1))
        error = ValueError(
            f"a vector of length {vector.shape[0]} is no multiple of {self.n_global} global indices"
        )
        raise_together(error if rest or (h == 0 and self.n_global) else None, self.device_mesh)
        rows = vector.to(self.index_map.device).reshape(self.n_global, h, *vector.shape[1:])
        return replicated(rows, self.device_mesh)[self.index_map.owned_ids].flatten(0, 1)

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        """``sum conj(x) y`` over all ranks. **Collective.**"""
        return all_reduce_sum((x.conj() * y).sum(), self.device_mesh)

    def norm(self, x: Tensor) -> Tensor:
        """Euclidean norm over all ranks. **Collective.**"""
        return all_reduce_sum((x.conj() * x).real.sum(), self.device_mesh).sqrt()

    def sum(self, x: Tensor) -> Tensor:
        """Sum over all ranks. **Collective.**"""
        return all_reduce_sum(x.sum(), self.device_mesh)

    def mean(self, x: Tensor) -> Tensor:
        """Mean over all entries of all ranks. **Collective.**"""
        count = all_reduce_sum(
            torch.tensor(float(math.prod(x.shape)), dtype=torch.float64, device=x.device),
            self.device_mesh,
        )
        return self.sum(x) / count.to(x.real.dtype)
