"""`Delivery`: rows that go to ranks, each to one, and answers that come back in their order."""

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints, exchange
from tensormesh.distributed.device_mesh import DeviceMesh


class Delivery:
    """Which row goes to which rank. **Making one, and each motion, is collective.**

    Parameters
    ----------
    to
        Rank that each row goes to, int64 ``[k]``.
    device_mesh
        1-D mesh of the ranks.
    """

    def __init__(self, to: Tensor, device_mesh: DeviceMesh) -> None:
        size, rank = device_mesh.size(), device_mesh.get_local_rank()
        self._device_mesh = device_mesh
        self._order = torch.argsort(to, stable=True)
        self._sent: list[int] = torch.bincount(to, minlength=size).tolist()
        self._received: list[int] = all_gather_ints(self._sent, device_mesh)[:, rank].tolist()

    def there(self, rows: Tensor) -> Tensor:
        """Rows ``[k, ...]`` to their ranks; gives what came here, by rank."""
        return exchange(rows[self._order], self._sent, self._received, self._device_mesh)

    def back(self, answers: Tensor) -> Tensor:
        """Answers to what came here, in its order; gives those to the ``k`` rows."""
        came = exchange(answers, self._received, self._sent, self._device_mesh)
        result = torch.empty_like(came)
        result[self._order] = came
        return result
