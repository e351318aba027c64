"""Masters that follow masters, across ranks."""

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_max
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.kept import Kept
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.multigrid.rows import with_ghost_rows
from tensormesh.distributed.numbering import columns_of, numbers_of
from tensormesh.operator.terms import LONGEST, a_cycle


class Chains:
    """What owned unknowns are in those that follow no other. **Making one is collective.**

    Parameters
    ----------
    layout
        Layout of all unknowns.
    free, kept
        Owned unknowns that follow no other, bool ``[n_owned]``, and their new numbers.
    slave, master, coefficient
        Terms of owned slaves: place here, number in the input, factor; ``[n_terms]``.

    Attributes
    ----------
    terms
        The given terms, compressed rows ``[n_owned, n_local]`` of scipy.
    halo
        Halo of their columns.
    rows, columns
        The same with chains followed, ``[n_owned, m]``, and the new number of each column.
    depth
        Largest number of slaves that one follows in a row.

    Raises
    ------
    ValueError
        On every rank, if unknowns follow each other in a cycle.
    """

    def __init__(
        self,
        layout: MatrixLayout,
        free: Tensor,
        kept: Kept,
        slave: Tensor,
        master: Tensor,
        coefficient: Tensor,
    ) -> None:
        self._kept, self._free, self._device_mesh = kept, free, layout.device_mesh
        h, index_map = layout.h, layout.index_map
        node = torch.div(master, h, rounding_mode="floor")
        number = numbers_of(node, index_map, layout.device_mesh) * h + master % h
        offsets = index_map.offsets * h
        columns, self.halo = columns_of(number, offsets, layout.owned_dofs, layout.device_mesh)
        index = [x.cpu().numpy() for x in (slave, columns.local_of(number))]
        shape = (columns.n_owned, columns.n_local)
        self.terms = sp.csr_matrix((coefficient.cpu().numpy(), tuple(index)), shape=shape)
        # Free unknowns are named by their new number, others by a negative one.
        own = columns.local_to_global[: columns.n_owned]
        names = self.halo.scatter_forward(torch.where(free, kept.number, -1 - own))
        self._follow(names.cpu().numpy())

    def _follow(self, names: Any) -> None:
        itself = self._free.nonzero().flatten().cpu().numpy()
        unit = sp.csr_matrix((np.ones(itself.size), (itself, itself)), shape=self.terms.shape)
        T = step = self.terms + unit
        for depth in range(LONGEST):
            T.eliminate_zeros()
            if not all_max(T[:, names < 0].nnz, self._device_mesh):
                used, place = np.unique(T.indices, return_inverse=True)
                self.rows = sp.csr_matrix((T.data, place, T.indptr), (T.shape[0], used.size))
                self.columns, self.depth = names[used], depth
                return
            behind, names = with_ghost_rows(T, names, self.halo)
            T = (step @ behind).tocsr()
        raise a_cycle()

    def local_rows(self) -> tuple[Any, Halo]:
        """The rows with owned free unknowns, then ghosts as columns, and the halo of these."""
        numbers = torch.from_numpy(self.columns).to(self._free.device)
        ids = self._kept.ids[self._free]
        columns, halo = columns_of(numbers, self._kept.offsets, ids, self._device_mesh)
        T, place = self.rows, columns.local_of(numbers).cpu().numpy()
        shape = (T.shape[0], columns.n_local)
        return sp.csr_matrix((T.data, place[T.indices], T.indptr), shape), halo
