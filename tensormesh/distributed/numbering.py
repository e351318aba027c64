"""Building an `IndexMap`: from owners to a numbering that is contiguous by rank."""

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints, exchange
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.index_map import IndexMap


def number_by_rank(
    owned_ids: Tensor, ghost_ids: Tensor, ghost_owners: Tensor, device_mesh: DeviceMesh
) -> IndexMap:
    """Index map of owned and ghost original ids. **Collective over `device_mesh`.**

    Parameters
    ----------
    owned_ids
        Original ids that this rank owns, int64 ``[n_owned]``.
    ghost_ids
        Original ids that this rank needs from others, int64 ``[n_ghosts]``.
    ghost_owners
        Rank that owns each of them, int64 ``[n_ghosts]``.
    device_mesh
        1-D mesh of the ranks.

    Returns
    -------
    IndexMap
        Owned indices in the order of `owned_ids`.
    """
    size, rank = device_mesh.size(), device_mesh.get_local_rank()
    n_owned = all_gather_ints([owned_ids.numel()], device_mesh)[:, 0]
    offsets = torch.cat([n_owned.new_zeros(1), n_owned.cumsum(0)]).to(owned_ids.device)
    order = torch.argsort(ghost_owners, stable=True)
    asked = torch.bincount(ghost_owners, minlength=size).tolist()
    answered = all_gather_ints(asked, device_mesh)[:, rank].tolist()
    questions = exchange(ghost_ids[order], asked, answered, device_mesh)
    by_id = torch.argsort(owned_ids)
    answers = by_id[torch.searchsorted(owned_ids, questions, sorter=by_id)] + offsets[rank]
    numbers = exchange(answers, answered, asked, device_mesh)
    by_number = torch.argsort(numbers)
    return IndexMap(offsets, rank, numbers[by_number], owned_ids, ghost_ids[order][by_number])


def rank_among(ids: Tensor, id_range: int, device_mesh: DeviceMesh) -> Tensor:
    """Position of each of this rank's ids in the sorted union over ranks. **Collective.**

    The ids are sorted by ranges, one range a rank, so that none holds them all.

    Parameters
    ----------
    ids
        int64 ``[k]``, different on this rank and on all others, below `id_range`.
    id_range
        Bound of the ids.
    device_mesh
        1-D mesh of the ranks.

    Returns
    -------
    Tensor
        int64 ``[k]``.
    """
    size, rank = device_mesh.size(), device_mesh.get_local_rank()
    width = -(-max(id_range, 1) // size)
    bucket = torch.div(ids, width, rounding_mode="floor")
    order = torch.argsort(bucket, stable=True)
    sent = torch.bincount(bucket, minlength=size).tolist()
    received = all_gather_ints(sent, device_mesh)[:, rank].tolist()
    mine = exchange(ids[order], sent, received, device_mesh)
    counts = all_gather_ints([mine.numel()], device_mesh)[:, 0]
    place = torch.empty_like(mine)
    place[torch.argsort(mine)] = torch.arange(mine.numel(), device=mine.device)
    answers = exchange(place + int(counts[:rank].sum()), received, sent, device_mesh)
    result = torch.empty_like(ids)
    result[order] = answers
    return result
