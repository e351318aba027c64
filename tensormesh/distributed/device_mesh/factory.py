"""Device meshes over the world: built by shape, and the default one."""

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

from tensormesh.distributed.device_mesh.device import check_device_type
from tensormesh.distributed.device_mesh.groups import Backend
from tensormesh.distributed.device_mesh.layout import Span, check_sizes
from tensormesh.distributed.device_mesh.mesh import DeviceMesh


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Mapping[int | str, Backend] | None = None,
) -> DeviceMesh:
    """Row-major device mesh over all ranks of the job.

    Every rank calls it with the same arguments. It sends nothing; groups are made on first use.

    Parameters
    ----------
    device_type
        ``"cpu"``, ``"cuda"``, ...; without an index.
    mesh_shape
        Number of ranks along each dimension; the product is the world size.
    mesh_dim_names
        One name per dimension, all different.
    backend_override
        Backend of a dimension's groups, by its index or name: a backend's name, a
        ``ProcessGroup`` options object, or the pair of both.

    Raises
    ------
    RuntimeError
        If names repeat or are not as many as dimensions, `device_type` is no plain type, there
        is no process group, or the shape does not fit the world size.
    ValueError
        If the shape is empty or holds anything but positive integers, or `backend_override` has
        a key that is no dimension.
    """
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"mesh_dim_names = {tuple(mesh_dim_names)} repeats a name")
        if len(mesh_dim_names) != len(mesh_shape):
            raise RuntimeError(
                f"mesh_shape has {len(mesh_shape)} dimensions and mesh_dim_names "
                f"{len(mesh_dim_names)} names: expected as many"
            )
    check_device_type(device_type)
    sizes = check_sizes("mesh_shape", mesh_shape)
    if not dist.is_initialized():
        raise RuntimeError(
            "init_device_mesh needs a process group: call "
            "torch.distributed.init_process_group first"
        )
    if math.prod(sizes) != dist.get_world_size():
        raise RuntimeError(
            f"mesh_shape = {sizes} asks for {math.prod(sizes)} ranks, but the job has "
            f"{dist.get_world_size()}"
        )
    return DeviceMesh(
        device_type,
        mesh_dim_names=mesh_dim_names,
        _rank_map=range(math.prod(sizes)),
        _sizes=sizes,
        _backend_override=_by_dimension(backend_override or {}, sizes, mesh_dim_names or ()),
    )


def _by_dimension(
    override: Mapping[int | str, Backend], sizes: Sequence[int], names: Sequence[str]
) -> dict[Span, Backend]:
    """Backends by the span of their dimension."""
    backends: dict[Span, Backend] = {}
    for key, backend in override.items():
        dim = names.index(key) if isinstance(key, str) and key in names else key
        if type(dim) is not int or not 0 <= dim < len(sizes) or (dim,) in backends:
            raise ValueError(
                f"backend_override has the key {key!r}: expected each of the indices "
                f"0 to {len(sizes) - 1} or the names {tuple(names)} at most once"
            )
        backends[(dim,)] = backend
    return backends


_defaults: dict[str, tuple[weakref.ref[Any] | None, DeviceMesh]] = {}


def default_device_mesh(device_type: str | None = None) -> DeviceMesh:
    """1-D mesh over the world, or over this process alone without a process group.

    One object per device type as long as the job lives, so that everything made without an
    explicit device mesh shares it.

    Parameters
    ----------
    device_type
        Default: ``"cuda"`` if the job's backend works on it (without a job: if there is a CUDA
        device), else ``"cpu"``.
    """
    world = dist.group.WORLD if dist.is_initialized() else None
    device_type = device_type or _default_device_type(world)
    job, mesh = _defaults.get(device_type, (None, None))
    if mesh is None or (job() if job is not None else None) is not world:
        mesh = DeviceMesh(device_type, list(range(world.size() if world is not None else 1)))
        _defaults[device_type] = (weakref.ref(world) if world is not None else None, mesh)
    return mesh


def _default_device_type(world: dist.ProcessGroup | None) -> str:
    """``"cuda"`` where it can be used, else ``"cpu"``."""
    if not torch.cuda.is_available():
        return "cpu"
    works = world is None or "nccl" in dist.get_backend_config(world)
    return "cuda" if works else "cpu"


def as_device_mesh(device_mesh: DeviceMesh | TorchDeviceMesh | None) -> DeviceMesh:
    """Device mesh from one of ours, one of torch's, or the default for None.

    Raises
    ------
    TypeError
        If it is anything else.
    """
    if device_mesh is None:
        return default_device_mesh()
    if isinstance(device_mesh, TorchDeviceMesh):
        return DeviceMesh.from_torch(device_mesh)
    if isinstance(device_mesh, DeviceMesh):
        return device_mesh
    raise TypeError(f"device_mesh is a {type(device_mesh).__name__}: expected a DeviceMesh")
