"""What a preconditioner is, and what is made of any."""

from typing import Protocol

from torch import Tensor

from tensormesh.distributed.units import times_power


class Preconditioner(Protocol):
    """Approximate inverse of a matrix. With an attribute ``T`` it serves transposed systems too."""

    name: str

    def __matmul__(self, r: Tensor, /) -> Tensor:
        """Product with the owned slice ``[n_owned]`` or ``[n_owned, k]``. **Collective.**"""


class Adjoint:
    """Conjugate transpose of a preconditioner that has a transpose.

    Parameters
    ----------
    transpose
        Its transpose.
    """

    def __init__(self, transpose: Preconditioner) -> None:
        self._transpose, self.name = transpose, transpose.name

    def __matmul__(self, r: Tensor) -> Tensor:
        return (self._transpose @ r.conj()).conj() if r.is_complex() else self._transpose @ r


class Scaled:
    """``2**exponent M``: what inverts ``2**-exponent A`` where ``M`` inverts ``A``."""

    def __init__(self, M: Preconditioner, exponent: int) -> None:
        self._M, self._exponent, self.name = M, exponent, M.name

    @property
    def T(self) -> "Scaled":
        """The same of the transpose, where there is one."""
        return Scaled(self._M.T, self._exponent)  # type: ignore[attr-defined]

    def __matmul__(self, r: Tensor) -> Tensor:
        return times_power(self._M @ r, self._exponent)
