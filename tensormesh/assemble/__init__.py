"""From a weak form and a mesh to a matrix or a vector, on one device."""

from tensormesh.assemble.builtin import (
    LaplaceElementAssembler,
    LinearElasticityElementAssembler,
    MassElementAssembler,
    const_node_assembler,
    func_node_assembler,
)
from tensormesh.assemble.element import ElementAssembler
from tensormesh.assemble.facet import FacetAssembler
from tensormesh.assemble.integrand import FormError
from tensormesh.assemble.node import NodeAssembler
from tensormesh.assemble.transformation import Transformation

__all__ = [
    "ElementAssembler",
    "FacetAssembler",
    "FormError",
    "LaplaceElementAssembler",
    "LinearElasticityElementAssembler",
    "MassElementAssembler",
    "NodeAssembler",
    "Transformation",
    "const_node_assembler",
    "func_node_assembler",
]
