"""The functional entry points: assemble on a `DistributedMesh` in one call."""

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch_sla.distributed import DSparseTensor

from tensormesh.assemble.base import Assembler
from tensormesh.distributed.assemble import ShardedAssembly
from tensormesh.distributed.collectives import raise_together
from tensormesh.distributed.matrix import DSparseMatrix
from tensormesh.distributed.mesh import DistributedMesh
from tensormesh.sparse.matrix import SparseMatrix

CallKwargs = Mapping[str, Any] | None


def distributed_element_assemble(
    assembler_cls: type[Assembler],
    dmesh: DistributedMesh,
    quadrature_order: int = 2,
    project: str = "reduce",
    call_kwargs: CallKwargs = None,
    **assembler_kwargs: Any,
) -> DSparseTensor:
    """Assemble a bilinear form on all parts. **Collective over the device mesh.**

    Parameters
    ----------
    assembler_cls
        Subclass of `ElementAssembler` or another assembler of a bilinear form.
    dmesh
        The mesh.
    quadrature_order, project
        As of `ElementAssembler.from_mesh`.
    call_kwargs
        ``points``, ``func``, ``point_data``, ``element_data``, ``scalar_data`` of the call. Data
        are given for the global mesh, for this rank's part, or (nodal data) as the owned slice.
    **assembler_kwargs
        Arguments of ``__post_init__``.

    Returns
    -------
    DSparseMatrix
        Row-sharded over the ranks; in a single process one shard with everything.

    Raises
    ------
    ValueError, TypeError, KeyError
        On every rank, what is wrong on one of them.
    """
    assembly = ShardedAssembly(
        assembler_cls,
        dmesh,
        quadrature_order=quadrature_order,
        project=project,
        **assembler_kwargs,
    )
    return assembly.matrix(call_kwargs or {})


def distributed_element_assemble_per_rank(
    assembler_cls: type[Assembler],
    dmesh: DistributedMesh,
    rank: int,
    quadrature_order: int = 2,
    project: str = "reduce",
    call_kwargs: CallKwargs = None,
    **assembler_kwargs: Any,
) -> DSparseMatrix:
    """Assemble this rank's part only, in lockstep on all ranks. **Collective.**

    Parameters
    ----------
    assembler_cls, dmesh, quadrature_order, project, call_kwargs, **assembler_kwargs
        As of `distributed_element_assemble`.
    rank
        This rank's position in the device mesh.

    Returns
    -------
    DSparseMatrix
        Row-sharded over the ranks.

    Raises
    ------
    RuntimeError
        If `torch.distributed` is not initialised.
    ValueError
        If `rank` is not this rank, or `dmesh` was made before the job.
    """
    if not dist.is_initialized():
        raise RuntimeError(
            "torch.distributed is not initialised: call init_process_group first, or use "
            "distributed_element_assemble in a single process"
        )
    raise_together(_check_rank(dmesh, rank), dmesh.device_mesh)
    assembly = ShardedAssembly(
        assembler_cls,
        dmesh,
        quadrature_order=quadrature_order,
        project=project,
        **assembler_kwargs,
    )
    return assembly.matrix(call_kwargs or {})


def _check_rank(dmesh: DistributedMesh, rank: int) -> ValueError | None:
    mine = dmesh.device_mesh.get_local_rank()
    if rank == mine or not dmesh.in_job:  # a mesh made before the job is refused by the assembly
        return None
    return ValueError(f"rank = {rank}, but this is rank {mine} of the device mesh")


def distributed_element_assemble_to_sparse(
    assembler_cls: type[Assembler],
    dmesh: DistributedMesh,
    quadrature_order: int = 2,
    project: str = "reduce",
    call_kwargs: CallKwargs = None,
    **assembler_kwargs: Any,
) -> SparseMatrix:
    """Assemble on all parts, and gather. **Collective.**

    Parameters as of `distributed_element_assemble`.

    Returns
    -------
    SparseMatrix
        The whole matrix on every rank, one entry a position.
    """
    assembly = ShardedAssembly(
        assembler_cls,
        dmesh,
        quadrature_order=quadrature_order,
        project=project,
        **assembler_kwargs,
    )
    return assembly.matrix(call_kwargs or {}).to_single()


def distributed_node_assemble(
    assembler_cls: type[Assembler],
    dmesh: DistributedMesh,
    quadrature_order: int = 2,
    project: str = "reduce",
    point_data: Mapping[str, Tensor] | None = None,
    call_kwargs: CallKwargs = None,
    **assembler_kwargs: Any,
) -> Tensor:
    """Assemble a linear form, on cells or on facets. **Collective over the device mesh.**

    Parameters
    ----------
    assembler_cls
        Subclass of `NodeAssembler`, `FacetAssembler` or `MixedNodeAssembler`.
    dmesh, quadrature_order, project, call_kwargs, **assembler_kwargs
        As of `distributed_element_assemble`; ``boundary_mask`` chooses the facets.
    point_data
        Nodal data, beside those in `call_kwargs`.

    Returns
    -------
    Tensor
        The owned slice ``[n_owned * H]``, in the row order of the matrices of `dmesh`; in a single
        process that is the global vector.
    """
    call = dict(call_kwargs or {})
    if point_data is not None:
        call["point_data"] = {**(call.get("point_data") or {}), **point_data}
    assembly = ShardedAssembly(
        assembler_cls,
        dmesh,
        quadrature_order=quadrature_order,
        project=project,
        **assembler_kwargs,
    )
    return assembly.vector(call)
