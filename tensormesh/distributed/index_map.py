"""`IndexMap`: one rank's view of a distributed numbering. It holds no values and sends nothing."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class IndexMap:
    """Who owns what, and where it is here.

    Inside, the numbering is contiguous by rank: rank ``r`` owns ``offsets[r] .. offsets[r+1] - 1``.
    Local numbering is owned indices first, then ghosts. The original ids tie it to the input's
    numbering, in which users give and get data. Nothing here has global length.

    Parameters
    ----------
    offsets
        int64 ``[size + 1]``.
    rank
        This rank's position in its device mesh.
    ghosts
        Global indices of the ghosts, int64 ``[n_ghosts]``, sorted and hence grouped by owner.
    owned_ids
        Original id of each owned index, int64 ``[n_owned]``.
    ghost_ids
        Original id of each ghost, int64 ``[n_ghosts]``.
    """

    offsets: Tensor
    rank: int
    ghosts: Tensor
    owned_ids: Tensor
    ghost_ids: Tensor

    @cached_property
    def first(self) -> int:
        """Global index of the first owned one."""
        return int(self.offsets[self.rank])

    @property
    def n_owned(self) -> int:
        """Number of owned indices."""
        return self.owned_ids.numel()

    @property
    def n_ghosts(self) -> int:
        """Number of ghosts."""
        return self.ghost_ids.numel()

    @property
    def n_local(self) -> int:
        """Number of owned indices and ghosts."""
        return self.n_owned + self.n_ghosts

    @cached_property
    def n_global(self) -> int:
        """Number of indices over all ranks."""
        return int(self.offsets[-1])

    @property
    def device(self) -> torch.device:
        """Device of the index tensors."""
        return self.offsets.device

    @cached_property
    def local_to_global(self) -> Tensor:
        """Global index of each local one, int64 ``[n_local]``."""
        stop = self.first + self.n_owned
        return torch.cat([torch.arange(self.first, stop, device=self.device), self.ghosts])

    @cached_property
    def original_ids(self) -> Tensor:
        """Original id of each local index, int64 ``[n_local]``."""
        return torch.cat([self.owned_ids, self.ghost_ids])

    def owner(self, index: Tensor) -> Tensor:
        """Rank that owns each global index."""
        return torch.searchsorted(self.offsets, index, right=True) - 1

    def local_of(self, index: Tensor) -> Tensor:
        """Local index of global indices that are owned or ghosts here."""
        ghost = (index < self.first) | (index >= self.first + self.n_owned)
        local = index - self.first
        local[ghost] = self.n_owned + torch.searchsorted(self.ghosts, index[ghost])
        return local

    def local(self, ids: Tensor) -> Tensor:
        """Local index of each original id.

        Raises
        ------
        ValueError
            If an id is neither owned nor a ghost here.
        """
        order = torch.argsort(self.original_ids)
        known = self.original_ids[order]
        place = torch.searchsorted(known, ids).clamp(max=max(known.numel() - 1, 0))
        if ids.numel() and (known.numel() == 0 or not bool((known[place] == ids).all())):
            raise ValueError("ids holds an index that this rank neither owns nor sees as a ghost")
        return order[place]
