"""From a weak form and a mesh to a matrix or a vector, on one device."""

from tensormesh.assemble.boundary_operators import port_source, robin_operator
from tensormesh.assemble.builtin import (
    AnisotropicLaplaceElementAssembler,
    LaplaceElementAssembler,
    LinearElasticityElementAssembler,
    MassElementAssembler,
    ScaledMassElementAssembler,
    const_node_assembler,
    func_node_assembler,
)
from tensormesh.assemble.element import ElementAssembler
from tensormesh.assemble.facet import FacetAssembler
from tensormesh.assemble.facet_bilinear import FacetBilinearAssembler
from tensormesh.assemble.field import BlockLayout, Field
from tensormesh.assemble.hyperelastic import NeoHookeanModel
from tensormesh.assemble.integrand import FormError
from tensormesh.assemble.mixed_element import MixedElementAssembler
from tensormesh.assemble.mixed_facet import MixedFacetAssembler, MixedFacetBilinearAssembler
from tensormesh.assemble.mixed_node import MixedNodeAssembler
from tensormesh.assemble.node import NodeAssembler
from tensormesh.assemble.per_point import PerQuadraturePoint
from tensormesh.assemble.transformation import Transformation

__all__ = [
    "AnisotropicLaplaceElementAssembler",
    "BlockLayout",
    "ElementAssembler",
    "FacetAssembler",
    "FacetBilinearAssembler",
    "Field",
    "FormError",
    "LaplaceElementAssembler",
    "LinearElasticityElementAssembler",
    "MassElementAssembler",
    "MixedElementAssembler",
    "MixedFacetAssembler",
    "MixedFacetBilinearAssembler",
    "MixedNodeAssembler",
    "NeoHookeanModel",
    "NodeAssembler",
    "PerQuadraturePoint",
    "ScaledMassElementAssembler",
    "Transformation",
    "const_node_assembler",
    "func_node_assembler",
    "port_source",
    "robin_operator",
]
