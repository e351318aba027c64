"""Distributed finite-element assembly on PyTorch."""

from tensormesh import assemble, distributed, element, errors, mesh, operator, sparse
from tensormesh.assemble import (
    ElementAssembler,
    FacetAssembler,
    FormError,
    LaplaceElementAssembler,
    LinearElasticityElementAssembler,
    MassElementAssembler,
    NodeAssembler,
    const_node_assembler,
    func_node_assembler,
)
from tensormesh.distributed import (
    DeviceMesh,
    DistributedMesh,
    DSparseMatrix,
    SolveInfo,
    broadcast_from_rank0,
    distributed_element_assemble,
    distributed_element_assemble_per_rank,
    distributed_element_assemble_to_sparse,
    distributed_node_assemble,
    init_device_mesh,
)
from tensormesh.errors import NotConvergedError, SingularMatrixError, SolveError
from tensormesh.mesh import Mesh
from tensormesh.operator import Condenser
from tensormesh.sparse import SparseMatrix

__version__ = "0.1.0"

__all__ = [
    "Condenser",
    "DSparseMatrix",
    "DeviceMesh",
    "DistributedMesh",
    "ElementAssembler",
    "FacetAssembler",
    "FormError",
    "LaplaceElementAssembler",
    "LinearElasticityElementAssembler",
    "MassElementAssembler",
    "Mesh",
    "NodeAssembler",
    "NotConvergedError",
    "SingularMatrixError",
    "SolveError",
    "SolveInfo",
    "SparseMatrix",
    "__version__",
    "assemble",
    "broadcast_from_rank0",
    "const_node_assembler",
    "distributed",
    "distributed_element_assemble",
    "distributed_element_assemble_per_rank",
    "distributed_element_assemble_to_sparse",
    "distributed_node_assemble",
    "element",
    "errors",
    "func_node_assembler",
    "init_device_mesh",
    "mesh",
    "operator",
    "sparse",
]
