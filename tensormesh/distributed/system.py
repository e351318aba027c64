"""What is known of a system before it is solved: its kind, and whether it can be solved at all."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_reduce_sum, raise_together
from tensormesh.distributed.product import ShardedProduct, TransposedProduct
from tensormesh.errors import SingularMatrixError
from tensormesh.sparse.krylov.choice import SLACK, Kind, is_hermitian
from tensormesh.sparse.krylov.solution import Array, Operator

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


class System:
    """A row-sharded matrix or its transpose, as an operator. **Collective over the device mesh.**

    Parameters
    ----------
    matrix
        The matrix ``A``.
    transposed
        Whether the operator is ``A.T``.
    """

    def __init__(self, matrix: "DSparseMatrix", transposed: bool) -> None:
        self.matrix, self.transposed = matrix, transposed
        make = TransposedProduct if transposed else ShardedProduct
        self._product: Operator = make(matrix.layout, matrix.values)

    def __matmul__(self, x: Tensor) -> Tensor:
        return self._product @ x

    def total(self, x: Tensor) -> Array:
        """Sum of a small tensor over the ranks, on the host in double precision."""
        wide = torch.complex128 if x.is_complex() else torch.float64
        summed: Tensor = all_reduce_sum(x.to(wide), self.matrix.layout.device_mesh)
        array: Array = summed.cpu().resolve_conj().numpy()
        return array

    def kind(self) -> Kind:
        """Find out what kind of matrix this is.

        Raises
        ------
        SingularMatrixError
            On every rank, if a row is zero.
        """
        layout, diagonal = self.matrix.layout, self.matrix.diagonal().detach()
        raise_together(self._zero_row(), layout.device_mesh)
        real = diagonal.real if diagonal.is_complex() else diagonal
        counts = torch.stack([(real <= 0).sum(), (diagonal == 0).sum()])
        not_positive, zero = all_reduce_sum(counts, layout.device_mesh).tolist()
        kinds = "with zeros" if zero else "any" if not_positive else "positive"
        same = is_hermitian(self, layout.owned_dofs, diagonal.dtype, self.total)
        return Kind(same, kinds)

    def _zero_row(self) -> Exception | None:
        layout = self.matrix.layout
        bad = (self.row_sums() == 0).nonzero().flatten()
        if not bad.numel():
            return None
        return SingularMatrixError(
            f"{bad.numel()} rows on this rank (first: unknown {int(layout.owned_dofs[bad[0]])}) "
            "are zero: unknowns without an equation, for instance at points that no cell uses; "
            "Condenser leaves these out"
        )

    def row_sums(self) -> Tensor:
        """Sums of absolute entries, of the rows of the matrix itself."""
        return self._row_sums

    @cached_property
    def _row_sums(self) -> Tensor:
        values = self.matrix.values.detach()
        sums = values[:0].abs().new_zeros(self.matrix.layout.n_owned)
        for some, rows in self.matrix.layout.pattern.by_rows():
            sums.index_add_(0, rows, values[some].abs())
        return sums

    def check_constants(self, b: Tensor, hermitian: bool) -> None:
        """Refuse a system whose rows sum to zero, in some component, while `b` does not.

        The usual cause is a missing Dirichlet condition. Of an elastic body, the sums are over
        translations.

        Raises
        ------
        SingularMatrixError
            On every rank.
        """
        h, n = self.matrix.layout.h, b.shape[0]
        columns = b if b.dim() == 2 else b.unsqueeze(1)
        constants = torch.eye(h, dtype=b.dtype, device=b.device).repeat(n // h, 1)
        images = (self if hermitian else self._adjoint()) @ constants
        facts = (
            images.abs().square().sum(0),
            self.row_sums().square().sum().reshape(1),
            columns.abs().square().sum(0),
            (constants.mH @ columns).flatten(),
        )
        lengths = np.cumsum([len(fact) for fact in facts])[:-1]
        sums = np.abs(self.total(torch.cat([fact.to(b.dtype) for fact in facts])))
        found, size, norms2, loads = np.split(sums, lengths)
        slack = SLACK * torch.finfo(b.dtype).eps
        free = found <= slack**2 * size
        loaded = loads.reshape(h, -1) > slack * np.sqrt(self.matrix.shape[0] / h * norms2)
        bad = (free[:, None] & loaded).any(1).nonzero()[0]
        if len(bad):
            raise SingularMatrixError(
                f"the matrix maps constants (in component {bad[0]} of {h}) to zero and the "
                "right-hand side loads them: no solution exists; constrain unknowns with "
                "Condenser, or give a right-hand side whose sum is zero"
            )

    def _adjoint(self) -> Operator:
        conjugate = self.matrix._with_values(self.matrix.values.detach().conj())
        return conjugate if self.transposed else conjugate.T
