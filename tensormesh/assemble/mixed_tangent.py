"""`HasMixedTangent`: what assemblers of several fields share whose form depends on these."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import ElementData
from tensormesh.assemble.tangent import DATA, AssemblesTangent
from tensormesh.sparse.matrix import SparseMatrix


class HasMixedTangent(AssemblesTangent):
    """Derivative of a nonlinear form by all its fields, as a sparse matrix."""

    def tangent(
        self,
        points: Tensor | None = None,
        func: Any = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
    ) -> SparseMatrix:
        """Derivative of the residual by all fields, by automatic differentiation at each point.

        The residual is what the form assembles, a vector; of an energy, the internal force, so
        that the tangent is its second derivative. Rows are test functions, columns unknowns of the
        fields.

        Parameters
        ----------
        points, func, element_data, scalar_data
            As of the call, or of `energy`; real.
        point_data
            As of the call, the fields among them, such as ``at_nodes(x)``.

        Returns
        -------
        SparseMatrix
            ``[n * h, n * h]``, with the pattern of the bilinear forms of these fields;
            differentiable.

        Raises
        ------
        ValueError
            If the form names no field, or one is not in `point_data` or has another shape.
        """
        call = dict(zip(DATA, (point_data, element_data, scalar_data), strict=True))
        return self._assembled_tangent({"points": points, "func": func, **call}, None)
