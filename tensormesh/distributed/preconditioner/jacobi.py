"""Division by the diagonal."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.distributed.collectives import raise_together

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix


class Jacobi:
    """Division by the diagonal. **Making one is collective over the device mesh.**

    Parameters
    ----------
    A
        The matrix.
    absolute
        Whether to divide by absolute values, which is positive definite for any matrix.

    Raises
    ------
    ValueError
        On every rank, if a diagonal entry is zero or not finite.
    """

    name = "jacobi"

    def __init__(self, A: "DSparseMatrix", absolute: bool = False) -> None:
        diagonal = A.diagonal().detach()
        raise_together(_check(diagonal, A.layout.owned_dofs), A.layout.device_mesh)
        self._inverse = 1 / (diagonal.abs() if absolute else diagonal)

    @property
    def T(self) -> "Jacobi":
        """The same."""
        return self

    def __matmul__(self, r: Tensor) -> Tensor:
        """Quotient of owned slices ``[n_owned]`` or ``[n_owned, k]``."""
        return (self._inverse if r.dim() == 1 else self._inverse.unsqueeze(1)) * r


def _check(diagonal: Tensor, dofs: Tensor) -> Exception | None:
    bad = (~torch.isfinite(diagonal) | (diagonal == 0)).nonzero().flatten()
    if not bad.numel():
        return None
    return ValueError(
        f"preconditioner = 'jacobi': {bad.numel()} diagonal entries on this rank (first: unknown "
        f"{int(dofs[bad[0]])}, {diagonal[bad[0]].item():g}) cannot be divided by; use 'none', or a "
        "preconditioner of your own"
    )
