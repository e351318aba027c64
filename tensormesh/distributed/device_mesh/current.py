"""The current device mesh of each thread: a stack that ``with mesh:`` works on."""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensormesh.distributed.device_mesh.mesh import DeviceMesh


class _Stack(threading.local):
    def __init__(self) -> None:
        self.meshes: list[DeviceMesh] = []


_stack = _Stack()


def current_device_mesh() -> "DeviceMesh | None":
    """Mesh of the innermost ``with mesh:`` of this thread, None outside of any."""
    return _stack.meshes[-1] if _stack.meshes else None


def push(mesh: "DeviceMesh") -> None:
    """Enter a ``with mesh:``."""
    _stack.meshes.append(mesh)


def pop() -> None:
    """Leave the innermost ``with mesh:``."""
    _stack.meshes.pop()
