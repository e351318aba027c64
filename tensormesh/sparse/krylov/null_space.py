"""Systems that are singular with a known null space."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tensormesh.sparse.krylov.preconditioner import Preconditioner, name_of
from tensormesh.sparse.krylov.solution import Array, Operator, numbers_beside

# Roundings of the rows' absolute sums that the image of the null space may have.
_SLACK = 1e4


class Summed(Operator, Protocol):
    """An operator that knows the size of its rows, and sums over all of them."""

    eps: float

    def total(self, x: Tensor, /) -> Array:
        """Sum of a small tensor over the ranks, on the host."""

    def row_sums(self) -> Tensor:
        """Sums of absolute entries of rows."""


class NullSpace:
    """Orthonormal basis of the null space of a Hermitian matrix. Collective if `system` is.

    Parameters
    ----------
    system
        The matrix.
    vectors
        Independent vectors that span it, owned slices ``[n_owned, m]``, of any length and angle.

    Raises
    ------
    ValueError
        On every rank, if the vectors depend on each other, or the matrix does not map one to zero.
    """

    def __init__(self, system: Summed, vectors: Tensor) -> None:
        self._total = system.total
        gram = torch.from_numpy(self._total(vectors.mH @ vectors))
        lengths = gram.diagonal().real.sqrt()
        factor, failed = torch.linalg.cholesky_ex(gram / torch.outer(lengths, lengths))
        if int(failed) or float(factor.diagonal().real.min()) < 1e-6:
            raise ValueError("null_space: its columns depend on each other, or one is zero")
        unit = vectors / lengths.to(vectors.device, vectors.real.dtype)
        inverse = torch.linalg.inv(factor.mH).to(unit)
        self._basis = unit @ inverse
        self._check(system)

    def _check(self, system: Summed) -> None:
        images = torch.linalg.vecdot(*[system @ self._basis] * 2, dim=0).real
        size = system.row_sums().square().sum().reshape(1).to(images.dtype)
        *found, limit = np.sqrt(self._total(torch.cat([images, size])))
        bad = [j for j, norm in enumerate(found) if not norm <= _SLACK * system.eps * limit]
        if bad:
            raise ValueError(
                f"null_space: the matrix does not map its column {bad[0]} to zero, but to a vector "
                f"of norm {found[bad[0]]:.3e} (rows have the size {limit:.3e})"
            )

    def removed_from(self, x: Tensor) -> Tensor:
        """`x` without its part in the null space. **Collective**, one message."""
        parts = numbers_beside(x, self._total(self._basis.mH @ x))
        return x - self._basis @ parts


class Projected:
    """A preconditioner whose results have no part in a null space.

    Parameters
    ----------
    M
        The preconditioner.
    null_space
        The null space.
    """

    def __init__(self, M: Preconditioner, null_space: NullSpace) -> None:
        self._M, self._null_space, self.name = M, null_space, name_of(M)

    def __matmul__(self, r: Tensor) -> Tensor:
        return self._null_space.removed_from(self._M @ r)


def vectors_of(null_space: "Tensor | str", b: Tensor, h: int) -> Tensor:
    """Columns ``[n_owned, m]`` in the dtype of `b`; ``"constants"`` are those of each component."""
    if isinstance(null_space, str):
        return torch.eye(h, dtype=b.dtype, device=b.device).repeat(b.shape[0] // h, 1)
    return null_space.detach().to(b.device, b.dtype)
