"""Partition, assemble, route, solve: everything that knows of ranks."""

from tensormesh.distributed.broadcast import broadcast_from_rank0
from tensormesh.distributed.decorator import distributed
from tensormesh.distributed.device_mesh import DeviceMesh, init_device_mesh
from tensormesh.distributed.functional import (
    distributed_element_assemble,
    distributed_element_assemble_per_rank,
    distributed_element_assemble_to_sparse,
    distributed_node_assemble,
)
from tensormesh.distributed.matrix import DSparseMatrix
from tensormesh.distributed.mesh import DistributedMesh
from tensormesh.distributed.preconditioner import Jacobi, Multilevel, Schwarz
from tensormesh.mesh import Mesh
from tensormesh.sparse.solve_info import SolveInfo

# `Mesh.partition` makes a DistributedMesh; only this folder may know what that is.
Mesh.cut = DistributedMesh

__all__ = [
    "DSparseMatrix",
    "DeviceMesh",
    "DistributedMesh",
    "Jacobi",
    "Multilevel",
    "Schwarz",
    "SolveInfo",
    "broadcast_from_rank0",
    "distributed",
    "distributed_element_assemble",
    "distributed_element_assemble_per_rank",
    "distributed_element_assemble_to_sparse",
    "distributed_node_assemble",
    "init_device_mesh",
]
