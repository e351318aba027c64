"""What the element, node and facet assemblers have in common: set-up, data, evaluation."""

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from tensormesh.assemble.form import CellValues, Form, FormData, promote
from tensormesh.assemble.geometry import CellGeometry, Tabulation
from tensormesh.assemble.integrand import check_linear
from tensormesh.assemble.per_point import PerQuadraturePoint
from tensormesh.assemble.sampling import cells_last, gradient, interpolate
from tensormesh.assemble.separable import Separable, separate
from tensormesh.assemble.short_cut import ShortCut
from tensormesh.assemble.topology import Topology, Unknowns
from tensormesh.assemble.transformation import Transformation
from tensormesh.assemble.workspace import BlockGeometry, Workspace
from tensormesh.sparse.matrix import SparseMatrix

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh

_N_PROBES = 4

ElementData = Mapping[str, CellValues | Mapping[str, CellValues]]
Coefficients = Callable[[Form, Mapping[str, Tensor], int, Tensor], Tensor]
Contraction = Callable[[Form, Tensor, CellGeometry, Tabulation], Tensor]


class Assembler(nn.Module):
    """A weak form on the cells of a mesh. Use `from_mesh` of one of the subclasses.

    A subclass defines ``forward`` at one quadrature point, whose arguments are matched by name,
    and may define ``__post_init__`` for parameters.
    """

    _topology: Topology
    quadrature_order: int

    def __init__(self, topology: Topology, quadrature_order: int = 2) -> None:
        super().__init__()
        self._topology = topology
        self.quadrature_order = _checked_order(quadrature_order)
        self._workspace = Workspace(self.quadrature_order, topology.geometry_order)

    @classmethod
    def from_mesh(
        cls,
        mesh: "Mesh",
        quadrature_order: int = 2,
        project: str = "reduce",
        *args: Any,
        **kwargs: Any,
    ) -> Self:
        """Assembler on the top-dimension cells of `mesh`.

        Parameters
        ----------
        mesh
            The mesh; its coordinates are shared, not copied.
        quadrature_order
            Least degree of exactness; raised to twice the order of the cells where that is more.
        project
            ``"reduce"`` or ``"sparse"``; both give the same result.
        *args, **kwargs
            Passed to ``__post_init__``.

        Raises
        ------
        ValueError
            If the mesh has no cells, or an argument has an unknown value.
        TypeError
            If ``__post_init__`` does not take `args` and `kwargs`.
        """
        check_project(project)
        return cls._create(Topology.of(mesh), quadrature_order, args, kwargs)

    @classmethod
    def from_assembler(cls, other: "Assembler", *args: Any, **kwargs: Any) -> Self:
        """Assembler with the topology, geometry and quadrature of `other`.

        Raises
        ------
        TypeError
            If `other` is of another family (element, node, facet).
        """
        family = next(c for c in cls.__mro__ if "_family" in vars(c))
        if not isinstance(other, family):
            raise TypeError(
                f"{cls.__name__}.from_assembler needs a {family.__name__}, got {other!r}"
            )
        made = cls._create(other._topology, other.quadrature_order, args, kwargs, source=other)
        made._workspace = other._workspace
        return made

    @classmethod
    def _create(
        cls,
        topology: Topology,
        quadrature_order: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        source: "Assembler | None" = None,
    ) -> Self:
        made = cls._bare(topology, quadrature_order)
        made._adopt(source)
        made.__post_init__(*args, **kwargs)
        return made

    @classmethod
    def _bare(cls, topology: Topology, quadrature_order: int) -> Self:
        """Assembler before ``__post_init__``."""
        made = cls.__new__(cls)
        Assembler.__init__(made, topology, quadrature_order)
        return made

    def _on(self, mesh: "Mesh") -> Self:
        """Give the same form on another mesh, its parameters shared, not copied."""
        made = _shallow(self)
        Assembler._rebase(made, Topology.of(mesh))
        return made

    def _rebase(self, topology: Topology) -> None:
        self._topology = topology
        self._workspace = Workspace(self.quadrature_order, topology.geometry_order)

    def _adopt(self, source: "Assembler | None") -> None:
        """Take over what a subclass keeps beside the topology."""

    def __post_init__(self) -> None:
        """Set parameters; subclasses override it with arguments of their own."""

    # -- facts -----------------------------------------------------------------------------

    @property
    def points(self) -> Tensor:
        """Coordinates ``[n, D]`` that the next call uses."""
        return self._topology.points

    @property
    def element_types(self) -> list[str]:
        """Names of the cell types that are integrated."""
        return list(self._topology.cells)

    @property
    def elements(self) -> dict[str, Tensor]:
        """Cell type -> int64 ``[E, B]``."""
        return self._topology.cells

    @property
    def transformation(self) -> dict[str, Transformation]:
        """Cell type -> its cells at the quadrature points, in the order that data have them."""
        return {
            kind: Transformation(
                self.points, cells, kind, self.quadrature_order, self._topology.geometry_order
            )
            for kind, cells in self.elements.items()
        }

    @property
    def n_points(self) -> int:
        """Number of mesh points."""
        return self._topology.n_points

    @property
    def dimension(self) -> int:
        """Space dimension ``D``."""
        return self.points.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the coordinates."""
        return self.points.dtype

    @property
    def device(self) -> torch.device:
        """Device of the coordinates."""
        return self.points.device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._rebase(self._topology.map(fn))
        return self

    def type(self, dst_type: torch.dtype | str) -> Self:
        """Convert coordinates and floating-point parameters, as `torch.nn.Module.type` does.

        Raises
        ------
        TypeError
            If `dst_type` is no floating-point dtype: the geometry is real, and complex data make
            the result complex by themselves.
        """
        if not (isinstance(dst_type, torch.dtype) and dst_type.is_floating_point):
            raise TypeError(f"dst_type must be a floating-point dtype, got {dst_type!r}")
        return self.to(dst_type)

    def extra_repr(self) -> str:
        """Sizes, and the source of the weak form."""
        sizes = ", ".join(f"{name}: {c.shape[0]}" for name, c in self.elements.items())
        try:
            source = inspect.getsource(self.forward)
        except OSError:  # defined in an interactive session
            source = ""
        return f"{self.n_points} points, cells {{{sizes}}}\n{source}"

    def _unknowns(self, h: int) -> Unknowns:
        """Unknowns of a node whose form has `h` components."""
        return h

    def _matrix(self, blocks: Tensor, h: int) -> SparseMatrix:
        """Matrix of blocks ``[h * h, nnz]`` on the node pairs of the topology."""
        expansion = self._topology.expansion(self._unknowns(h))
        return SparseMatrix.from_pattern(expansion.scalar, expansion.values(blocks))

    # -- one call --------------------------------------------------------------------------

    def _integrand(self, func: Callable[..., Tensor] | None) -> Callable[..., Tensor]:
        if func is None and type(self).forward is nn.Module.forward:
            raise NotImplementedError(
                f"{type(self).__name__} has no weak form: define forward(self, ...) with arguments "
                "by name, or pass func="
            )
        return func or self.forward

    def _set_points(self, points: Tensor | None) -> None:
        if points is None:
            return
        if not isinstance(points, Tensor) or points.is_complex():
            kind = getattr(points, "dtype", type(points).__name__)
            raise TypeError(f"points must be a real tensor, got {kind}")
        if points.shape != self.points.shape:
            raise ValueError(
                f"points has shape {tuple(points.shape)}; the mesh has {tuple(self.points.shape)}"
            )
        if points.device != self.device:
            self.to(points.device)
        points = points if points.is_floating_point() else points.to(self.dtype)
        self._topology = self._topology.moved(points)

    def _data(
        self,
        point_data: Mapping[str, Tensor] | None,
        element_data: ElementData | None,
        scalar_data: Mapping[str, Any] | None,
        batch_size: int | None = None,
    ) -> FormData:
        dtype, device = self.dtype, self.device
        points = {
            k: promote(k, x, dtype, device) for k, x in (point_data or {}).items() if k != "x"
        }
        for name, x in points.items():
            if x.dim() == 0 or x.shape[0] != self.n_points:
                raise ValueError(
                    f"point_data[{name!r}] has shape {tuple(x.shape)}; "
                    f"its first size must be the number of points, {self.n_points}"
                )
        return FormData(
            points,
            {k: self._cell_values(k, x) for k, x in (element_data or {}).items()},
            {k: promote(k, x, dtype, device) for k, x in (scalar_data or {}).items()},
            batch_size,
        )

    def _cell_values(
        self, name: str, given: CellValues | Mapping[str, CellValues]
    ) -> dict[str, CellValues]:
        if not isinstance(given, Mapping):
            if len(self.elements) > 1:
                raise ValueError(
                    f"element_data[{name!r}]: the mesh has cells of types {self.element_types}; "
                    "give {type: values} with an entry for each"
                )
            given = {self.element_types[0]: given}
        missing = set(self.elements) - set(given)
        if missing:
            raise ValueError(f"element_data[{name!r}] lacks cell types {sorted(missing)}")
        return {kind: self._of_kind(name, kind, given[kind]) for kind in self.elements}

    def _of_kind(self, name: str, kind: str, given: CellValues) -> CellValues:
        per_point = isinstance(given, PerQuadraturePoint)
        x = promote(
            name,
            given.values if isinstance(given, PerQuadraturePoint) else given,
            self.dtype,
            self.device,
        )
        n = self.elements[kind].shape[0]
        if x.dim() == 0 or x.shape[0] != n:
            raise ValueError(
                f"element_data[{name!r}] has shape {tuple(x.shape)}; its first size must be "
                f"the number of {kind} cells, {n}"
            )
        if not per_point:
            return x
        n_points = len(self._table(kind).weights)
        if x.dim() == 1 or x.shape[1] != n_points:
            raise ValueError(
                f"element_data[{name!r}] has shape {tuple(x.shape)}; per quadrature point, its "
                f"second size must be their number on {kind} cells, {n_points}"
            )
        return PerQuadraturePoint(x)

    def _table(self, kind: str) -> Tabulation:
        return self._workspace.table(kind, self.points)

    def _cell_geometry(self, kind: str) -> BlockGeometry:
        return self._workspace.geometry(self._topology, kind)

    def _integrals(
        self, form: Form, data: FormData, coefficients: Coefficients, contract: Contraction
    ) -> Iterator[tuple[str, slice, Tensor]]:
        """Element tensors of `form`, block by block: cell type, block, ``[..., k, E]``."""
        for kind, cells in self.elements.items():
            table, geometry = self._table(kind), self._cell_geometry(kind)
            n = cells.shape[0]
            width, separable = self._probe(form, data, kind, geometry, table, coefficients)
            short_cut = None
            if separable is not None:
                kept = self._workspace.pulled_back(form, kind, separable, geometry)
                short_cut = ShortCut(form, separable, kept, self.points, table)
                width = short_cut.width
            size = data.cells_a_block(len(table.weights), width)
            for start in range(0, max(n, 1), size):
                block = slice(start, min(start + size, n))
                local = geometry.of(block)
                arguments, grid = self._arguments(form, data, kind, block, local, table)
                tensors = None
                if short_cut is not None:
                    tensors = short_cut.matrices(arguments, grid, block, local)
                if tensors is None:
                    c = coefficients(form, arguments, self.dimension, self.points)
                    tensors = contract(form, cells_last(form, c, grid), local, table)
                yield kind, block, tensors

    def _probe(
        self,
        form: Form,
        data: FormData,
        kind: str,
        geometry: BlockGeometry,
        table: Tabulation,
        coefficients: Coefficients,
    ) -> tuple[int, Separable | None]:
        """Refuse a form that is not linear, by a few cells.

        Returns
        -------
        width, separable
            How many numbers a cell takes in a block, and the structure of a bilinear form.
        """
        picks = self._few_cells(kind)
        few = geometry.of(picks)
        arguments, grid = self._arguments(form, data, kind, picks, few, table)
        # What still requires grad then comes from parameters of the form.
        arguments = {name: x.detach() for name, x in arguments.items()}
        c = coefficients(form, arguments, self.dimension, self.points)
        check_linear(form, arguments, self.dimension, self.points, c.detach())
        per_point = math.prod(c.shape[1:])
        width = per_point * max(grid[0], 1) * max(1, table.values.shape[1] // self.dimension)
        bilinear = form.of_kind("trial") and form.of_kind("test")
        return width, separate(c) if bilinear else None

    def _few_cells(self, kind: str) -> Tensor:
        return few(self.elements[kind].shape[0], self.device)

    def _arguments(
        self,
        form: Form,
        data: FormData,
        kind: str,
        block: slice | Tensor,
        geometry: CellGeometry,
        table: Tabulation,
        normal: Tensor | None = None,
    ) -> tuple[dict[str, Tensor], tuple[int, int]]:
        """Values of the non-basis arguments on a block of cells.

        Returns
        -------
        values, (Q, E)
            ``[Q * E, ...]`` each, constants under ``name + "="``; ``Q`` or ``E`` is 1 where
            nothing varies inside a cell or with it.
        """
        at_points, at_cells, constants = {}, {}, {}
        columns = self._topology.columns[kind][:, block]
        for argument in form.arguments:
            name, key = argument.name, argument.key
            if argument.kind == "x":
                nodes = self._topology.map_columns(kind)[:, block]
                at_points[name] = interpolate(self.points, nodes, table.of_map)
            elif argument.kind == "field":
                at_points[name] = interpolate(data.point_data[key], columns, table)
            elif argument.kind == "gradient":
                at_points[name] = gradient(data.point_data[key], columns, table, geometry)
            elif argument.kind == "normal" and normal is not None:
                at_points[name] = normal.expand(len(table.weights), -1, -1)
            elif argument.kind == "cell":
                given = data.element_data[key][kind]
                if isinstance(given, PerQuadraturePoint):
                    self._refuse_on_facets(key, normal)
                    at_points[name] = data.values_of(key, kind, block).transpose(0, 1)
                else:
                    at_cells[name] = data.values_of(key, kind, block)
            elif argument.kind == "scalar":
                constants[name + "="] = data.scalar_data[key]
            elif argument.kind == "gradx":
                eye = torch.eye(self.dimension, dtype=self.dtype, device=self.device)
                constants[name + "="] = eye
        n_cells = columns.shape[1] if at_points or at_cells else 1
        n_points = len(table.weights) if at_points else 1
        values = {name: x.flatten(0, 1) for name, x in at_points.items()}
        for name, x in at_cells.items():
            values[name] = x.expand(n_points, *x.shape).flatten(0, 1)
        return values | constants, (n_points, n_cells)

    @staticmethod
    def _refuse_on_facets(name: str, normal: Tensor | None) -> None:
        if normal is not None:
            raise TypeError(
                f"element_data[{name!r}] has values at the points of cells; facets have others: "
                "give a field in point_data, or one value a cell"
            )


def few(n: int, device: torch.device) -> Tensor:
    """Some of `n` numbers, from the first to the last, int64."""
    picks = {i * (n - 1) // (_N_PROBES - 1) for i in range(_N_PROBES)} if n else ()
    return torch.tensor(sorted(picks), dtype=torch.int64, device=device)


def _shallow(module: Any) -> Any:
    """Copy of a module and its children whose slots can be changed one by one."""
    made = copy.copy(module)
    for slots in ("_parameters", "_buffers"):
        made.__dict__[slots] = dict(getattr(module, slots))
    made.__dict__["_modules"] = {k: m and _shallow(m) for k, m in module._modules.items()}
    return made


def _checked_order(order: int) -> int:
    if not isinstance(order, int) or isinstance(order, bool) or order < 1:
        raise ValueError(f"quadrature_order must be an integer >= 1, got {order!r}")
    return order


def check_batch_size(batch_size: int | None) -> None:
    """Refuse a `batch_size` that is neither a positive integer nor -1 or None, which mean all."""
    if batch_size is None or batch_size == -1:
        return
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise ValueError(f"batch_size must be an integer >= 1, -1 or None, got {batch_size!r}")


def check_project(project: str) -> None:
    """Refuse a `project` that is neither ``"reduce"`` nor ``"sparse"``."""
    if project not in ("reduce", "sparse"):
        raise ValueError(f"project must be 'reduce' or 'sparse', got {project!r}")
