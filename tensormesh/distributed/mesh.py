"""`DistributedMesh`: a mesh cut into parts, one a rank (or all of them in one process)."""

import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh as TorchDeviceMesh

from tensormesh.assemble.topology import (
    Redirected,
    Topology,
    Unknowns,
    present_unknowns,
)
from tensormesh.distributed.collectives import agree, all_gather_ints, all_reduce_sum
from tensormesh.distributed.device_mesh import DeviceMesh, as_device_mesh
from tensormesh.distributed.halo import Halo
from tensormesh.distributed.identity import draw_uuid
from tensormesh.distributed.index_map import IndexMap
from tensormesh.distributed.layout import MatrixLayout
from tensormesh.distributed.numbering import number_by_rank
from tensormesh.distributed.ownership import node_owners
from tensormesh.distributed.part import Part
from tensormesh.distributed.periodic import periodic_pairs
from tensormesh.distributed.plan import AssemblyPlan
from tensormesh.distributed.quality import PartitionQuality, measure
from tensormesh.distributed.vector_map import VectorMap
from tensormesh.mesh.mesh import Mesh
from tensormesh.mesh.partition import partition_cells
from tensormesh.mesh.partition.cells import warn_of_orphans
from tensormesh.mesh.submesh import extract_part, lower_cell_owners
from tensormesh.operator.rigid_modes import rigid_modes
from tensormesh.sparse.pattern import BlockExpansion

if TYPE_CHECKING:
    from pathlib import Path


class DistributedMesh:
    """Mesh cut into parts. **Making one is collective over its device mesh.**

    In an initialised job each rank has one part. In a single process all parts are here, and the
    same calls work; vectors are then global.

    Parameters
    ----------
    mesh
        The global mesh, the same on every rank, normally on the CPU.
    num_partitions
        Number of parts. Default: in a job, the number of ranks; else the number of CUDA devices, or
        2 without CUDA.
    method
        ``"coordinate"``: recursive bisection of cell centroids along the longest axis;
        ``"spectral"``: recursive, by the Fiedler vector of the cell dual graph; ``"metis"``.
    devices
        One per part. Default: the device of the rank; in a single process ``cuda:0, cuda:1, ...``
        where there are enough, else the CPU. In a single process, parts with devices of their own,
        or with given ones, are assembled in a thread each.
    device_mesh
        1-D mesh of the ranks, ours or torch's. Default: one mesh over the world, shared.
    weights
        Cost of each cell ``[n_cells]``, for ``"coordinate"`` and ``"metis"``.
    ownership
        Who owns a node of several parts: ``"lowest"``, the lowest of them; ``"balanced"``: each
        interface, the nodes with one set of parts, goes to the one of them that owns least so far.

    Raises
    ------
    TypeError
        On every rank: no mesh, one of half precision, weights that are no tensor.
    ValueError
        On every rank: unknown method, a number of parts below 1, above the number of cells or other
        than the number of ranks, a wrong number of devices, an unknown ownership, a mesh without
        cells, meshes that differ between ranks.

    Examples
    --------
    >>> import tensormesh as tm
    >>> dmesh = tm.DistributedMesh(tm.Mesh.gen_rectangle(chara_length=0.25), num_partitions=2)
    >>> len(dmesh), dmesh.n_global_points
    (2, 25)
    """

    def __init__(
        self,
        mesh: Mesh,
        num_partitions: int | None = None,
        method: str = "coordinate",
        devices: Sequence[torch.device | str] | None = None,
        *,
        device_mesh: DeviceMesh | TorchDeviceMesh | None = None,
        weights: Tensor | None = None,
        ownership: str = "lowest",
    ) -> None:
        # Whether this process is one rank of a job, with one part; else it has all parts.
        self.in_job = dist.is_initialized()
        self.device_mesh = as_device_mesh(device_mesh)
        if self.device_mesh.ndim != 1:
            raise ValueError(
                f"device_mesh = {self.device_mesh!r} is not 1-D: pass one of its dimensions, for "
                "instance device_mesh['domain']"
            )
        self.method = method
        with agree(self.device_mesh):
            if not isinstance(mesh, Mesh):
                raise TypeError(f"mesh must be a Mesh, got {type(mesh).__name__}")
            if mesh.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"mesh.points are {mesh.dtype}: take mesh.float() or mesh.double(), the sums "
                    "of an assembly need their digits"
                )
            if weights is not None and not isinstance(weights, Tensor):
                raise TypeError(f"weights must be a tensor, got {type(weights).__name__}")
            self.num_partitions = self._number_of_parts(num_partitions)
            self.devices = self._devices(devices)
            self.one_thread_a_part = devices is not None or len(set(self.devices)) > 1
            if 0 < mesh.n_elements < self.num_partitions:
                raise ValueError(
                    f"num_partitions = {self.num_partitions}, but the mesh has only "
                    f"{mesh.n_elements} cells: each part needs one"
                )
            labels = partition_cells(mesh, self.num_partitions, method, weights)
            owner = node_owners(mesh, labels, ownership)
        self._refuse_different_meshes(mesh, labels, owner)
        self._global_mesh = weakref.ref(mesh)
        self._weights = None if weights is None else weakref.ref(weights)
        self.n_global_points = mesh.n_points
        self.n_cells_by_type = {kind: c.shape[0] for kind, c in mesh.top_cells().items()}
        # Coordinates that require grad are sliced anew in each call, where their gradient starts.
        self._points = mesh.points if mesh.points.requires_grad else None
        self._cut_points = weakref.ref(mesh.points), mesh.points._version
        self.partition_uuid = draw_uuid(self.device_mesh)
        self.index_map, self.parts = self._cut(mesh, labels, owner)
        self._expansions: dict[Unknowns, BlockExpansion] = {}
        self._layouts: dict[Unknowns, MatrixLayout] = {}

    # -- construction ----------------------------------------------------------------------

    def _number_of_parts(self, given: Any) -> int:
        size = self.device_mesh.size()
        if given is None:
            return size if self.in_job else (torch.cuda.device_count() or 2)
        if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
            raise ValueError(f"num_partitions must be an integer >= 1, got {given!r}")
        given = int(given)
        if self.in_job and given != size:
            raise ValueError(
                f"num_partitions = {given}, but the device mesh has {size} ranks: leave it out, or "
                "start as many ranks as there are parts"
            )
        return given

    def _devices(self, given: Sequence[torch.device | str] | None) -> list[torch.device]:
        n = self.num_partitions
        if given is None:
            if not self.in_job and torch.cuda.device_count() >= n:
                return [torch.device("cuda", i) for i in range(n)]
            return [self.device_mesh.device] * n
        if isinstance(given, str) or len(given) != n:
            raise ValueError(f"devices = {given!r}: expected {n} of them, one a part")
        return [torch.device(d) for d in given]

    def _refuse_different_meshes(self, mesh: Mesh, labels: Tensor, owner: Tensor) -> None:
        contents = (mesh.points.detach(), *mesh.top_cells().values(), labels, owner)
        facts = [mesh.n_points, labels.numel(), self.num_partitions, *map(_checksum, contents)]
        facts.append(mesh.geometry_order or 0)
        digest = zlib.crc32(repr(facts).encode())
        table = all_gather_ints([mesh.n_points, labels.numel(), digest], self.device_mesh)
        if bool((table != table[0]).any()):
            raise ValueError(
                "mesh: the ranks have different meshes or cut them differently (points, cells, "
                f"checksum by rank: {table.tolist()}); every rank must pass the same mesh"
            )

    def _cut(self, mesh: Mesh, labels: Tensor, owner: Tensor) -> tuple[IndexMap, list[Part]]:
        rank = self.device_mesh.get_local_rank()
        numbers = [rank] if self.in_job else list(range(self.num_partitions))
        device = self.devices[numbers[0]]
        with agree(self.device_mesh):
            lower = lower_cell_owners(mesh)
            if rank == 0:
                warn_of_orphans(lower)
            meshes = [self._extract(mesh, labels, number, lower) for number in numbers]
        ids = [m.point_data["orig_nid"] for m in meshes]
        if self.in_job:
            here = ids[0].cpu()
            part_owner = owner[here]
            mine = _with_orphans(here[part_owner == rank], (owner == rank).nonzero().flatten())
            ghosts, ghost_owner = here[part_owner != rank], part_owner[part_owner != rank]
        else:
            mine = torch.arange(mesh.n_points, device=owner.device)
            ghosts = ghost_owner = mine[:0]
        index_map = number_by_rank(
            mine.to(device), ghosts.to(device), ghost_owner.to(device), self.device_mesh
        )
        parts = [
            Part(n, m, owner[i.cpu()].to(i.device), index_map.local(i.to(device)))
            for n, m, i in zip(numbers, meshes, ids, strict=True)
        ]
        return index_map, parts

    def _extract(self, mesh: Mesh, labels: Tensor, number: int, lower: dict[str, Tensor]) -> Mesh:
        # Where one process has everything, owned slices are global vectors, in the mesh's order.
        numbering = "local" if self.in_job and self.num_partitions > 1 else "increasing"
        part = extract_part(mesh, labels, number, lower, numbering)
        if part.points.requires_grad:
            part.points = part.points.detach()
        return part.to(self.devices[number])

    # -- facts -----------------------------------------------------------------------------

    @property
    def submeshes(self) -> Sequence[Mesh]:
        """The parts, by number; in a job those of other ranks are cut out of the global mesh."""
        return _Submeshes(self)

    def __len__(self) -> int:
        return self.num_partitions

    def __getitem__(self, number: int) -> Mesh:
        return self.submeshes[number]

    def __repr__(self) -> str:
        sizes = ", ".join(
            f"part {part.number}: {part.mesh.n_elements} cells, {part.mesh.n_points} points "
            f"on {part.mesh.device}"
            for part in self.parts
        )
        return (
            f"DistributedMesh({self.num_partitions} parts by {self.method!r}, "
            f"{self.n_global_points} points, {sum(self.n_cells_by_type.values())} cells; {sizes})"
        )

    @property
    def device(self) -> torch.device:
        """Device of this process's rows and vectors."""
        return self.index_map.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the coordinates."""
        return self.parts[0].mesh.dtype

    @cached_property
    def boundary_mask(self) -> Tensor:
        """Nodes on the physical boundary, never the interface between parts, bool.

        In a job for this rank's part ``[n_part]``, in a single process for all nodes.
        """
        if self.in_job:
            mask: Tensor = self.parts[0].mesh.point_data["is_boundary"]
            return mask
        mask = torch.zeros(self.n_global_points, dtype=torch.bool, device=self.device)
        for part in self.parts:
            mask[part.node_ids.to(self.device)] = part.mesh.point_data["is_boundary"].to(
                self.device
            )
        return mask

    def quality(self) -> PartitionQuality:
        """Sizes of all parts. **Collective.**"""
        return measure(self.parts, self.num_partitions, self.device_mesh)

    # -- vectors ---------------------------------------------------------------------------

    @cached_property
    def vectors(self) -> VectorMap:
        """Numbering and motions of nodal vectors. **Collective at first use.**"""
        to_local = self.parts[0].to_local if self.in_job else None
        halo = Halo(self.index_map, self.device_mesh)
        return VectorMap(self.index_map, halo, self.device_mesh, self.n_global_points, to_local)

    @property
    def halo(self) -> Halo:
        """Halo of the nodes of this process's cells. **Collective at first use.**"""
        return self.vectors.halo

    def gather(self, owned: Tensor) -> Tensor:
        """Global vector in the input's numbering on every rank. **Collective.**"""
        return self.vectors.gather(owned)

    def scatter(self, vector: Tensor) -> Tensor:
        """Owned slice of a global vector that every rank has. **Collective.**"""
        return self.vectors.scatter(vector)

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        """Inner product of owned slices over all ranks. **Collective.**"""
        return self.vectors.dot(x, y)

    def norm(self, x: Tensor) -> Tensor:
        """Euclidean norm of owned slices over all ranks. **Collective.**"""
        return self.vectors.norm(x)

    def sum(self, x: Tensor) -> Tensor:
        """Sum of owned slices over all ranks. **Collective.**"""
        return self.vectors.sum(x)

    def mean(self, x: Tensor) -> Tensor:
        """Mean of owned slices over all ranks. **Collective.**"""
        return self.vectors.mean(x)

    def rigid_modes(self) -> Tensor:
        """Rigid motions of the whole body, owned slices ``[n_owned * D, 3 or 6]``. **Collective.**

        As `tensormesh.operator.rigid_modes`; ``condenser.restrict`` leaves out what is held.
        """
        points, _ = self._owned_points()
        return rigid_modes(points, partial(all_reduce_sum, device_mesh=self.device_mesh))

    def periodic_pairs(
        self, translations: Tensor, tolerance: float = 1e-8
    ) -> tuple[Tensor, Tensor]:
        """Nodes that are images of others, each pair where its slave is owned. **Collective.**

        As `tensormesh.operator.periodic_pairs`, which takes this mesh in place of points.
        """
        points, in_cells = self._owned_points()
        own = in_cells.nonzero().flatten()
        given = translations, tolerance
        number = own + self.index_map.first
        return periodic_pairs(points[own], number, self.index_map, self.device_mesh, given)

    def _owned_points(self) -> tuple[Tensor, Tensor]:
        """Coordinates of owned nodes ``[n_owned, dim]``, and which of them cells use."""
        shape = self.index_map.n_local, self.parts[0].mesh.dim
        local = torch.zeros(shape, dtype=self.dtype, device=self.device)
        in_cells = torch.zeros(shape[0], dtype=torch.bool, device=self.device)
        for part in self.parts:
            local[part.to_local] = part.mesh.points.detach().to(self.device)
            in_cells[part.to_local] = True
        n_owned = self.index_map.n_owned
        return local[:n_owned], in_cells[:n_owned]

    def part_values(self, owned: Tensor) -> list[Tensor]:
        """Values at the nodes of each part of this process, ghosts included. **Collective.**

        Parameters
        ----------
        owned
            Owned slice ``[n_owned * h]`` or ``[n_owned, ...]`` of nodal values.

        Returns
        -------
        list of Tensor
            ``[n_part, h]`` (or ``[n_part]`` for ``h = 1``), ``[n_part, ...]`` each, in the order of
            the part's nodes.
        """
        local = self.halo.scatter_forward(self.vectors.by_node(owned))
        return [local[part.to_local] for part in self.parts]

    # -- matrices --------------------------------------------------------------------------

    @cached_property
    def plan(self) -> AssemblyPlan:
        """Where contributions go; made once. **Collective at first use.**"""
        patterns = [Topology.of(part.mesh).pattern for part in self.parts]
        return AssemblyPlan(
            patterns, [part.to_local for part in self.parts], self.index_map, self.device_mesh
        )

    @cached_property
    def routed(self) -> Redirected | None:
        """Cells of the only part of this process, which add where `plan` says; None if several."""
        plan = self.plan
        if len(self.parts) > 1:
            return None
        cells = Topology.of(self.parts[0].mesh).connectivity
        slots = {kind: plan.redirect(x) for kind, x in cells.hand_over_pairs()[1].items()}
        return Redirected(cells, slots, plan.n_places)

    def expansion(self, unknowns: Unknowns) -> BlockExpansion:
        """How blocks of the plan become scalar entries; made once each. **Collective.**"""
        if unknowns not in self._expansions:
            if isinstance(unknowns, int):
                made = self.plan.expansion(unknowns)
            else:
                present = present_unknowns(unknowns, self._owned_carriers)
                made = self.plan.expansion(len(unknowns), present)
            self._expansions[unknowns] = made
        return self._expansions[unknowns]

    def _owned_carriers(self, order: int) -> Tensor:
        """Which nodes that this process owns carry fields of an order, bool ``[n_owned]``."""
        local = torch.zeros(self.index_map.n_local, dtype=torch.bool, device=self.device)
        for part in self.parts:
            here = Topology.of(part.mesh).carriers(order).to(self.device)
            local[part.to_local[here]] = True
        return local[: self.index_map.n_owned]

    def layout(self, unknowns: Unknowns) -> MatrixLayout:
        """Layout of the matrices with such unknowns; made once each. **Collective.**

        Parameters
        ----------
        unknowns
            How many a node has, or for each of them the order of its field.
        """
        if unknowns not in self._layouts:
            plan, expansion = self.plan, self.expansion(unknowns)
            self._layouts[unknowns] = MatrixLayout(
                expansion.scalar,
                plan.matrix_map,
                plan.halo,
                self.vectors,
                expansion.h,
                self.partition_uuid,
            )
        return self._layouts[unknowns]

    # -- output ----------------------------------------------------------------------------

    def write(self, path: "str | Path", point_data: Mapping[str, Tensor] | None = None) -> "Path":
        """Write a VTU a part and one PVTU over them; see `write_pvtu`. **Collective.**"""
        from tensormesh.distributed.io import write_pvtu

        return write_pvtu(self, path, point_data)

    def plot(self, path: "str | Path | None" = None, *, explode: float = 0.0) -> Any:
        """Draw the parts; see `plot_partition`. **Collective.**"""
        from tensormesh.distributed.plot import plot_partition

        return plot_partition(self, path, explode=explode)

    def moved_points(self, given: Tensor | None) -> Tensor | None:
        """Coordinates that the next assembly must use instead of those of the parts.

        Raises
        ------
        ValueError
            If the global mesh was changed after it was cut, which the parts do not know of.
        """
        if given is not None:
            return given
        mesh = self._global_mesh()
        if self._points is not None or mesh is None:
            return self._points
        cut, version = self._cut_points
        if mesh.points is not cut() or mesh.points._version != version:
            raise ValueError(
                "the points of the global mesh were changed after it was cut: pass them as "
                "points=, or build the DistributedMesh again"
            )
        return None


def _with_orphans(in_part: Tensor, owned: Tensor) -> Tensor:
    """Owned nodes in the order of the part, then those of its points that no cell uses."""
    if len(in_part) == len(owned):
        return in_part
    return torch.cat([in_part, owned[~torch.isin(owned, in_part)]])


def _checksum(x: Tensor) -> int:
    content: Any = x.cpu().contiguous().numpy()
    return zlib.crc32(content)


class _Submeshes(Sequence[Mesh]):
    """Parts by number; those of other ranks are extracted on demand."""

    def __init__(self, dmesh: DistributedMesh) -> None:
        self._dmesh = dmesh
        self._here = {part.number: part.mesh for part in dmesh.parts}

    def __len__(self) -> int:
        return self._dmesh.num_partitions

    def __iter__(self) -> Iterator[Mesh]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no part {number}: the mesh has {len(self)}")
        number %= len(self)
        if number in self._here:
            return self._here[number]
        dmesh = self._dmesh
        mesh = dmesh._global_mesh()
        if mesh is None:
            raise RuntimeError(
                f"part {number} belongs to another rank, and the global mesh that it could be cut "
                "out of is gone: keep a reference to it"
            )
        weights = None if dmesh._weights is None else dmesh._weights()
        if dmesh._weights is not None and weights is None:
            raise RuntimeError(
                f"part {number} belongs to another rank, and the weights that it was cut by are "
                "gone: keep a reference to them"
            )
        labels = partition_cells(mesh, dmesh.num_partitions, dmesh.method, weights)
        return dmesh._extract(mesh, labels, number, lower_cell_owners(mesh))
