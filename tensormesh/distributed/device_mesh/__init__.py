"""Device meshes: who owns the process groups, and which ranks they join."""

from tensormesh.distributed.device_mesh.current import current_device_mesh
from tensormesh.distributed.device_mesh.device import rank_device
from tensormesh.distributed.device_mesh.factory import (
    as_device_mesh,
    default_device_mesh,
    init_device_mesh,
)
from tensormesh.distributed.device_mesh.mesh import DeviceMesh

__all__ = [
    "DeviceMesh",
    "as_device_mesh",
    "current_device_mesh",
    "default_device_mesh",
    "init_device_mesh",
    "rank_device",
]
