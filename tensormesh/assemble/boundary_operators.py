"""Ready-made terms of boundary conditions: Robin, impedance, incident waves."""

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from tensormesh.assemble.facet import FacetAssembler
from tensormesh.assemble.facet_bilinear import FacetBilinearAssembler
from tensormesh.sparse.matrix import SparseMatrix

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh


def robin_operator(
    mesh: "Mesh",
    boundary_mask: Tensor | str | None = None,
    coeff: complex | Tensor = 1.0,
    *,
    points: Tensor | None = None,
    quadrature_order: int = 2,
) -> SparseMatrix:
    """Matrix of ``coeff u v`` on facets.

    Parameters
    ----------
    mesh
        The mesh.
    boundary_mask
        Which facets; as of `FacetAssembler.from_mesh`.
    coeff
        Number, or field ``[n]``; may be complex.
    points
        Coordinates other than the mesh's, ``[n, D]``.
    quadrature_order
        Least degree of exactness.

    Returns
    -------
    SparseMatrix
        ``[n, n]``, with the pattern of the matrices of the cells.
    """
    assembler = _Robin.from_mesh(mesh, boundary_mask, quadrature_order)
    return assembler(points, **_given("coeff", coeff))


def port_source(
    mesh: "Mesh",
    boundary_mask: Tensor | str | None = None,
    incident: complex | Tensor = 1.0,
    *,
    points: Tensor | None = None,
    quadrature_order: int = 2,
) -> Tensor:
    """Vector of ``incident v`` on facets.

    Parameters
    ----------
    mesh, boundary_mask, points, quadrature_order
        As of `robin_operator`.
    incident
        Number, or field ``[n]``; may be complex.

    Returns
    -------
    Tensor
        ``[n]``.
    """
    assembler = _Port.from_mesh(mesh, boundary_mask, quadrature_order)
    return assembler(points, **_given("incident", incident))


def _given(name: str, value: Any) -> dict[str, Any]:
    is_field = isinstance(value, Tensor | np.ndarray) and value.ndim > 0
    return {"point_data" if is_field else "scalar_data": {name: value}}


class _Robin(FacetBilinearAssembler):
    def forward(self, u: Tensor, v: Tensor, coeff: Tensor) -> Tensor:
        return coeff * u * v


class _Port(FacetAssembler):
    def forward(self, v: Tensor, incident: Tensor) -> Tensor:
        return incident * v
