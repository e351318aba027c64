"""Reference cells: a thin layer over basix that numbers nodes as mesh files do."""

from tensormesh.element.cell_type import CellType, cell_name, cell_type
from tensormesh.element.classes import (
    Element,
    Hexahedron,
    Line,
    Prism,
    Pyramid,
    Quadrilateral,
    Tetrahedron,
    Triangle,
    element_type2dimension,
    element_type2element,
    element_type2order,
    element_types,
)
from tensormesh.element.facet import LocalFacet, facet_quadrature, local_facets
from tensormesh.element.lagrange import reference_nodes, tabulate
from tensormesh.element.quadrature import quadrature

__all__ = [
    "CellType",
    "Element",
    "Hexahedron",
    "Line",
    "LocalFacet",
    "Prism",
    "Pyramid",
    "Quadrilateral",
    "Tetrahedron",
    "Triangle",
    "cell_name",
    "cell_type",
    "element_type2dimension",
    "element_type2element",
    "element_type2order",
    "element_types",
    "facet_quadrature",
    "local_facets",
    "quadrature",
    "reference_nodes",
    "tabulate",
]
