"""Which device is this rank's."""

import os

import torch
import torch.distributed as dist


def check_device_type(device_type: object) -> str:
    """Return `device_type` if it is a plain type such as ``"cuda"``.

    Raises
    ------
    RuntimeError
        If it is empty, not a ``str``, or carries an index.
    """
    if not isinstance(device_type, str) or not device_type or ":" in device_type:
        raise RuntimeError(
            f"device_type = {device_type!r}: expected a type without an index, such as 'cpu' or "
            "'cuda'; pass device.type"
        )
    return device_type


def rank_device(device_type: str) -> torch.device:
    """Device of this rank: ``cpu``, or the accelerator with the number ``LOCAL_RANK``.

    The one place that decides: ``rank % device_count`` is wrong from the second node on.

    Raises
    ------
    RuntimeError
        If a job of several ranks has no ``LOCAL_RANK``, or it is no number of a visible device.
    """
    if device_type == "cpu":
        return torch.device("cpu")
    several = dist.is_initialized() and dist.get_world_size() > 1
    local_rank = os.environ.get("LOCAL_RANK", None if several else "0")
    if local_rank is None:
        raise RuntimeError(
            "the environment variable LOCAL_RANK is not set, so the device of this rank is not "
            "known: start the job with torchrun, or set LOCAL_RANK to its number on this node"
        )
    count = torch.get_device_module(device_type).device_count()
    if not local_rank.isdecimal() or int(local_rank) >= count:
        raise RuntimeError(
            f"LOCAL_RANK = {local_rank!r}, but this node shows {count} {device_type} device(s): "
            "start at most one rank per device"
        )
    return torch.device(device_type, int(local_rank))
