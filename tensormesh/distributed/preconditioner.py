"""Preconditioners of sharded systems."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.distributed.collectives import raise_together
from tensormesh.errors import SingularMatrixError

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


class Jacobi:
    """Division by the diagonal. **Making one is collective over the device mesh.**

    Parameters
    ----------
    A
        The matrix.

    Raises
    ------
    SingularMatrixError
        On every rank, if a diagonal entry is zero.
    ValueError
        On every rank, if one is negative or not finite.
    """

    def __init__(self, A: "DSparseMatrix") -> None:
        diagonal = A.diagonal().detach()
        raise_together(_check(diagonal, A.layout.owned_dofs), A.layout.device_mesh)
        self._inverse = 1 / diagonal

    def __matmul__(self, r: Tensor) -> Tensor:
        return self._inverse * r


def _check(diagonal: Tensor, dofs: Tensor) -> Exception | None:
    real = diagonal.real if diagonal.is_complex() else diagonal
    bad = (~(torch.isfinite(real) & (real > 0))).nonzero().flatten()
    if not bad.numel():
        return None
    value, dof = float(real[bad[0]]), int(dofs[bad[0]])
    where = f"{bad.numel()} diagonal entries on this rank (first: unknown {dof}, {value:g})"
    if value == 0:
        return SingularMatrixError(
            f"{where} are zero: unknowns without an equation, for instance at points that no cell "
            "uses; Condenser leaves these out"
        )
    return ValueError(f"{where} are not positive: the matrix is not positive definite")
