"""What a preconditioner is, and its adjoint."""

from typing import Any, Protocol

import torch
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
        self._transpose, self.name = transpose, name_of(transpose)

    def __matmul__(self, r: Tensor) -> Tensor:
        return (self._transpose @ r.conj()).conj() if r.is_complex() else self._transpose @ r


class InDtype:
    """An object of the user's, which is given vectors in the dtype that was asked for.

    Parameters
    ----------
    M
        The object.
    dtype
        Of the vectors that it is given.
    """

    def __init__(self, M: Any, dtype: torch.dtype) -> None:
        self._M, self._dtype, self.name = M, dtype, name_of(M)

    @property
    def T(self) -> "InDtype":
        """That of the transpose, where there is one."""
        return InDtype(self._M.T, self._dtype)

    def __matmul__(self, r: Tensor) -> Tensor:
        found: Tensor = self._M @ r.to(self._dtype)
        return found.to(r.dtype)
