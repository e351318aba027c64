"""Numberings that are contiguous by rank: from owners, and from ids to numbers."""

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints
from tensormesh.distributed.delivery import Delivery
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.halo import Halo
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
    rank = device_mesh.get_local_rank()
    n_owned = all_gather_ints([owned_ids.numel()], device_mesh)[:, 0]
    offsets = torch.cat([n_owned.new_zeros(1), n_owned.cumsum(0)]).to(owned_ids.device)
    asking = Delivery(ghost_owners, device_mesh)
    questions = asking.there(ghost_ids)
    by_id = torch.argsort(owned_ids)
    answers = by_id[torch.searchsorted(owned_ids, questions, sorter=by_id)] + offsets[rank]
    numbers = asking.back(answers)
    by_number = torch.argsort(numbers)
    return IndexMap(offsets, rank, numbers[by_number], owned_ids, ghost_ids[by_number])


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
    width = _share(id_range, device_mesh)
    asking = Delivery(torch.div(ids, width, rounding_mode="floor"), device_mesh)
    mine = asking.there(ids)
    counts = all_gather_ints([mine.numel()], device_mesh)[:, 0]
    place = torch.empty_like(mine)
    place[torch.argsort(mine)] = torch.arange(mine.numel(), device=mine.device)
    return asking.back(place + int(counts[: device_mesh.get_local_rank()].sum()))


def numbers_of(ids: Tensor, index_map: IndexMap, device_mesh: DeviceMesh) -> Tensor:
    """Global index of any original ids, whoever owns them. **Collective.**

    Each rank looks after a range of ids, so that none holds a table of them all.

    Parameters
    ----------
    ids
        int64 ``[k]``, each owned on some rank.
    index_map
        The map, whose original ids are ``0 .. n_global - 1``.
    device_mesh
        1-D mesh of its ranks.

    Returns
    -------
    Tensor
        int64 ``[k]``.
    """
    width = _share(index_map.n_global, device_mesh)
    owned = index_map.owned_ids
    telling = Delivery(torch.div(owned, width, rounding_mode="floor"), device_mesh)
    known = telling.there(owned)
    table = torch.empty(width, dtype=torch.int64, device=ids.device)
    table[known % width] = telling.there(index_map.local_to_global[: index_map.n_owned])
    asking = Delivery(torch.div(ids, width, rounding_mode="floor"), device_mesh)
    return asking.back(table[asking.there(ids) % width])


def columns_of(
    numbers: Tensor, offsets: Tensor, owned_ids: Tensor, device_mesh: DeviceMesh
) -> tuple[IndexMap, Halo]:
    """Map whose ghosts are the given global indices that other ranks own. **Collective.**

    Parameters
    ----------
    numbers
        Global indices that rows on this rank name, int64 ``[k]``, in any order.
    offsets
        Rank ``r`` owns ``offsets[r] .. offsets[r+1] - 1``.
    owned_ids
        Original id of each owned index, int64.
    device_mesh
        1-D mesh of the ranks.
    """
    rank = device_mesh.get_local_rank()
    first, stop = offsets[rank : rank + 2].tolist()
    ghosts = torch.unique(numbers[(numbers < first) | (numbers >= stop)])
    # Of the ghosts' ids only their owners know; the way to them does not depend on these.
    halo = Halo(IndexMap(offsets, rank, ghosts, owned_ids, ghosts), device_mesh)
    ids = halo.scatter_forward(owned_ids)[len(owned_ids) :]
    return IndexMap(offsets, rank, ghosts, owned_ids, ids), halo


def _share(n: int, device_mesh: DeviceMesh) -> int:
    """Length of the range of ids that each rank looks after."""
    return -(-max(n, 1) // device_mesh.size())
