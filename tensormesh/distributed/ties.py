"""Unknowns that follow others, which may be on other ranks."""

import zlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tensormesh.distributed.chains import Chains
from tensormesh.distributed.collectives import agree, all_gather_ints, all_max, raise_together
from tensormesh.distributed.kept import Kept
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.tied import TiedLayout
from tensormesh.operator.terms import checked_terms
from tensormesh.operator.triple_product import Rows

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


class ShardedTies:
    """Terms ``u_slave = sum_j c_j u_master_j + g_slave``, chains followed.

    Each rank has the rows of the unknowns that it owns, and free ones stay where they are. Nothing
    is gathered. **Making one, and each method, is collective.**

    Parameters
    ----------
    layout
        Layout of a matrix of the unknowns.
    slave, master, coefficient
        Of each term, ``[n_terms]``; `coefficient` None for one. The same terms on every rank, or
        on each those of the slaves that it owns.

    Attributes
    ----------
    free
        Owned unknowns that follow no other, bool ``[n_owned]``.
    n_reduced, n_free
        How many these are, over all ranks and on this one.
    depth
        Largest number of slaves that one follows in a row.

    Raises
    ------
    TypeError, ValueError
        On every rank, as `Ties`; also if ranks give different terms and not those of their slaves.
    """

    def __init__(self, layout: MatrixLayout, slave: Any, master: Any, coefficient: Any) -> None:
        self._layout = layout
        device = layout.pattern.device
        with agree(layout.device_mesh):
            given = checked_terms(layout.global_shape[0], slave, master, coefficient)
        slave, master, coefficient = _own(layout, *(x.to(device) for x in given))
        self.free = torch.ones(layout.n_owned, dtype=torch.bool, device=device)
        self.free[slave] = False
        self._kept = Kept(layout, self.free)
        self.n_reduced, self.n_free = self._kept.n_global, int(self.free.sum())
        chains = Chains(layout, self.free, self._kept, slave, master, coefficient)
        self.depth = chains.depth
        self._of_masters, self._masters = Rows(chains.terms, device), chains.halo
        self._chains = chains
        rows, self._columns = chains.local_rows()
        self._of_free = Rows(rows, device)
        self._known: TiedLayout | None = None

    def misfit(self, K: Any) -> TypeError | ValueError | None:
        """What is wrong with `K` as a matrix of these unknowns."""
        layout, mine = getattr(K, "layout", None), self._layout
        if not isinstance(layout, MatrixLayout):
            return TypeError(
                f"K must be sharded, as the matrix that the constraints were made with, got "
                f"{type(K).__name__}"
            )
        same = layout.global_shape == mine.global_shape and layout.h == mine.h
        if layout is mine or (same and torch.equal(layout.owned_dofs, mine.owned_dofs)):
            return None
        return ValueError(
            f"K is {layout.global_shape} with {layout.n_owned} rows on this rank; expected the "
            f"unknowns that the constraints were made for, {mine.global_shape[0]}, of which this "
            f"rank owns {mine.n_owned}"
        )

    def own(self, **given: Tensor | None) -> list[Any]:
        """Owned slices of data per unknown, by name, in any form; None stays None."""
        return self._layout.vectors.owned_of(given, self._layout.h)

    def raise_if(self, error: Exception | None) -> None:
        """Raise on all ranks what is wrong on any."""
        raise_together(error, self._layout.device_mesh)

    def of_free(self, u_r: Tensor) -> Tensor:
        """All owned unknowns from the free ones, ``T u_r``."""
        return self._of_free @ self._columns.scatter_forward(u_r)

    def to_free(self, f: Tensor) -> Tensor:
        """What the equations of the free unknowns get, ``T^T f``."""
        return self._columns.scatter_reverse(self._of_free.adjoint(f))

    def of_masters(self, x: Tensor) -> Tensor:
        """What slaves take from their masters, zero elsewhere."""
        return self._of_masters @ self._masters.scatter_forward(x)

    def reduced(self, K: "DSparseMatrix") -> "DSparseMatrix":
        """``T^T K T``; the symbolic part is made once per layout."""
        known = self._known
        stale = known is None or K.layout_signature != known.origin
        if known is None or all_max(int(stale), self._layout.device_mesh):
            known = self._known = TiedLayout(K.layout, self._chains, self._kept)
        return type(K).from_layout(known.layout, known.values(K.values))


def _own(
    layout: MatrixLayout, slave: Tensor, master: Tensor, coefficient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Terms of owned slaves, these by their place here. **Collective.**"""
    owned = layout.owned_dofs
    mine = torch.isin(slave, owned)
    content = b"".join(x.cpu().numpy().tobytes() for x in (slave, master, coefficient))
    facts = all_gather_ints([int((~mine).sum()), zlib.crc32(content)], layout.device_mesh)
    if bool(facts[:, 0].any()) and bool((facts[:, 1] != facts[0, 1]).any()):
        raise ValueError(
            "slave, master, coefficient: the ranks give different terms, and (by rank) "
            f"{facts[:, 0].tolist()} of slaves that others own; give all terms on every rank, or "
            "on each rank those of its own slaves, as periodic_pairs(dmesh, ...) does"
        )
    by_dof = torch.argsort(owned)
    place = by_dof[torch.searchsorted(owned, slave[mine], sorter=by_dof)]
    return place, master[mine], coefficient[mine]
