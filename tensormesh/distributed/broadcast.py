"""A tensor that only rank 0 can make, on every rank."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

from tensormesh.distributed.collectives import broadcast
from tensormesh.distributed.device_mesh import DeviceMesh, as_device_mesh


def broadcast_from_rank0(
    factory: Callable[[], Tensor],
    *,
    dst_device: torch.device | str | None = None,
    device_mesh: DeviceMesh | TorchDeviceMesh | None = None,
) -> Tensor:
    """Tensor of ``factory()``, which runs on rank 0 only. Collective over `device_mesh`.

    Without a process group it is ``factory()``. The tensor travels as one, without gradient,
    through CUDA when NCCL is the backend.

    Parameters
    ----------
    factory
        Makes the tensor, for instance reads it from a file.
    dst_device
        Where the result is placed; default the CPU.
    device_mesh
        1-D; its first rank runs `factory`. Default: all ranks of the job.

    Raises
    ------
    TypeError
        On every rank, if `factory` returns no tensor.
    BaseException
        On every rank, whatever `factory` raises.

    Examples
    --------
    >>> broadcast_from_rank0(lambda: torch.arange(3))
    tensor([0, 1, 2])
    """
    if not dist.is_initialized():
        made = factory()
        return made if dst_device is None else made.to(dst_device)
    device_mesh = as_device_mesh(device_mesh)
    outcome = _outcome(factory) if device_mesh.get_local_rank() == 0 else None
    return broadcast(outcome, device_mesh).to(dst_device or "cpu")


def _outcome(factory: Callable[[], Tensor]) -> Tensor | BaseException:
    """Return what `factory` returns or raises, ``sys.exit`` of a file reader included."""
    try:
        return factory()
    except (Exception, SystemExit) as error:
        return error
