"""Preconditioners of sharded systems."""

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from tensormesh.distributed.collectives import raise_together
from tensormesh.distributed.units import times_power

if TYPE_CHECKING:
    from tensormesh.distributed.matrix import DSparseMatrix

PRECONDITIONERS = ("auto", "jacobi", "none")


class Preconditioner(Protocol):
    """Approximate inverse of a matrix. With an attribute ``T`` it serves transposed systems too."""

    name: str

    def __matmul__(self, r: Tensor, /) -> Tensor:
        """Product with the owned slice ``[n_owned]`` or ``[n_owned, k]``. **Collective.**"""


def preconditioner_named(name: str, A: "DSparseMatrix", definite: bool) -> Preconditioner | None:
    """Preconditioner of `A`, or None. **Collective over the device mesh.**

    Parameters
    ----------
    name
        One of `PRECONDITIONERS`; ``"auto"`` is chosen here.
    A
        The matrix.
    definite
        Whether it has to be Hermitian positive definite, even if `A` is not.
    """
    return None if name == "none" else Jacobi(A, absolute=definite)


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
        return (self._inverse if r.dim() == 1 else self._inverse.unsqueeze(1)) * r


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


def _check(diagonal: Tensor, dofs: Tensor) -> Exception | None:
    bad = (~torch.isfinite(diagonal) | (diagonal == 0)).nonzero().flatten()
    if not bad.numel():
        return None
    return ValueError(
        f"preconditioner = 'jacobi': {bad.numel()} diagonal entries on this rank (first: unknown "
        f"{int(dofs[bad[0]])}, {diagonal[bad[0]].item():g}) cannot be divided by; use 'none', or a "
        "preconditioner of your own"
    )
