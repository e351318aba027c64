"""A system on one device."""

import torch
from torch import Tensor

from tensormesh.sparse.krylov.choice import SLACK
from tensormesh.sparse.krylov.solution import Array, sum_on_one_rank
from tensormesh.sparse.krylov.system import LinearSystem
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.product import multiply

# Most unknowns of a point whose constants are looked for.
_MOST_COMPONENTS = 3


class System(LinearSystem):
    """A matrix of numbers, whose unknowns may be those of interleaved components.

    Parameters
    ----------
    pattern, values
        The matrix, square.
    eps
        Precision of the entries.
    """

    def __init__(self, pattern: SparsityPattern, values: Tensor, eps: float) -> None:
        self.pattern, self.values, self.eps = pattern, values.detach(), eps

    def __matmul__(self, x: Tensor) -> Tensor:
        """Product with ``[n]`` or ``[n, k]``."""
        return multiply(self.pattern, self.values, x)

    def total(self, x: Tensor) -> Array:
        """The numbers themselves, on the host."""
        return sum_on_one_rank(x)

    def row_sums(self) -> Tensor:
        """Sums of absolute entries of rows, ``[n]``."""
        zeros = self.values.abs().new_zeros(self.pattern.shape[0])
        return zeros.index_add(0, self.pattern.row, self.values.abs())

    def diagonal(self) -> Tensor:
        """Diagonal entries, ``[n]``."""
        on = (self.pattern.row == self.pattern.col).nonzero().flatten()
        zeros = self.values.new_zeros(self.pattern.shape[0])
        return zeros.index_add(0, self.pattern.row[on], self.values[on])

    @property
    def numbers(self) -> Tensor:
        """``0, ..., n - 1``."""
        return torch.arange(self.pattern.shape[0], device=self.values.device)

    def constants(self) -> Tensor:
        """Constants of each component, were there one, two or three of them."""
        return torch.cat([self._ones(h) for h in self._possible_components()], dim=1)

    def component(self, column: int) -> str:
        """Which one a column of `constants` is of."""
        names = [f"component {j} of {h}" for h in self._possible_components() for j in range(h)]
        return names[column]

    def adjoint(self) -> "System":
        """The conjugate transpose."""
        return System(self.pattern.transpose, self.values.conj(), self.eps)

    def free_components(self) -> int:
        """How many interleaved components there are whose constants all go to zero."""
        slack = SLACK * self.eps * float(self.row_sums().norm())
        for h in reversed(self._possible_components()):
            if float((self @ self._ones(h)).norm()) <= slack:
                return h
        return 0

    def _possible_components(self) -> list[int]:
        return [h for h in range(1, _MOST_COMPONENTS + 1) if self.pattern.shape[0] % h == 0]

    def _ones(self, h: int) -> Tensor:
        """Constants of each of `h` components, ``[n, h]``."""
        n, like = self.pattern.shape[0], self.values
        return torch.eye(h, dtype=like.dtype, device=like.device).repeat(n // h, 1)
