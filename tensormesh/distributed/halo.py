"""`Halo`: the two motions of values between owners and ghosts."""

import torch
from torch import Tensor

from tensormesh.distributed.collectives import (
    PendingExchange,
    all_gather_ints,
    exchange,
    start_exchange,
)
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.index_map import IndexMap


class Halo:
    """Communication plan of an index map. **Making one is collective over `device_mesh`.**

    Values are rows: ``[n, ...]`` with any trailing sizes. `scatter_forward` and
    `scatter_reverse` are each other's adjoint, and differentiable.

    Parameters
    ----------
    index_map
        The map.
    device_mesh
        1-D mesh of its ranks.
    """

    def __init__(self, index_map: IndexMap, device_mesh: DeviceMesh) -> None:
        size, rank = device_mesh.size(), device_mesh.get_local_rank()
        self.device_mesh = device_mesh
        self.n_owned, self.n_ghosts = index_map.n_owned, index_map.n_ghosts
        owners = index_map.owner(index_map.ghosts)
        self.recv_counts: list[int] = torch.bincount(owners, minlength=size).tolist()
        table = all_gather_ints(self.recv_counts, device_mesh)
        self.send_counts: list[int] = table[:, rank].tolist()
        none = table.sum(1) == 0
        self.only_some_have_ghosts = bool(none.any()) and not bool(none.all())
        wanted = exchange(index_map.ghosts, self.recv_counts, self.send_counts, device_mesh)
        self.send_index = wanted - index_map.first

    @property
    def neighbours(self) -> list[int]:
        """Ranks that this one exchanges values with."""
        both = zip(self.send_counts, self.recv_counts, strict=True)
        return [r for r, (sent, received) in enumerate(both) if sent or received]

    def scatter_forward(self, owned: Tensor) -> Tensor:
        """Copy owners to ghosts: ``[n_owned, ...]`` -> ``[n_local, ...]``. **Collective.**"""
        sent = owned[self.send_index]
        ghosts = exchange(sent, self.send_counts, self.recv_counts, self.device_mesh)
        # As columns: of a vector of length zero, cat forgets what its gradient depends on, and
        # ranks without ghosts would not take part in second derivatives.
        return torch.cat([owned.unsqueeze(-1), ghosts.unsqueeze(-1)]).squeeze(-1)

    def scatter_reverse(self, local: Tensor) -> Tensor:
        """Add ghosts into owners: ``[n_local, ...]`` -> ``[n_owned, ...]``. **Collective.**"""
        owned, ghosts = local[: self.n_owned], local[self.n_owned :]
        received = exchange(ghosts, self.recv_counts, self.send_counts, self.device_mesh)
        return owned.index_add(0, self.send_index, received)

    def start_forward(self, owned: Tensor) -> PendingExchange:
        """Begin to copy owners to ghosts; ``wait()`` gives the ghosts ``[n_ghosts, ...]``.

        For use without gradients, to compute on the owned part meanwhile. **Collective.**
        """
        sent = owned.detach()[self.send_index]
        return start_exchange(sent, self.send_counts, self.recv_counts, self.device_mesh)

    def start_reverse(self, ghosts: Tensor) -> PendingExchange:
        """Begin to send ghosts to owners; ``wait()`` gives rows to add at `send_index`.

        For use without gradients. **Collective.**
        """
        return start_exchange(ghosts.detach(), self.recv_counts, self.send_counts, self.device_mesh)

    def consistent(self, local: Tensor) -> Tensor:
        """`local` as it is, its copies of one node understood as one variable.

        The gradient of each copy is the sum over all of them, so that it equals the gradient of
        one process. **Collective in backward.**
        """
        if not local.requires_grad:
            return local
        result: Tensor = _Consistent.apply(local, self)
        return result


class _Consistent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, local: Tensor, halo: Halo) -> Tensor:
        ctx.halo = halo  # type: ignore[attr-defined]
        return local.view_as(local)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        halo: Halo = ctx.halo  # type: ignore[attr-defined]
        return halo.scatter_forward(halo.scatter_reverse(grads[0])), None
