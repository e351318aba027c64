"""One rank's tensor or object, on every rank."""

import pickle
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tensormesh.distributed.collectives import transport
from tensormesh.distributed.collectives.envelope import pack, raise_shared
from tensormesh.distributed.device_mesh import DeviceMesh


def broadcast(x: Tensor | BaseException | None, device_mesh: DeviceMesh, src: int = 0) -> Tensor:
    """Tensor of rank `src` on every rank, without gradient. Collective over `device_mesh`.

    It travels as a tensor: dtype and shape, then one message.

    Parameters
    ----------
    x
        On `src` the tensor, or an exception to raise on every rank in its place. Other ranks
        pass anything.
    src
        Rank along `device_mesh`.

    Returns
    -------
    Tensor
        On the device of `device_mesh`.

    Raises
    ------
    TypeError
        On every rank, if `x` is no tensor on `src`.
    BaseException
        On every rank, the exception that `src` passed.
    """
    if not _is_source(src, device_mesh):
        shape, dtype = _deliver(None, None, device_mesh, src)
        data = torch.empty(shape, dtype=dtype, device=device_mesh.device)
        _broadcast_(data, device_mesh, src)
        return data
    if not isinstance(x, Tensor | BaseException):
        x = TypeError(f"x is a {type(x).__name__} on the sending rank: expected a tensor")
    if isinstance(x, BaseException):
        return _deliver(None, x, device_mesh, src)
    _deliver((tuple(x.shape), x.dtype), None, device_mesh, src)
    data = x.detach().clone(memory_format=torch.contiguous_format).to(device_mesh.device)
    _broadcast_(data, device_mesh, src)
    return data


def broadcast_object(value: Any, device_mesh: DeviceMesh, src: int = 0) -> Any:
    """Object of rank `src`, pickled, on every rank. Collective over `device_mesh`.

    Parameters
    ----------
    value
        What `src` sends. Other ranks pass anything.
    src
        Rank along `device_mesh`.

    Raises
    ------
    TypeError
        On every rank, if `value` does not pickle.
    """
    return _deliver(value, None, device_mesh, src)


def _deliver(value: Any, error: BaseException | None, device_mesh: DeviceMesh, src: int) -> Any:
    """Object of `src`, or its exception, raised on every rank."""
    sends = _is_source(src, device_mesh)
    if transport.line_group(device_mesh) is None:
        if error is not None:
            raise error
        return value
    content = _broadcast_bytes(_content(value, error) if sends else b"", device_mesh, src)
    received, packed = pickle.loads(content)
    if packed is not None:
        origin = int(device_mesh.mesh[src])
        raise_shared(packed, error if sends else None, f"raised on rank {origin}")
    return value if sends else received


def _content(value: Any, error: BaseException | None) -> bytes:
    """Pickled pair of a value and a packed exception, one of them None."""
    if error is None:
        try:
            return pickle.dumps((value, None))
        except Exception as failure:  # whatever a user's class raises while it is pickled
            error = TypeError(f"value, a {type(value).__name__}, does not pickle: {failure}")
    return pickle.dumps((None, pack(error)))


def _broadcast_bytes(content: bytes, device_mesh: DeviceMesh, src: int) -> bytes:
    """Length, then content."""
    device = transport.control_device(device_mesh)
    length = torch.tensor([len(content)], dtype=torch.int64, device=device)
    _broadcast_(length, device_mesh, src)
    data = torch.empty(int(length), dtype=torch.uint8, device=device)
    if content:
        data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
    _broadcast_(data, device_mesh, src)
    return data.cpu().numpy().tobytes()


def _broadcast_(x: Tensor, device_mesh: DeviceMesh, src: int) -> None:
    """Broadcast a contiguous tensor in place."""
    group = transport.line_group(device_mesh)
    if group is None or x.numel() == 0:
        return
    rows = transport.as_wire_rows(x.view(1, -1)).view(-1)
    with transport.naming("broadcast", device_mesh):
        for piece in rows.split(transport.MAX_ELEMENTS):
            dist.broadcast(piece, src=int(device_mesh.mesh[src]), group=group)


def _is_source(src: int, device_mesh: DeviceMesh) -> bool:
    """Whether this rank sends; checks `src`."""
    if not 0 <= src < device_mesh.size():
        raise ValueError(f"src = {src}: expected a rank along {device_mesh!r}")
    return device_mesh.get_local_rank() == src
