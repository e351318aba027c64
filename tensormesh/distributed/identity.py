"""Identity of a partition build."""

import secrets

from tensormesh.distributed.collectives import broadcast_object
from tensormesh.distributed.device_mesh import DeviceMesh


def draw_uuid(device_mesh: DeviceMesh) -> int:
    """63-bit number drawn on rank 0, the same on every rank. **Collective over `device_mesh`.**"""
    uuid: int = broadcast_object(secrets.randbits(63), device_mesh)
    return uuid
