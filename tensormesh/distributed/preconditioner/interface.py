"""What scaling a matrix makes of its preconditioner."""

from torch import Tensor

from tensormesh.sparse.krylov.preconditioner import Preconditioner, name_of
from tensormesh.sparse.units import times_power


class Scaled:
    """``2**exponent M``: what inverts ``2**-exponent A`` where ``M`` inverts ``A``."""

    def __init__(self, M: Preconditioner, exponent: int) -> None:
        self._M, self._exponent, self.name = M, exponent, name_of(M)

    @property
    def T(self) -> "Scaled":
        """The same of the transpose, where there is one."""
        return Scaled(self._M.T, self._exponent)  # type: ignore[attr-defined]

    def __matmul__(self, r: Tensor) -> Tensor:
        return times_power(self._M @ r, self._exponent)
