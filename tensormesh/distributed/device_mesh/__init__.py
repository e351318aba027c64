"""Device meshes: who owns the process groups, and which ranks they join."""

from .current import current_device_mesh
from .device import rank_device
from .factory import as_device_mesh, default_device_mesh, init_device_mesh
from .mesh import DeviceMesh

__all__ = [
    "DeviceMesh",
    "as_device_mesh",
    "current_device_mesh",
    "default_device_mesh",
    "init_device_mesh",
    "rank_device",
]
