"""`Transformation`: cells of one type at their quadrature points, to look at."""

from functools import cached_property

import torch
from torch import Tensor

from tensormesh.assemble.geometry import (
    CellGeometry,
    Tabulation,
    cell_geometry,
    map_type,
    tabulation,
)
from tensormesh.element.cell_type import cell_type
from tensormesh.element.facet import facet_quadrature, local_facets
from tensormesh.element.lagrange import reference_nodes
from tensormesh.element.quadrature import quadrature


class Transformation:
    """Maps from the reference cell to cells of one type; what an assembler integrates with.

    Results are computed when they are asked for, in the dtype and on the device of the points, and
    are differentiable in them.

    Parameters
    ----------
    points
        (n, D).
    elements
        Connectivity, (E, B) int64, in file node order.
    element_type
        Cell type by name.
    quadrature_order
        Least degree of exactness; raised to twice the order of the cells where that is more.
    geometry_order
        1 if the vertices of a cell make its geometry, None if all its nodes do, as of `Mesh`.

    Attributes
    ----------
    points, elements, element_type
        As given.

    Raises
    ------
    ValueError
        If a shape does not fit, or `quadrature_order` is no integer of 1 or more.
    KeyError
        If the cell type is not supported.

    Examples
    --------
    >>> import tensormesh as tm
    >>> mesh = tm.Mesh.gen_rectangle(0.5)
    >>> triangles = tm.Transformation(mesh.points, mesh.elements(), "triangle")
    >>> round(float(triangles.JxW.sum()), 12)
    1.0
    """

    def __init__(
        self,
        points: Tensor,
        elements: Tensor,
        element_type: str,
        quadrature_order: int = 2,
        geometry_order: int | None = None,
    ) -> None:
        kind = cell_type(element_type)
        if (
            not isinstance(quadrature_order, int)
            or isinstance(quadrature_order, bool)
            or quadrature_order < 1
        ):
            raise ValueError(f"quadrature_order must be an integer >= 1, got {quadrature_order!r}")
        if elements.ndim != 2 or elements.shape[1] != kind.n_nodes:
            raise ValueError(
                f"elements must have shape (E, {kind.n_nodes}) for {element_type!r}, got "
                f"{tuple(elements.shape)}"
            )
        if points.ndim != 2 or points.shape[1] < kind.dim:
            raise ValueError(
                f"points must have shape (n, {kind.dim} or more), got {tuple(points.shape)}"
            )
        self.points = points
        self.elements = elements.to(points.device, torch.int64)
        self.element_type = element_type
        self._degree = max(quadrature_order, 2 * kind.order)
        self._geometry_order = geometry_order

    def update_points(self, points: Tensor) -> None:
        """Replace the coordinates; what depends on them is computed anew.

        Raises
        ------
        ValueError
            If the shape is another.
        """
        if points.shape != self.points.shape:
            raise ValueError(
                f"points must have shape {tuple(self.points.shape)}, got {tuple(points.shape)}"
            )
        fresh = Transformation(
            points, self.elements, self.element_type, self._degree, self._geometry_order
        )
        self.__dict__ = fresh.__dict__

    @property
    def quadrature(self) -> tuple[Tensor, Tensor]:
        """Weights (Q,) and reference points (Q, tdim)."""
        where, weights = self._rule
        return weights.to(self.points), where.to(self.points)

    @property
    def n_points(self) -> int:
        """Number of points."""
        return self.points.shape[0]

    @property
    def n_elements(self) -> int:
        """Number of cells."""
        return self.elements.shape[0]

    @property
    def n_basis(self) -> int:
        """Number of nodes of a cell."""
        return self.elements.shape[1]

    @property
    def n_quadrature(self) -> int:
        """Number of quadrature points of a cell."""
        return len(self._rule[1])

    @property
    def dim(self) -> int:
        """Number of coordinates of a point."""
        return self.points.shape[1]

    @property
    def basis(self) -> Tensor:
        """Reference coordinates of the nodes, (B, tdim)."""
        return reference_nodes(self.element_type).to(self.points)

    @property
    def element_coords(self) -> Tensor:
        """Coordinates of the nodes of the cells, (E, B, D)."""
        return self.points[self.elements]

    @property
    def shape_val(self) -> Tensor:
        """Values of the basis, (Q, B)."""
        return self._table.values

    @cached_property
    def shape_grad(self) -> Tensor:
        """Physical gradients of the basis, (E, Q, B, D)."""
        inverse = self._geometry.inverse.expand(self.n_quadrature, -1, -1, -1)
        return torch.einsum("qbk,qkde->eqbd", self._table.gradients, inverse)

    @cached_property
    def jacobian(self) -> Tensor:
        """Derivatives of the coordinates by the reference ones, (E, Q, D, tdim)."""
        return torch.einsum("dbe,qbk->eqdk", self._corners, self._table.of_map.gradients)

    @property
    def detJ(self) -> Tensor:  # noqa: N802
        """Determinant of `jacobian`, (E, Q); on curves and surfaces the measure, without sign."""
        square = self.jacobian.shape[-1] == self.jacobian.shape[-2]
        return torch.linalg.det(self.jacobian) if square else self._measure

    @property
    def JxW(self) -> Tensor:  # noqa: N802
        """Measure of the cells at each point, times the weight, (E, Q)."""
        return self._measure * self._table.weights

    @property
    def facets(self) -> Tensor:
        """Nodes of the facets of each cell, (E, n_facet, B_f).

        Raises
        ------
        NotImplementedError
            If the facets are of two shapes: see `tensormesh.element.local_facets`.
        """
        return self.elements[:, self._facet_nodes]

    @property
    def facet_shape_val(self) -> Tensor:
        """Values of the basis of the cell on each facet, (n_facet, Q_f, B).

        Raises
        ------
        NotImplementedError
            As of `facets`.
        """
        return torch.stack([table.values for table in self._facet_tables])

    @property
    def FxW(self) -> Tensor:  # noqa: N802
        """Measure of the facets at each point, times the weight, (E, n_facet, Q_f).

        Raises
        ------
        NotImplementedError
            As of `facets`.
        """
        facets = zip(local_facets(self.element_type), self._facet_tables, strict=True)
        return torch.stack([self._facet_measure(f.normal, table) for f, table in facets], dim=1)

    @property
    def _rule(self) -> tuple[Tensor, Tensor]:
        return quadrature(self.element_type, self._degree)

    @property
    def _measure(self) -> Tensor:
        return self._geometry.measure.expand(self.n_quadrature, -1).t()

    @cached_property
    def _table(self) -> Tabulation:
        return tabulation(self.element_type, *self._rule, self.points, self._geometry_order)

    @cached_property
    def _geometry(self) -> CellGeometry:
        return cell_geometry(self.element_type, self._corners, self._table)

    @property
    def _corners(self) -> Tensor:
        n_nodes = cell_type(map_type(self.element_type, self._geometry_order)).n_nodes
        return self.points[self.elements[:, :n_nodes]].permute(2, 1, 0)

    @cached_property
    def _facet_tables(self) -> list[Tabulation]:
        return [
            tabulation(
                self.element_type,
                *facet_quadrature(self.element_type, number, self._degree),
                self.points,
                self._geometry_order,
            )
            for number in range(len(self._facet_nodes))
        ]

    @property
    def _facet_nodes(self) -> list[list[int]]:
        facets = local_facets(self.element_type)
        if len({facet.cell_name for facet in facets}) > 1:
            raise NotImplementedError(
                f"Facets of {self.element_type!r} are of two shapes and do not fit one tensor; "
                "see tensormesh.element.local_facets."
            )
        return [list(facet.nodes) for facet in facets]

    def _facet_measure(self, normal: tuple[float, ...], table: Tabulation) -> Tensor:
        """(E, Q_f), by Nanson's formula: n ds = det(J) J^-T N dS."""
        geometry = cell_geometry(self.element_type, self._corners, table)
        reference = self.points.new_tensor(normal)
        stretch = torch.einsum("qkde,k->qde", geometry.inverse, reference).norm(dim=1)
        return (geometry.measure * stretch).t() * table.weights
