"""`Kept`: new numbers of the unknowns of a layout that stay when others leave."""

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.numbering import rank_among


class Kept:
    """Unknowns that stay, each with the rank that owned it before. **Making one is collective.**

    Parameters
    ----------
    layout
        Layout of all unknowns.
    keep
        Which owned ones stay, bool ``[n_owned]``.

    Attributes
    ----------
    offsets
        Rank ``r`` has the new numbers ``offsets[r] .. offsets[r+1] - 1``.
    number
        New number of each owned unknown, int64 ``[n_owned]``; -1 where it leaves.
    ids
        Their new ids, in the order of the input, int64 ``[n_owned]``; -1 where it leaves.
    unknowns
        Of those that stay, what `MatrixLayout.unknowns` says.
    """

    def __init__(self, layout: MatrixLayout, keep: Tensor) -> None:
        device_mesh, rank = layout.device_mesh, layout.index_map.rank
        counts = all_gather_ints([int(keep.sum())], device_mesh)[:, 0]
        self.offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(keep.device)
        self.number = torch.full(keep.shape, -1, device=keep.device)
        self.number[keep] = torch.arange(int(counts[rank]), device=keep.device) + self.offsets[rank]
        self.ids = torch.full(keep.shape, -1, device=keep.device)
        self.ids[keep] = rank_among(layout.owned_dofs[keep], layout.global_shape[0], device_mesh)
        unknowns, h = layout.unknowns
        self.unknowns = unknowns[keep], h

    @property
    def n_global(self) -> int:
        """Number of unknowns that stay, over all ranks."""
        return int(self.offsets[-1])
