"""What is known of a system before it is solved: its kind, and whether it can be solved at all."""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from tensormesh.errors import SingularMatrixError
from tensormesh.sparse.krylov.choice import SLACK, Kind, is_hermitian
from tensormesh.sparse.krylov.solution import Array, Operator


class LinearSystem(ABC):
    """A square matrix as an operator on owned slices. Collective, if the matrix is sharded.

    Attributes
    ----------
    eps
        Precision of the entries, which may be less than that of the dtype they are in now.
    """

    eps: float

    @abstractmethod
    def __matmul__(self, x: Tensor) -> Tensor:
        """Product with ``[n_owned]`` or ``[n_owned, k]``."""

    @abstractmethod
    def total(self, x: Tensor) -> Array:
        """Sum of a small tensor over the ranks, on the host in double precision."""

    @abstractmethod
    def row_sums(self) -> Tensor:
        """Sums of absolute entries of rows, ``[n_owned]``."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Diagonal entries, ``[n_owned]``."""

    @property
    @abstractmethod
    def numbers(self) -> Tensor:
        """Global numbers of the unknowns, ``[n_owned]``."""

    @abstractmethod
    def constants(self) -> Tensor:
        """Vectors ``[n_owned, m]`` that are one in a component and zero in the others."""

    @abstractmethod
    def component(self, column: int) -> str:
        """Which component that is in a column of `constants`, in words."""

    @abstractmethod
    def adjoint(self) -> Operator:
        """The conjugate transpose."""

    def agree_on(self, error: Exception | None) -> None:
        """Raise on every rank if one has an error."""
        if error is not None:
            raise error

    def kind(self) -> Kind:
        """Find out what kind of matrix this is.

        Raises
        ------
        SingularMatrixError
            On every rank, if a row is zero.
        """
        self.agree_on(self._zero_row())
        diagonal = self.diagonal()
        real = diagonal.real if diagonal.is_complex() else diagonal
        counts = torch.stack([(real <= 0).sum(), (diagonal == 0).sum()])
        not_positive, zero = self.total(counts)
        kind = "with zeros" if zero else "any" if not_positive else "positive"
        return Kind(is_hermitian(self, self.numbers, diagonal.dtype, self.eps, self.total), kind)

    def maps_constants_to_zero(self) -> bool:
        """Whether it maps those of a component to zero, as of a body that nothing holds."""
        images = (self @ self.constants()).abs().square().sum(0)
        size = self.row_sums().square().sum().reshape(1)
        limit, *found = self.total(torch.cat([size, images]))
        return bool((np.array(found) <= (SLACK * self.eps) ** 2 * limit).any())

    def _zero_row(self) -> Exception | None:
        bad = (self.row_sums() == 0).nonzero().flatten()
        if not bad.numel():
            return None
        return SingularMatrixError(
            f"{bad.numel()} rows (first: unknown {int(self.numbers[bad[0]])}) are zero: unknowns "
            "without an equation, for instance at points that no cell uses; Condenser leaves "
            "these out"
        )

    def check_constants(self, b: Tensor, hermitian: bool) -> None:
        """Refuse a system whose rows sum to zero, in some component, while `b` does not.

        The usual cause is a missing Dirichlet condition. Of an elastic body, the sums are over
        translations.

        Raises
        ------
        SingularMatrixError
            On every rank.
        """
        columns = b if b.dim() == 2 else b.unsqueeze(1)
        constants = self.constants().to(b.dtype)
        images = (self if hermitian else self.adjoint()) @ constants
        facts = (
            self.row_sums().square().sum().reshape(1),
            images.abs().square().sum(0),
            constants.abs().square().sum(0),
            columns.abs().square().sum(0),
            (constants.mH @ columns).flatten(),
        )
        lengths = np.cumsum([len(fact) for fact in facts])[:-1]
        sums = np.abs(self.total(torch.cat([fact.to(b.dtype) for fact in facts])))
        size, found, counts, norms2, loads = np.split(sums, lengths)
        slack = SLACK * self.eps
        free = found <= slack**2 * size
        loaded = loads.reshape(len(free), -1) > slack * np.sqrt(counts[:, None] * norms2)
        bad = (free[:, None] & loaded).any(1).nonzero()[0]
        if len(bad):
            raise SingularMatrixError(
                f"the matrix maps constants (in {self.component(int(bad[0]))}) to zero and the "
                "right-hand side loads them: no solution exists; constrain unknowns with "
                "Condenser, or give a right-hand side whose sum is zero"
            )
