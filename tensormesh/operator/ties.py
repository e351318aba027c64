"""Unknowns that follow others, in one process: which combinations of free ones all of them are."""

from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from tensormesh.operator.terms import LONGEST, a_cycle, checked_terms
from tensormesh.operator.triple_product import Rows, Shares, triple_product
from tensormesh.sparse.matrix import SparseMatrix
from tensormesh.sparse.pattern import SparsityPattern, merge_duplicates


class Ties:
    """Terms ``u_slave = sum_j c_j u_master_j + g_slave`` of one process, chains followed.

    Parameters
    ----------
    n
        Number of unknowns.
    slave, master, coefficient
        Of each term, ``[n_terms]``; `coefficient` None for one.

    Attributes
    ----------
    free
        Unknowns that follow no other, bool ``[n]``.
    n_reduced, n_free
        How many these are, over all ranks and on this one.
    depth
        Largest number of slaves that one follows in a row.

    Raises
    ------
    TypeError, ValueError
        If the terms are no such tensors, name what is not there, or form a cycle.
    """

    def __init__(self, n: Any, slave: Any, master: Any, coefficient: Any) -> None:
        slave, master, coefficient = checked_terms(n, slave, master, coefficient)
        self.free = torch.ones(n, dtype=torch.bool, device=slave.device)
        self.free[slave] = False
        self.n_reduced = self.n_free = int(self.free.sum())
        terms = _terms(n, slave, master, coefficient)
        rows, self.depth = _resolved(terms, self.free.cpu().numpy())
        self._rows = rows
        self._of_free, self._of_masters = Rows(rows, slave.device), Rows(terms, slave.device)
        self._reduction: tuple[Any, Shares, SparsityPattern, Tensor] | None = None

    def misfit(self, K: Any) -> TypeError | ValueError | None:
        """What is wrong with `K` as a matrix of these unknowns."""
        n = self.free.numel()
        if not isinstance(K, SparseMatrix):
            return TypeError(
                f"K is sharded, but the constraints were made for {n} unknowns of one process: "
                "make them with a sharded matrix, MultiPoint(K, slave, master)"
            )
        if tuple(K.shape) == (n, n):
            return None
        return ValueError(f"K is {tuple(K.shape)}; expected {n} unknowns")

    def own(self, **given: Tensor | None) -> list[Any]:
        """Data per unknown by name; None stays None."""
        n = self.free.numel()
        for name, x in given.items():
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
            if x is not None and x.shape[:1] != (n,):
                raise ValueError(f"{name} has shape {tuple(x.shape)}; expected {n} unknowns")
        return list(given.values())

    def raise_if(self, error: Exception | None) -> None:
        """Raise `error` if there is one."""
        if error is not None:
            raise error

    def of_free(self, u_r: Tensor) -> Tensor:
        """All unknowns from the free ones, ``T u_r``."""
        return self._of_free @ u_r

    def to_free(self, f: Tensor) -> Tensor:
        """What the equations of the free unknowns get, ``T^T f``."""
        return self._of_free.adjoint(f)

    def of_masters(self, x: Tensor) -> Tensor:
        """What slaves take from their masters, zero elsewhere."""
        return self._of_masters @ x

    def reduced(self, K: SparseMatrix) -> SparseMatrix:
        """``T^T K T``; the symbolic part is made once per layout."""
        known = self._reduction
        if known is None or not K.has_same_layout(known[0]):
            shares, row, col = triple_product(K.row, K.col, self._rows)
            pattern, slot = merge_duplicates(row, col, (self.n_reduced, self.n_reduced))
            known = self._reduction = K.layout_signature, shares, pattern, slot
        _, shares, pattern, slot = known
        return K.from_pattern(pattern, shares.sums(K.values, slot, pattern.nnz))


def _terms(n: int, slave: Tensor, master: Tensor, coefficient: Tensor) -> Any:
    index = (slave.cpu().numpy(), master.cpu().numpy())
    return sp.csr_matrix((coefficient.cpu().numpy(), index), shape=(n, n))


def _resolved(terms: Any, free: Any) -> tuple[Any, int]:
    """What all unknowns are in the free ones, and the longest row of slaves."""
    step = terms + sp.diags_array(free.astype(float), format="csr")
    T = step
    for depth in range(LONGEST):
        T.eliminate_zeros()
        if not T[:, ~free].nnz:
            return T[:, free].tocsr(), depth
        T = (step @ T).tocsr()
    raise a_cycle()
