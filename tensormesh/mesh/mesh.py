"""The mesh: points, cells by type, and data on both, as a torch module."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Self

import meshio
import torch
from torch import Tensor, nn

from tensormesh.element.cell_type import cell_type
from tensormesh.mesh.adjacency import element_adjacency, node_adjacency
from tensormesh.mesh.arrays import ByType, MeshArrays, check_arrays, check_length
from tensormesh.mesh.buffers import BufferDict, BufferDicts, shape_text
from tensormesh.mesh.convert import arrays_from_meshio, arrays_to_meshio
from tensormesh.mesh.facets import FacetSet, boundary_facets, facet_nodes_mask
from tensormesh.mesh.generator_methods import GeneratorMethods
from tensormesh.mesh.io import read_meshio, write_meshio
from tensormesh.mesh.node_order import check_node_ordering
from tensormesh.mesh.raised import raised_arrays, raised_facets, raised_names
from tensormesh.sparse import SparseMatrix

Path = str | PathLike[str]


class Mesh(GeneratorMethods, nn.Module):
    """An unstructured mesh of one or several cell types.

    Cells are in the node order of mesh files (VTK's, hence meshio's), always. Cells of lower
    dimension than the highest, for instance boundary lines, stay in `cells`; what is integrated are
    the *top cells*, those of the highest dimension present. Cells are numbered through the top
    types in the order in which these appear.

    As a module it moves with ``to``, ``float`` and ``double``, in place. The connectivity must not
    be written to in place; replacing a whole block by another is fine.

    Parameters
    ----------
    mesh
        A `meshio.Mesh`, which is not written to and shares no memory afterwards. Several blocks of
        one type are merged in order. If all cells lie in a plane of constant last coordinate that
        they do not need (a 2-D file with a column z = 0), the coordinate is dropped. For tensors,
        see `from_arrays`.
    reorder
        Accepted for compatibility; changes nothing.

    Attributes
    ----------
    points
        (n, D), may be replaced.
    cells
        Type: int64 (E, B), all dimensions.
    point_data
        Name: (n, ...).
    cell_data
        Name: type: (E, ...).
    field_data
        Name: tensor.
    cell_sets
        Group: type: int64 indices into the cells of that type. Physical groups of gmsh are here.
    geometry_order
        1: the geometry of a cell is that of a first-order cell with its vertices, whatever its
        order; its other nodes carry fields only. `raised` makes such meshes. None: all nodes of a
        cell make its geometry.

    Raises
    ------
    ValueError
        If a shape does not fit, a coordinate is not finite, a cell names a point that does not
        exist or one point twice, or most cells of a type are in a foreign node order.
    KeyError
        If a cell type is not supported.
    """

    cut: ClassVar[Callable[..., Any]]
    """Makes what `partition` gives. `tensormesh.distributed` sets it: no rank is known here."""

    points: Tensor
    cells: BufferDict
    point_data: BufferDict
    cell_data: BufferDicts
    field_data: BufferDict
    cell_sets: dict[str, ByType]
    geometry_order: int | None

    def __init__(self, mesh: meshio.Mesh | MeshArrays, reorder: bool = False) -> None:
        super().__init__()
        foreign = not isinstance(mesh, MeshArrays)
        arrays = arrays_from_meshio(mesh) if foreign else mesh
        check_arrays(arrays)
        self.register_buffer("points", arrays.points)
        self.cells = BufferDict(arrays.cells)
        self.point_data = BufferDict(arrays.point_data)
        self.cell_data = BufferDicts()
        for name, by_type in arrays.cell_data.items():
            self.cell_data[name] = BufferDict(by_type)
        self.field_data = BufferDict(arrays.field_data)
        self.cell_sets = {name: dict(by_type) for name, by_type in arrays.cell_sets.items()}
        self.geometry_order = arrays.geometry_order
        self._given_boundary: FacetSet | Callable[[Mesh], FacetSet] | None = None
        self._found_boundary: tuple[list[Tensor], FacetSet] | None = None
        if foreign:
            self.check_node_ordering()

    @classmethod
    def from_arrays(
        cls,
        points: Tensor,
        cells: Mapping[str, Tensor],
        point_data: Mapping[str, Tensor] | None = None,
        cell_data: Mapping[str, Mapping[str, Tensor]] | None = None,
        cell_sets: Mapping[str, Mapping[str, Tensor]] | None = None,
        field_data: Mapping[str, Tensor] | None = None,
        geometry_order: int | None = None,
    ) -> Self:
        """Make a mesh of tensors, which are kept by reference where dtype and device fit.

        Parameters
        ----------
        points
            (n, D), all D coordinates are kept. Integers become float64. Its device is the mesh's.
        cells
            Type: (E, B), integers, in file node order.
        point_data
            Name: (n, ...).
        cell_data
            Name: type: (E, ...).
        cell_sets
            Group: type: indices into the cells of that type.
        field_data
            Name: any tensor.
        geometry_order
            1 for straight cells whose vertices alone make their geometry, None for cells all of
            whose nodes do.

        Raises
        ------
        ValueError, KeyError
            As the constructor.
        TypeError
            If points or cells are no tensors, points are complex, or indices no integers.

        Examples
        --------
        >>> points = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> Mesh.from_arrays(points, {"triangle": torch.tensor([[0, 1, 2]])}).n_elements
        1
        """
        if not isinstance(points, Tensor) or points.is_complex():
            kind = points.dtype if isinstance(points, Tensor) else type(points).__name__
            raise TypeError(f"points must be a real tensor, got {kind}.")
        points = points if points.is_floating_point() else points.double()
        device = points.device
        return cls(
            MeshArrays(
                points,
                _indices(cells, device),
                _moved(point_data, device),
                {name: _moved(of, device) for name, of in (cell_data or {}).items()},
                _moved(field_data, device),
                {name: _indices(of, device) for name, of in (cell_sets or {}).items()},
                geometry_order,
            )
        )

    @classmethod
    def from_meshio(cls, mesh: meshio.Mesh, reorder: bool = False) -> Self:
        """Make a mesh of a `meshio.Mesh`; see the constructor."""
        return cls(mesh, reorder=reorder)

    @classmethod
    def read(cls, file_name: Path, file_format: str | None = None, reorder: bool = False) -> Self:
        """Read a file through meshio.

        Parameters
        ----------
        file_name
            Path of the file.
        file_format
            meshio's name of the format, None to tell by the file.
        reorder
            Accepted for compatibility; changes nothing.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it cannot be read, or is no mesh; see the constructor.
        """
        return cls(read_meshio(file_name, file_format), reorder=reorder)

    from_file = read

    def to_meshio(self, reorder: bool = False) -> meshio.Mesh:
        """Copy to a `meshio.Mesh`, one block a type; `reorder` changes nothing."""
        return arrays_to_meshio(self.arrays())

    def save(self, file_name: Path, file_format: str | None = None) -> Self:
        """Write a file through meshio; see `tensormesh.mesh.io.write_meshio` for what is kept.

        Raises
        ------
        ValueError
            If the format is unknown or cannot hold the mesh.
        """
        write_meshio(self.arrays(), file_name, file_format)
        return self

    to_file = save

    def arrays(self) -> MeshArrays:
        """Contents as plain dictionaries; the tensors are the mesh's own."""
        return MeshArrays(
            self.points,
            self.cells.to_dict(),
            self.point_data.to_dict(),
            {name: self.cell_data[name].to_dict() for name in self.cell_data},
            self.field_data.to_dict(),
            {name: dict(by_type) for name, by_type in self.cell_sets.items()},
            self.geometry_order,
        )

    def clone(self) -> Self:
        """Copy everything; gradients flow back to the tensors of this mesh."""
        own = self.arrays()
        copy = type(self)(
            MeshArrays(
                own.points.clone(),
                _cloned(own.cells),
                _cloned(own.point_data),
                {name: _cloned(by_type) for name, by_type in own.cell_data.items()},
                _cloned(own.field_data),
                {name: _cloned(by_type) for name, by_type in own.cell_sets.items()},
                own.geometry_order,
            )
        )
        copy._given_boundary = self._given_boundary
        return copy

    def raised(self, order: int) -> Self:
        """Mesh of the same cells and geometry with the nodes of a higher order, for fields of it.

        Nodes are shared between the cells that meet in them, of whatever types and dimensions.
        Those of this mesh come first, with the numbers that they have; only from order 2 to 3 and
        from 3 to 4, where the new cells lack old nodes inside edges, these are left out. From a
        mesh of order 1 the result is *subparametric*: its `geometry_order` is 1, its cells stay
        straight, and affine simplices have one Jacobian each. Coordinates of nodes other than
        vertices, also those that an assembler is given as ``points=``, then have no influence and
        no gradient. Files do not keep `geometry_order`. From a mesh of order 2 or more it is
        isoparametric, with the same curved cells.

        Point data are interpolated by the basis of this mesh and have gradients. Of masks and
        integers, a new node has the value that all nodes of its edge, face or cell have, else False
        or 0. A mask of nodes on the boundary, ``is_boundary`` for instance, marks no new node
        inside: an edge from boundary to boundary may cross the mesh. Data of cells and fields and
        groups are kept.

        Parameters
        ----------
        order
            1 to 4, pyramids to 2, and not below the order of the cells.

        Returns
        -------
        Mesh
            A new mesh. Cell types are those of `order`, for instance ``"tetra10"``.

        Raises
        ------
        ValueError
            If `order` is none of these for a type, with its name; if cells have several orders.

        Examples
        --------
        >>> mesh = Mesh.gen_rectangle(n=(2, 2))
        >>> mesh.raised(3).points.shape, mesh.raised(3).default_element_type
        (torch.Size([49, 2]), 'triangle10')
        """
        made = type(self)(raised_arrays(self, order))
        if self._given_boundary is not None:
            names = raised_names(self, order)
            made._set_boundary_facets(raised_facets(self.boundary_facets(), names))
        return made

    @property
    def n_points(self) -> int:
        """Number of points, orphans included."""
        return len(self.points)

    @property
    def n_elements(self) -> int:
        """Number of top cells."""
        return sum(len(cells) for cells in self.top_cells().values())

    @property
    def dim(self) -> int:
        """Number of coordinates of a point."""
        return self.points.shape[1]

    @property
    def tdim(self) -> int:
        """Dimension of the top cells, -1 without cells."""
        return max(self.dim2eletyp, default=-1)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the points."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """Device of the points."""
        return self.points.device

    @property
    def dim2eletyp(self) -> dict[int, list[str]]:
        """Dimension: names of the cell types of that dimension, in order of appearance."""
        types: dict[int, list[str]] = {}
        for kind in self.cells:
            types.setdefault(cell_type(kind).dim, []).append(kind)
        return types

    @property
    def default_element_type(self) -> str | list[str]:
        """Name of the top cell type, a list of names unless there is exactly one."""
        kinds = list(self.top_cells())
        return kinds[0] if len(kinds) == 1 else kinds

    default_eletyp = default_element_type

    @property
    def used_points(self) -> Tensor:
        """(n,), bool: the nodes of top cells."""
        used = torch.zeros(self.n_points, dtype=torch.bool, device=self.device)
        for cells in self.top_cells().values():
            used[cells] = True
        return used

    @property
    def boundary_mask(self) -> Tensor:
        """(n,), bool: point data ``is_boundary`` or ``boundary_mask``, else by topology.

        In the latter case it is kept as point data ``is_boundary``.
        """
        for name in ("is_boundary", "boundary_mask"):
            if name in self.point_data:
                return self.point_data[name]
        self.point_data["is_boundary"] = self.topological_boundary_mask()
        return self.point_data["is_boundary"]

    def top_cells(self) -> dict[str, Tensor]:
        """Cells of the highest dimension present, {type: (E, B)} in order of appearance."""
        return {kind: self.cells[kind] for kind in self.dim2eletyp.get(self.tdim, [])}

    def elements(
        self, sel: str | list[str] | int | None = None
    ) -> Tensor | dict[str, Tensor] | BufferDict:
        """Choose cells.

        Parameters
        ----------
        sel
            None: the top cells, a tensor if they have one type, else a dictionary. A type: its
            tensor. A list of types: a dictionary. A dimension: the dictionary of that dimension,
            -1 for the top one. ``"all"``: `cells`.

        Raises
        ------
        KeyError
            If the mesh has no cells of a type.
        TypeError
            If `sel` is something else.
        """
        if sel is None:
            top = self.top_cells()
            return next(iter(top.values())) if len(top) == 1 else top
        if isinstance(sel, str):
            return self.cells if sel == "all" else self.cells[sel]
        if isinstance(sel, list):
            return {kind: self.cells[kind] for kind in sel}
        if isinstance(sel, int):
            dim = self.tdim if sel == -1 else sel
            return {kind: self.cells[kind] for kind in self.dim2eletyp.get(dim, [])}
        raise TypeError(f"sel must be None, a type, a list of types or a dimension, got {sel!r}.")

    def group(self, name: str, dim: int | None = None) -> ByType:
        """Cells of group `name`, {type: int64 indices into the cells of that type}.

        Parameters
        ----------
        name
            A key of `cell_sets`, for instance a physical group of gmsh. One without a name is
            called by its number.
        dim
            Only types of that dimension; None for all.

        Raises
        ------
        KeyError
            If there is no such group, with those that there are.
        """
        if name not in self.cell_sets:
            known = ", ".join(repr(group) for group in self.cell_sets) or "none"
            raise KeyError(f"missing physical group {name!r}; available groups: {known}")
        chosen = self.cell_sets[name]
        if dim is None:
            return dict(chosen)
        of_dim = {kind: index for kind, index in chosen.items() if cell_type(kind).dim == dim}
        if not of_dim:
            raise KeyError(f"physical group {name!r} has no cells of dimension {dim}: {chosen}")
        return of_dim

    def register_point_data(self, key: str, value: Tensor) -> Self:
        """Add point data `value` (n, ...) under the new name `key`.

        Raises
        ------
        ValueError
            If `key` is there already, or the first axis is not n.
        """
        self._check_new(key, self.point_data)
        check_length(f"point data {key!r}", value, self.n_points)
        self.point_data[key] = value.to(self.device)
        return self

    def register_element_data(self, key: str, value: Tensor | Mapping[str, Tensor]) -> Self:
        """Add cell data under the new name `key`.

        Parameters
        ----------
        key
            Name.
        value
            (n_elements, ...), in the order of the top cells, or type: (E, ...) of any types.

        Raises
        ------
        ValueError
            If `key` is there already, or a first axis does not fit.
        KeyError
            If the mesh has no cells of a type.
        """
        self._check_new(key, self.cell_data)
        if isinstance(value, Tensor):
            check_length(f"element data {key!r}", value, self.n_elements)
            top = self.top_cells()
            sizes = [len(cells) for cells in top.values()]
            value = dict(zip(top, value.split(sizes), strict=True))
        for kind, data in value.items():
            check_length(f"element data {key!r} on {kind!r}", data, len(self.cells[kind]))
        self.cell_data[key] = BufferDict(_moved(value, self.device))
        return self

    def boundary_facets(self) -> FacetSet:
        """Facets that exactly one top cell has, or those given for a part of a larger mesh.

        Raises
        ------
        ValueError
            If the mesh has no cells.
        """
        if self._given_boundary is not None:
            if not isinstance(self._given_boundary, FacetSet):
                self._given_boundary = self._given_boundary(self)
            return self._given_boundary.to(self.device)
        cells = list(self.top_cells().values())
        if self._found_boundary is None or not _same(cells, self._found_boundary[0]):
            self._found_boundary = (cells, boundary_facets(self))
        return self._found_boundary[1]

    def topological_boundary_mask(self) -> Tensor:
        """(n,), bool: nodes on `boundary_facets`, the mid-nodes of edges and faces included."""
        return facet_nodes_mask(self, self.boundary_facets())

    def node_adjacency(self, element_type: str | None = None) -> SparseMatrix:
        """Nodes that share a cell; see `tensormesh.mesh.adjacency.node_adjacency`."""
        return node_adjacency(self, element_type)

    def element_adjacency(self, element_type: str | None = None) -> SparseMatrix:
        """Cells that share a facet; see `tensormesh.mesh.adjacency.element_adjacency`."""
        return element_adjacency(self, element_type)

    def color(self, element_type: str | None = None) -> Tensor:
        """Colour the cells so that cells that share a facet differ, always in the same way.

        Parameters
        ----------
        element_type
            Only the cells of that type; None: the top cells.

        Returns
        -------
        Tensor
            (n_elements,), int64: 0, 1, ...

        Raises
        ------
        KeyError
            If the mesh has no cells of that type.
        """
        from tensormesh.mesh.coloring import graph_coloring

        return graph_coloring(element_adjacency(self, element_type)).to(self.device)

    def partition(
        self,
        num_parts: int | None = None,
        method: str = "coordinate",
        devices: Sequence[torch.device | str] | None = None,
    ) -> Any:
        """Cut into parts: the same as `tensormesh.DistributedMesh` of this mesh.

        Parameters
        ----------
        num_parts, method, devices
            As for `DistributedMesh`.

        Returns
        -------
        DistributedMesh
            The parts; **making it is collective** in a job.
        """
        return type(self).cut(self, num_parts, method, devices)

    def plot(
        self,
        values: Any = None,
        save_path: Path | None = None,
        dt: float | None = None,
        show_mesh: bool = False,
        fix_clim: bool = False,
        show: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Draw the mesh, or values at its nodes; see `tensormesh.visualization.plot_mesh`."""
        from tensormesh.visualization.plot import plot_mesh

        return plot_mesh(self, values, save_path, dt, show_mesh, fix_clim, show, **kwargs)

    def check_node_ordering(self, raise_on_error: bool = True) -> dict[str, int]:
        """Count cells of order 2 or more with nodes of edges that are not near their places.

        Parameters
        ----------
        raise_on_error
            Raise, or warn for few, instead of only counting.

        Returns
        -------
        dict
            Type of order 2 or more: number of such cells.

        Raises
        ------
        ValueError
            If at least half of the cells of a type are like that: they are in another node order.
        """
        return check_node_ordering(self.points, self.cells.to_dict(), raise_on_error)

    def _set_boundary_facets(self, facets: FacetSet | Callable[["Mesh"], FacetSet]) -> None:
        """State the boundary of a part of a larger mesh, whose cuts are no boundary, or its rule.

        A rule is followed when the boundary is first asked for.
        """
        self._given_boundary = facets

    def _check_new(self, key: str, data: BufferDict | BufferDicts) -> None:
        if key in data:
            raise ValueError(f"There is data {key!r} already; assign to it to replace it.")

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        for by_type in self.cell_sets.values():
            by_type.update({kind: fn(index) for kind, index in by_type.items()})
        return self

    def __repr__(self) -> str:
        lines = [f"points: {shape_text(self.points)}"]
        for name in ("cells", "point_data", "field_data"):
            lines += [f"{name} {key}: {shape_text(t)}" for key, t in getattr(self, name).items()]
        for name in self.cell_data:
            of = self.cell_data[name]
            lines += [f"cell_data {name} {kind}: {shape_text(t)}" for kind, t in of.items()]
        for name, by_type in self.cell_sets.items():
            lines += [f"cell_sets {name} {kind}: {len(index)}" for kind, index in by_type.items()]
        return "\n  ".join([f"{type(self).__name__}(", *lines]) + "\n)"


def _same(cells: list[Tensor], others: list[Tensor]) -> bool:
    return len(cells) == len(others) and all(a is b for a, b in zip(cells, others, strict=True))


def _indices(tensors: Mapping[str, Tensor] | None, device: torch.device) -> ByType:
    for kind, index in (tensors or {}).items():
        if not isinstance(index, Tensor):
            raise TypeError(f"Indices on {kind!r} must be a tensor, got {type(index).__name__}.")
        if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
            raise TypeError(f"Indices on {kind!r} must be integers, got {index.dtype}.")
    return {k: t.to(device, torch.int64) for k, t in (tensors or {}).items()}


def _moved(tensors: Mapping[str, Tensor] | None, device: torch.device) -> ByType:
    return {name: tensor.to(device) for name, tensor in (tensors or {}).items()}


def _cloned(tensors: ByType) -> ByType:
    return {name: tensor.clone() for name, tensor in tensors.items()}
