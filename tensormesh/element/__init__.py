"""Reference cells: a thin layer over basix that numbers nodes as mesh files do."""

from tensormesh.element.cell_type import CellType, cell_name, cell_type
from tensormesh.element.facet import LocalFacet, facet_quadrature, local_facets
from tensormesh.element.lagrange import reference_nodes, tabulate
from tensormesh.element.quadrature import quadrature

__all__ = [
    "CellType",
    "LocalFacet",
    "cell_name",
    "cell_type",
    "facet_quadrature",
    "local_facets",
    "quadrature",
    "reference_nodes",
    "tabulate",
]
