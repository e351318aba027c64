"""The device mesh: ranks in an n-dimensional grid, and the process groups along it."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

from tensormesh.distributed.device_mesh.current import pop, push
from tensormesh.distributed.device_mesh.device import check_device_type, rank_device
from tensormesh.distributed.device_mesh.groups import Backend, GroupRegistry
from tensormesh.distributed.device_mesh.interop import device_type_of, layout_of_groups
from tensormesh.distributed.device_mesh.layout import Layout, Span, nested_layout


class DeviceMesh:
    """Grid of global ranks that owns the process groups along its dimensions.

    Building one sends nothing. Without a process group it can be asked for everything but
    groups, and the process counts as rank 0. A sub-mesh shares the groups of its root.

    Parameters
    ----------
    device_type
        ``"cpu"``, ``"cuda"``, ...; without an index.
    mesh
        Global ranks: an int, a nested list or tuple, or an integer array or tensor.
    mesh_dim_names
        One name per dimension, all different.
    _rank_map, _sizes
        Internal, in place of `mesh`: flat global ranks, last dimension fastest, and the shape.
    _root_mesh, _root_dims
        Internal: the mesh that this one was cut from, and for each axis the root dimensions it
        spans.
    _backend_override
        Internal, for a root: backend by span where it is not that of the default group.
    _groups
        Internal: existing groups, one a dimension.

    Raises
    ------
    RuntimeError
        If `device_type` is no plain type.
    TypeError
        If both or neither of `mesh` and (`_rank_map`, `_sizes`) are given.
    ValueError
        If the ranks are ragged, negative, not integers or repeated, a size is not positive, the
        number of ranks is not the product of the sizes, or the names do not fit.

    Examples
    --------
    >>> mesh = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("replica", "domain"))
    >>> mesh
    DeviceMesh(replica=2, domain=2, 'cpu')
    >>> mesh.get_coordinate()
    (0, 0)
    """

    def __init__(
        self,
        device_type: str,
        mesh: object = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        _rank_map: Iterable[int] | None = None,
        _sizes: Iterable[int] | None = None,
        _root_mesh: "DeviceMesh | None" = None,
        _root_dims: tuple[Span, ...] | None = None,
        _backend_override: dict[Span, Backend] | None = None,
        _groups: Sequence[dist.ProcessGroup] = (),
    ) -> None:
        self.device_type = check_device_type(device_type)
        self._layout = _layout_from(mesh, _rank_map, _sizes)
        self.mesh_dim_names = _check_names(mesh_dim_names, self.ndim)
        self._root = _root_mesh if _root_mesh is not None else self
        self._spans = _root_dims or tuple((dim,) for dim in range(self.ndim))
        self._torch_mesh: tuple[TorchDeviceMesh, list[dist.ProcessGroup]] | None = None
        if self._root is self:
            self._registry = GroupRegistry(self._layout, _backend_override)
            self._flattened: dict[str, DeviceMesh] = {}
        for span, group in zip(self._spans, _groups, strict=False):
            self._root._registry.adopt(span, group)

    @classmethod
    def from_group(
        cls,
        group: dist.ProcessGroup | Sequence[dist.ProcessGroup],
        device_type: str | None = None,
        mesh: object = None,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> "DeviceMesh":
        """Mesh over existing groups; makes none.

        Parameters
        ----------
        group
            One group, which gives a 1-D mesh, or one a dimension: this rank's lines.
        device_type
            Default: the type that the (first) group's backend works on, ``"cuda"`` before
            ``"cpu"``.
        mesh
            Global ranks. For one group the default is its ranks in their order.
        mesh_dim_names
            One name a group.

        Raises
        ------
        TypeError
            If an entry is no process group, for instance on a rank outside it.
        ValueError
            If `mesh` is missing for several groups or disagrees with a group, or the numbers of
            groups, dimensions and names differ.
        """
        groups = list(group) if isinstance(group, Sequence) else [group]
        layout = layout_of_groups(groups, mesh)
        return cls(
            device_type or device_type_of(groups[0]),
            mesh_dim_names=mesh_dim_names,
            _rank_map=layout.ranks,
            _sizes=layout.sizes,
            _groups=groups,
        )

    @classmethod
    def from_torch(cls, mesh: TorchDeviceMesh) -> "DeviceMesh":
        """Mesh over the same groups as a mesh of ``torch.distributed.device_mesh``."""
        if not isinstance(mesh, TorchDeviceMesh):
            raise TypeError(
                f"mesh is a {type(mesh).__name__}: expected a device mesh of torch.distributed"
            )
        wrapped = cls.from_group(
            mesh.get_all_groups(), mesh.device_type, mesh.mesh, mesh.mesh_dim_names
        )
        wrapped._torch_mesh = mesh, mesh.get_all_groups()
        return wrapped

    def to_torch(self) -> TorchDeviceMesh:
        """Mesh of ``torch.distributed.device_mesh`` over the same groups, made once.

        Collective over the world if a group does not exist yet.

        Raises
        ------
        RuntimeError
            Without a process group, or on a rank outside the mesh.
        """
        groups = self.get_all_groups()
        if self._torch_mesh is None or self._torch_mesh[1] != groups:
            names = self.mesh_dim_names or tuple(f"dim{dim}" for dim in range(self.ndim))
            torch_mesh = TorchDeviceMesh.from_group(
                groups, self.device_type, mesh=self.mesh, mesh_dim_names=names
            )
            self._torch_mesh = torch_mesh, groups
        return self._torch_mesh[0]

    @property
    def mesh(self) -> Tensor:
        """Global ranks, an int64 tensor of the mesh's shape on the CPU."""
        ranks = torch.tensor(self._layout.ranks, dtype=torch.int64, device="cpu")
        return ranks.view(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of ranks along each dimension."""
        return self._layout.sizes

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def device(self) -> torch.device:
        """Device of this rank: ``cpu``, or the accelerator number ``LOCAL_RANK``."""
        return rank_device(self.device_type)

    def ndimension(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """Return the number of ranks."""
        return math.prod(self.shape)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Return the number of ranks, of the whole mesh or along one dimension."""
        return self.numel() if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def get_rank(self) -> int:
        """Global rank of this process, 0 without a process group."""
        return dist.get_rank() if dist.is_initialized() else 0

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Position of this rank in the mesh, None if it has none."""
        return self._layout.coordinate(self.get_rank())

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Position of this rank along a dimension, by default of the only one.

        Raises
        ------
        RuntimeError
            If the mesh has several dimensions and none is named, or the rank is outside.
        """
        dim = self._dim_or_only(mesh_dim)
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise self._outside()
        return coordinate[dim]

    def get_group(self, mesh_dim: int | str | None = None) -> dist.ProcessGroup:
        """Process group of this rank's line along a dimension, by default of the only one.

        Collective over the world on the first call of each dimension: every rank calls it, ranks
        outside the mesh included, and the groups of all lines are made. Its timeout is that of
        ``init_process_group``.

        Raises
        ------
        RuntimeError
            Without a process group; if the mesh has several dimensions and none is named; on a
            rank outside the mesh (after taking part).
        TypeError, KeyError, IndexError
            If `mesh_dim` is no index or name, an unknown name, or an index out of range.
        """
        group = self._root._registry.get(self._spans[self._dim_or_only(mesh_dim)])
        if group is None or self.get_coordinate() is None:
            raise self._outside()
        return group

    def get_all_groups(self) -> list[dist.ProcessGroup]:
        """Return one group per dimension. Collective as :meth:`get_group`."""
        return [self.get_group(dim) for dim in range(self.ndim)]

    def __getitem__(self, names: str | tuple[str, ...]) -> "DeviceMesh":
        """Sub-mesh through this rank along the named dimensions, in the order asked.

        Names of flattened dimensions of the root count too. A rank outside the mesh gets the
        first such sub-mesh, so that it can take part in making the groups.

        Raises
        ------
        RuntimeError
            If the mesh has no names.
        ValueError
            If no name is given, or names repeat or overlap.
        KeyError
            If the mesh has no such dimension.
        """
        own_names = self._names("it cannot be indexed")
        names = (names,) if isinstance(names, str) else tuple(names)
        if not names:
            raise ValueError(f"no dimension is selected: choose among {own_names}")
        if len(set(names)) != len(names):
            raise ValueError(f"the names {names} repeat: select each dimension once")
        if names == own_names:
            return self
        if len(names) == 1 and names[0] in self._root._flattened and names[0] not in own_names:
            return self._root._flattened[names[0]]
        return self._submesh(names, tuple(self._span(name) for name in names))

    def _flatten(
        self, name: str | None = None, backend_override: Backend | None = None
    ) -> "DeviceMesh":
        """1-D mesh over all ranks of this mesh, which the root then knows by name.

        Parameters
        ----------
        name
            Default: the names of the dimensions joined by ``_``.
        backend_override
            Backend of its group, by default that of the default group.

        Raises
        ------
        RuntimeError
            If the mesh has no names.
        ValueError
            If the root has a dimension of that name, or a flattened one of another layout, or
            the group has another backend already.
        """
        names = self._names("it cannot be flattened")
        name = "_".join(names) if name is None else name
        if names == (name,):
            return self
        root = self._root
        span = tuple(dim for span in self._spans for dim in span)
        if name in (root.mesh_dim_names or ()):
            raise ValueError(
                f"name = {name!r}: the root mesh {root!r} has a dimension of that name"
            )
        known = root._flattened.get(name)
        if known is None:
            known = root._flattened[name] = self._submesh((name,), (span,))
        elif known._spans != (span,):
            raise ValueError(
                f"name = {name!r} already stands for the root dimensions {known._spans[0]}, not "
                f"{span}: choose another name"
            )
        if backend_override is not None:
            root._registry.override(span, backend_override)
        return known

    @staticmethod
    def _concatenate(parts: "Sequence[DeviceMesh]") -> "DeviceMesh":
        """One mesh with the dimensions of all parts, which are sub-meshes of one root.

        Raises
        ------
        RuntimeError
            If a part has no names.
        ValueError
            If there is no part, the parts have different roots or device types, or a name or a
            root dimension comes twice.
        """
        if not parts:
            raise ValueError("parts is empty: give one mesh or more")
        names = [name for part in parts for name in part._names("it cannot be concatenated")]
        types = {part.device_type for part in parts}
        if len(types) > 1:
            raise ValueError(f"the parts have the device types {sorted(types)}: expected one")
        root = parts[0]._root
        if any(part._root is not root for part in parts):
            raise ValueError(f"the parts {list(parts)} are not all sub-meshes of one root mesh")
        if len(set(names)) != len(names):
            raise ValueError(f"the dimension names {names} of the parts repeat")
        return root._submesh(tuple(names), tuple(span for part in parts for span in part._spans))

    def __enter__(self) -> "DeviceMesh":
        """Make this the current mesh of the thread."""
        push(self)
        return self

    def __exit__(self, *exception: object) -> None:
        """Make the former mesh of the thread current again."""
        pop()

    def __eq__(self, other: object) -> bool:
        """Tell whether ranks, sizes, device type and names are the same."""
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        """Hash of ranks, sizes, device type and names."""
        return hash(self._key())

    def __repr__(self) -> str:
        """Sizes, with names where there are any, and the device type."""
        if self.mesh_dim_names is None:
            return f"DeviceMesh({self.shape}, {self.device_type!r})"
        sizes = (f"{n}={size}" for n, size in zip(self.mesh_dim_names, self.shape, strict=True))
        return f"DeviceMesh({', '.join(sizes)}, {self.device_type!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the groups; those are made again on first use."""
        return {**self.__dict__, "_torch_mesh": None}

    def _key(self) -> tuple[object, ...]:
        return self._layout, self.device_type, self.mesh_dim_names

    def _names(self, consequence: str) -> tuple[str, ...]:
        """Names of the dimensions, or an error with the consequence of having none."""
        if self.mesh_dim_names is None:
            raise RuntimeError(
                f"{self!r} has no mesh_dim_names: {consequence}; build it with names"
            )
        return self.mesh_dim_names

    def _dim(self, mesh_dim: int | str) -> int:
        """Index of a dimension from its index or name."""
        if isinstance(mesh_dim, bool) or not isinstance(mesh_dim, int | str):
            raise TypeError(
                f"mesh_dim = {mesh_dim!r} is a {type(mesh_dim).__name__}: expected a name or index"
            )
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"mesh_dim = {mesh_dim!r}: {self!r} has no such dimension")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"mesh_dim = {mesh_dim}: {self!r} has {self.ndim} dimensions")
        return mesh_dim % self.ndim

    def _dim_or_only(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is not None:
            return self._dim(mesh_dim)
        if self.ndim > 1:
            raise RuntimeError(f"{self!r} has {self.ndim} dimensions: name one with mesh_dim")
        return 0

    def _span(self, name: str) -> Span:
        """Root dimensions behind the name of a dimension or of a flattened one of the root."""
        if name in (self.mesh_dim_names or ()):
            return self._spans[self._dim(name)]
        if name in self._root._flattened:
            return self._root._flattened[name]._spans[0]
        raise KeyError(f"{name!r} is no dimension of {self!r}, nor a flattened one of its root")

    def _submesh(self, names: tuple[str, ...], spans: tuple[Span, ...]) -> "DeviceMesh":
        """Mesh through this rank along spans of the root."""
        root = self._root
        joint = [dim for span in spans for dim in span]
        if len(set(joint)) != len(joint):
            raise ValueError(f"the dimensions {names} share a dimension of the root {root!r}")
        if names == root.mesh_dim_names and spans == root._spans:
            return root
        layout = root._layout.through(self.get_rank(), spans)
        return DeviceMesh(
            root.device_type,
            mesh_dim_names=names,
            _rank_map=layout.ranks,
            _sizes=layout.sizes,
            _root_mesh=root,
            _root_dims=spans,
        )

    def _outside(self) -> RuntimeError:
        return RuntimeError(
            f"rank {self.get_rank()} is not in {self!r}, which holds the ranks "
            f"{list(self._layout.ranks)}"
        )


def _layout_from(
    mesh: object, rank_map: Iterable[int] | None, sizes: Iterable[int] | None
) -> Layout:
    """Layout from the one way it is given in."""
    internal = rank_map is not None and sizes is not None
    if (mesh is None) != internal or (rank_map is None) != (sizes is None):
        given = [
            name
            for name, value in [("mesh", mesh), ("_rank_map", rank_map), ("_sizes", sizes)]
            if value is not None
        ]
        raise TypeError(f"got {given or 'no ranks'}: pass mesh, or else both _rank_map and _sizes")
    if rank_map is None or sizes is None:
        return nested_layout(mesh)
    return Layout(rank_map, sizes)


def _check_names(names: Sequence[str] | None, ndim: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or any(not isinstance(name, str) for name in names):
        raise ValueError(f"mesh_dim_names = {names!r}: expected a tuple of strings")
    if len(names) != ndim:
        raise ValueError(f"mesh_dim_names = {names!r} has {len(names)} names for {ndim} dimensions")
    if len(set(names)) != len(names):
        raise ValueError(f"mesh_dim_names = {names!r} repeats a name")
    return tuple(names)
