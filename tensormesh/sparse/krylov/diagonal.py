"""Division by the diagonal."""

from typing import Self

import torch
from torch import Tensor


class Diagonal:
    """Division by diagonal entries, or by their absolute values.

    Parameters
    ----------
    diagonal
        Entries ``[n_owned]``, none of them zero; see `refused`.
    absolute
        Whether to divide by absolute values, which is positive definite for any matrix.
    """

    name = "jacobi"

    def __init__(self, diagonal: Tensor, absolute: bool) -> None:
        self._inverse = 1 / (diagonal.abs() if absolute else diagonal)

    @property
    def T(self) -> Self:
        """The same."""
        return self

    def __matmul__(self, r: Tensor) -> Tensor:
        """Quotient of owned slices ``[n_owned]`` or ``[n_owned, k]``."""
        return (self._inverse if r.dim() == 1 else self._inverse.unsqueeze(1)) * r


def refused(diagonal: Tensor, numbers: Tensor) -> ValueError | None:
    """What is wrong with a diagonal of unknowns of these global numbers, if anything is."""
    bad = (~(torch.isfinite(diagonal) & (diagonal != 0))).nonzero().flatten()
    if not bad.numel():
        return None
    entry = diagonal[bad[0]].item()
    return ValueError(
        f"preconditioner = 'jacobi': row {int(numbers[bad[0]])} has {entry or 'a zero'} on the "
        "diagonal; use preconditioner='none', or one of your own"
    )
