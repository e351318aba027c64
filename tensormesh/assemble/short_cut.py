"""The short cut of coefficients ``s(x) P``: one scalar a point times geometry that may be kept."""

from collections.abc import Mapping

from torch import Tensor

from tensormesh.assemble import contract, symmetric
from tensormesh.assemble.form import Form
from tensormesh.assemble.geometry import CellGeometry, Tabulation
from tensormesh.assemble.separable import Separable, factor


def pulled_back(form: Form, separable: Separable, geometry: CellGeometry) -> Tensor:
    """``P`` with respect to reference inputs, times the measure.

    Of pairs of inputs where ``P`` is symmetric, ``[Q or 1, S, k, E]``; else
    ``[Q or 1, T, A, k, E]``.
    """
    if symmetric.is_symmetric(form, separable.tensor):
        return symmetric.pull_back(form, separable.tensor, geometry)
    return contract.pull_back(form, separable.constant, geometry)


class ShortCut:
    """Element matrices of coefficients ``s(x) P``, block by block.

    Parameters
    ----------
    form
        The form.
    separable
        ``P``.
    kept
        What `pulled_back` gives for all cells, if it is there already.
    points
        Coordinates ``[n, D]``.
    table
        Basis at the quadrature points.
    """

    def __init__(
        self,
        form: Form,
        separable: Separable,
        kept: Tensor | None,
        points: Tensor,
        table: Tabulation,
    ) -> None:
        self._form, self._separable, self._kept, self._points = form, separable, kept, points
        self._table = table
        self._products: symmetric.SymmetricTable | None = None
        if symmetric.is_symmetric(form, separable.tensor):
            self._products = symmetric.SymmetricTable(form, table)
        self._everywhere: Tensor | None = None

    @property
    def width(self) -> int:
        """How many numbers a cell takes in a block, the larger of matrix and coefficients."""
        n_points, n_basis = self._table.values.shape
        n_test, n_trial, n_components = self._separable.tensor.shape
        of_coefficients = n_points * n_test * (n_trial if self._products else n_basis)
        return n_components * max(n_basis**2, of_coefficients)

    def matrices(
        self,
        arguments: Mapping[str, Tensor],
        grid: tuple[int, int],
        block: slice,
        geometry: CellGeometry,
    ) -> Tensor | None:
        """``[B * B, k, E]``; None where the coefficients have another structure after all."""
        s = self._factor(arguments, grid)
        if s is None:
            return None
        coefficients = self._coefficients(s.view(grid), block, geometry)
        if self._products is not None:
            return self._products.matrices(coefficients)
        return contract.reference_matrices(self._form, coefficients, self._table)

    def _coefficients(self, s: Tensor, block: slice, geometry: CellGeometry) -> Tensor:
        """``s P`` on the reference cells; `s` is ``[Q or 1, E or 1]``."""
        if self._kept is None and len(s) <= len(geometry.measure):
            # One multiplication of the measure instead of one of each coefficient.
            scaled = CellGeometry(geometry.measure * s, geometry.inverse)
            return pulled_back(self._form, self._separable, scaled)
        if self._kept is None:
            of_block = pulled_back(self._form, self._separable, geometry)
        else:
            of_block = self._kept[..., block]
        return of_block * s.view(len(s), *(1,) * (of_block.dim() - 2), -1)

    def _factor(self, arguments: Mapping[str, Tensor], grid: tuple[int, int]) -> Tensor | None:
        """``s``; where nothing varies with the cell, evaluated once for all blocks."""
        if self._everywhere is not None:
            return self._everywhere
        s = factor(self._form, arguments, self._points.shape[1], self._points, self._separable)
        if grid == (1, 1):
            self._everywhere = s
        return s
