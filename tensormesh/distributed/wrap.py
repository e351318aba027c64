"""The layout of a row-sharded tensor that torch-sla made."""

import torch
from torch import Tensor
from torch_sla.distributed import DSparseTensor, VertexShard

from tensormesh.distributed.device_mesh import DeviceMesh, as_device_mesh
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.identity import draw_uuid
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.numbering import number_by_rank
from tensormesh.distributed.vector_map import VectorMap
from tensormesh.sparse.pattern import SparsityPattern


def layout_of(D: DSparseTensor, uuid: int | None) -> tuple[MatrixLayout, Tensor]:
    """Layout of `D`, and the order of its stored entries in it. **Collective over its mesh.**

    Raises
    ------
    TypeError
        If `D` is not sharded by rows.
    """
    layout = getattr(D, "layout", None)
    if isinstance(layout, MatrixLayout):
        same = uuid is None or uuid == layout.uuid
        entries = torch.arange(D.nnz, device=D.device)
        return (layout if same else layout.with_uuid(int(uuid or 0))), entries
    placement = getattr(getattr(D, "spec", None), "placement", None)
    if not isinstance(placement, VertexShard) or placement.partition is None:
        raise TypeError(f"expected a row-sharded DSparseTensor, got {type(D).__name__}")
    device_mesh = (
        DeviceMesh(D.device.type, 0) if D.spec.mesh is None else as_device_mesh(D.spec.mesh)
    )
    partition = placement.partition
    owned = partition.owned_nodes
    n_owned = owned.numel()
    owners = torch.zeros_like(partition.halo_nodes)
    for rank, places in partition.recv_indices.items():
        owners[places - n_owned] = int(rank)
    sorted_ids = owned.sort().values
    index_map = number_by_rank(sorted_ids, partition.halo_nodes, owners, device_mesh)
    halo = Halo(index_map, device_mesh)
    vectors = VectorMap(index_map, halo, device_mesh, D.shape[0])
    # The layout has owned unknowns in the order of their ids and ghosts in the order of owners.
    place = index_map.local(partition.local_to_global)
    inside = (D.row_indices < n_owned).nonzero().flatten()
    row, col = place[D.row_indices[inside]], place[D.col_indices[inside]]
    order = torch.argsort(row * max(index_map.n_local, 1) + col)
    pattern = SparsityPattern(row[order], col[order], (n_owned, index_map.n_local))
    identity = draw_uuid(device_mesh) if uuid is None else uuid
    layout = MatrixLayout(pattern, index_map, halo, vectors, 1, identity)
    return layout, inside[order]
