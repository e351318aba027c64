"""What a preconditioner is, and its adjoint."""

from typing import Protocol

from torch import Tensor


class Preconditioner(Protocol):
    """Approximate inverse of a matrix. With an attribute ``T`` it serves transposed systems too."""

    name: str

    def __matmul__(self, r: Tensor, /) -> Tensor:
        """Product with ``[n]`` or ``[n, k]``; owned slices of a sharded matrix, **collective**."""


def name_of(M: object) -> str:
    """Its attribute ``name``, or that of its class: an object of the user may have none."""
    return str(getattr(M, "name", type(M).__name__))


class Adjoint:
    """Conjugate transpose of a preconditioner that has a transpose.

    Parameters
    ----------
    transpose
        Its transpose.
    """

    def __init__(self, transpose: Preconditioner) -> None:
        self._transpose = transpose
        self.name = name_of(transpose)

    def __matmul__(self, r: Tensor) -> Tensor:
        return (self._transpose @ r.conj()).conj() if r.is_complex() else self._transpose @ r
