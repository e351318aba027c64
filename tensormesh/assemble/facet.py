"""`FacetAssembler`: linear forms on facets, as vectors."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import ElementData
from tensormesh.assemble.blocks import CellBlock
from tensormesh.assemble.contract import element_matrices, element_vectors
from tensormesh.assemble.facet_forms import FacetForms
from tensormesh.assemble.form import Form, FormData, bind
from tensormesh.assemble.integrand import FormError, check_linear, facet_coefficients
from tensormesh.assemble.linearize import (
    PointCoefficients,
    Unknown,
    derivatives,
    facet_residual,
    linearized,
)
from tensormesh.assemble.sampling import cells_last
from tensormesh.assemble.scatter import scatter
from tensormesh.assemble.tangent import HasTangent


class FacetAssembler(HasTangent, FacetForms):
    """Vector of a linear form on facets: tractions, fluxes.

    Subclass it and define ``forward`` at one point of a facet. The test function keeps the basis
    axis of the cell: ``v`` is ``[B]``, ``gradv`` is ``[B, D]`` (``u``, ``gradu`` are other names of
    the same). Further arguments are ``x``, the outward unit normal ``n`` (``[D]``), fields, values
    per cell and constants. It returns ``[B]``, or ``[B, H]`` such as ``v[:, None] * traction``.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Perimeter(tm.FacetAssembler):
    ...     def forward(self, v):
    ...         return v
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
    >>> round(float(Perimeter.from_mesh(mesh)().sum()), 12)
    4.0
    >>> round(float(Perimeter.from_mesh(mesh, "left")().sum()), 12)
    1.0
    """

    def __call__(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        *,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Assemble the vector.

        Parameters
        ----------
        points, func, point_data, element_data, scalar_data
            As of `ElementAssembler.__call__`; `element_data` are values per cell.

        Returns
        -------
        Tensor
            ``[n * H]``, node-major; zero where there is no facet.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        self._set_points(points)
        values, _ = self._node_values(func, self._data(point_data, element_data, scalar_data))
        return values.reshape(-1)

    def _node_values(
        self, func: Callable[..., Tensor] | None, data: FormData
    ) -> tuple[Tensor, int]:
        """Values ``[n, H]`` and ``H``."""
        form = self._form(func, data)
        columns = self._topology.columns
        values = scatter(
            self.n_points,
            (
                (columns[block.kind][:, block.cells], self._vectors(form, block))
                for block in self._blocks(form, data)
            ),
        )
        return values.t(), values.shape[0]

    def _form(self, func: Callable[..., Tensor] | None, data: FormData) -> Form:
        form = bind(self._integrand(func), data, ("v", "gradv", "u", "gradu"), normal=True)
        if bool(form.of_kind("test")) == bool(form.of_kind("trial")):
            raise FormError(
                f"{type(self).__name__}: a linear facet form needs one of v, gradv "
                "(or of u, gradu, but not of both)"
            )
        return form

    def _coefficients(self, form: Form, block: CellBlock) -> Tensor:
        c = facet_coefficients(form, block.arguments, self.dimension, self.points)
        check_linear(form, block.arguments, self.dimension, self.points, c, basis_axis=True)
        return c

    def _tangent_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        form = self._form(func, data)
        field = Unknown(form, data, unknown)
        slots = self._topology.slots
        pieces = (
            (slots[block.kind][:, block.cells], self._matrices(form, field, block))
            for block in self._blocks(form, data)
        )
        values = scatter(self._topology.n_slots, pieces)
        return values, math.isqrt(values.shape[0])

    def _matrices(self, form: Form, field: Unknown, block: CellBlock) -> Tensor:
        def make(names: list[str]) -> PointCoefficients:
            return facet_residual(form, field, names, self.points)

        self._coefficients(form, block)  # refuses what is not linear in the test function
        shape = linearized(form, field)
        c = cells_last(shape, derivatives(make, field, block.arguments), block.grid)
        return element_matrices(shape, c, block.geometry, block.table)

    def _vectors(self, form: Form, block: CellBlock) -> Tensor:
        c = self._coefficients(form, block)
        return element_vectors(form, cells_last(form, c, block.grid), block.geometry, block.table)
