"""`HasTangent`: what assemblers share whose form depends on the unknown field."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import Assembler, ElementData
from tensormesh.assemble.form import FormData
from tensormesh.sparse.matrix import SparseMatrix

DATA = ("point_data", "element_data", "scalar_data")


class AssemblesTangent(Assembler):
    """How the derivative of a nonlinear form becomes a sparse matrix."""

    # With the data of the call as a dict; on a `DistributedMesh` another stands here.
    def _assembled_tangent(self, call: Mapping[str, Any], unknown: str | None) -> SparseMatrix:
        self._set_points(call["points"])
        data = self._data(*(call[k] for k in DATA))
        return self._matrix(*self._tangent_values(call["func"], data, unknown))

    def _tangent_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        """Values ``[H * H, nnz]`` on the node pairs of the topology, and ``H``."""
        raise NotImplementedError


class HasTangent(AssemblesTangent):
    """Derivative of a nonlinear form by a field, as a sparse matrix."""

    def tangent(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
        *,
        unknown: str | None = None,
    ) -> SparseMatrix:
        """Derivative of the residual by a field, by automatic differentiation at each point.

        The residual is what the form assembles, a vector; of an energy, the internal force, so
        that the tangent is its second derivative. The matrix has the pattern of the matrices of
        bilinear forms.

        Parameters
        ----------
        points, func, point_data, element_data, scalar_data
            As of `ElementAssembler.energy` or of the call; real.
        unknown
            Name of the field in `point_data`, ``[n]`` or ``[n, H]``. None: the only one that the
            form names.

        Returns
        -------
        SparseMatrix
            ``[n * H, n * H]``, the derivative of each row's residual; differentiable.

        Raises
        ------
        ValueError
            If the form does not name `unknown`, has several fields and `unknown` is None, or has
            another number of components than the field.
        """
        call = dict(zip(DATA, (point_data, element_data, scalar_data), strict=True))
        return self._assembled_tangent({"points": points, "func": func, **call}, unknown)
