"""What the assemblers of forms of several fields, of several orders, have in common."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor

from tensormesh.assemble.base import Assembler
from tensormesh.assemble.blocks import CellBlock
from tensormesh.assemble.energy import cell_blocks
from tensormesh.assemble.field import BlockLayout, Field
from tensormesh.assemble.form import Form, FormData, bind
from tensormesh.assemble.integrand import FormError, Side
from tensormesh.assemble.linearize import MakeCoefficients, PointCoefficients, derivatives
from tensormesh.assemble.lower_order import carried_basis
from tensormesh.assemble.mixed import (
    Function,
    MixedSide,
    check_mixed_linear,
    mixed_coefficients,
    mixed_matrices,
    mixed_vectors,
)
from tensormesh.assemble.mixed_linearize import State, residual
from tensormesh.assemble.mixed_tangent import HasMixedTangent
from tensormesh.assemble.scatter import scatter
from tensormesh.assemble.topology import Topology, Unknowns, present_unknowns
from tensormesh.element.cell_type import cell_type

# Coefficients ``[N, T]`` or ``[N, T, A]`` of a form at the points of some cells.
OnBlock = Callable[[CellBlock], Tensor]
Sides = Sequence[MixedSide]


class MixedAssembler(Assembler):
    """What forms of several fields have in common. Use one of the subclasses.

    Attributes
    ----------
    fields
        Name -> `Field`; a subclass sets it.
    """

    fields: ClassVar[Mapping[str, Field]] = {}
    _has_normal: ClassVar[bool] = False

    @classmethod
    def _bare(cls, topology: Topology, quadrature_order: int) -> Self:
        _check_orders(BlockLayout(cls.fields), topology)
        return super()._bare(topology, quadrature_order)

    @property
    def layout(self) -> BlockLayout:
        """Where each field is in a vector."""
        return BlockLayout(self.fields)

    def at_nodes(self, x: Tensor) -> dict[str, Tensor]:
        """Fields of a solution at all nodes, for output and as `point_data` of forms.

        Parameters
        ----------
        x
            ``[n * h]``; on a `DistributedMesh` the owned slice, and the call is **collective**.

        Returns
        -------
        dict
            Name -> ``[n]`` or ``[n, components]``; differentiable.

        Raises
        ------
        ValueError
            If the length does not fit.
        """
        return self._at_nodes(x)

    def _at_nodes(self, x: Tensor) -> dict[str, Tensor]:
        split = self.layout.split(x)
        if x.shape[0] != self.n_points * self.layout.h:
            raise ValueError(f"x has shape {tuple(x.shape)}; the mesh has {self.n_points} nodes")
        return {
            name: self._interpolated(values, self.fields[name].order)
            for name, values in split.items()
        }

    def _interpolated(self, values: Tensor, order: int) -> Tensor:
        """Values ``[n, ...]`` at all nodes of a field that some of them carry."""
        higher = {k: nodes for k, nodes in self.elements.items() if cell_type(k).order > order}
        if not higher:
            return values
        shape = (-1, *(1,) * (values.dim() - 1))
        carried = values * self._topology.carriers(order).view(shape)
        # The mean of what the cells at a node give: to assign it has no right derivative.
        total, count = torch.zeros_like(values), values.new_zeros(len(values), dtype=torch.int64)
        for kind, nodes in higher.items():
            basis = carried_basis(kind, order).to(values)
            of_cells = torch.einsum("bc,ec...->eb...", basis, carried[nodes])
            total = total.index_add(0, nodes.flatten(), of_cells.flatten(0, 1))
            count += torch.bincount(nodes.flatten(), minlength=len(values))
        return torch.where(count.view(shape) > 0, total / count.clamp_min(1).view(shape), values)

    def _unknowns(self, h: int) -> Unknowns:
        orders = self.layout.orders
        highest = max(cell_type(kind).order for kind in self.elements)
        return orders if min(orders) < highest else h

    def _bound(self, func: Callable[..., Tensor] | None, data: FormData, *sides: Side) -> Form:
        """The form, whose functions are those of `sides`, each of which it needs."""
        functions = {name: side for name, side in self.layout.sides.items() if side in sides}
        integrand = self._integrand(func)
        form = bind(integrand, data, functions, sides=functions, normal=self._has_normal)
        for side in sides:
            if not form.of_kind(side):
                names = [name for name, of in functions.items() if of == side]
                raise FormError(f"{type(self).__name__}: the form needs one of {', '.join(names)}")
        return form

    def _sides(self, form: Form, *sides: Side) -> list[MixedSide]:
        return [MixedSide.of(form, self.layout, side, self.dimension) for side in sides]

    # -- where a form is evaluated ---------------------------------------------------------

    def _mixed_blocks(self, form: Form, data: FormData, sides: Sides) -> Iterator[CellBlock]:
        """Everything that is integrated, block by block."""
        return cell_blocks(self, form, data, self._numbers_per_point(sides))

    def _probe_blocks(self, form: Form, data: FormData) -> Iterator[CellBlock]:
        """A few cells of each type."""
        for kind in self.elements:
            picks, table = self._few_cells(kind), self._table(kind)
            local = self._cell_geometry(kind).of(picks)
            arguments, grid = self._arguments(form, data, kind, picks, local, table)
            yield CellBlock(kind, picks, table, local, arguments, grid)

    def _numbers_per_point(self, sides: Sides) -> int:
        """How many numbers a point of a cell takes, the larger of tensors and coefficients."""
        found = 1
        for kind in self.elements:
            coefficients, tensors = 1, 1
            for s in sides:
                coefficients *= sum(s.sizes)
                tensors *= cell_type(kind).n_nodes * self.layout.h
            found = max(found, coefficients, tensors // len(self._table(kind).weights))
        return found

    # -- from coefficients to sums ---------------------------------------------------------

    def _matrices(self, form: Form, data: FormData, sides: Sides, c: OnBlock) -> Tensor:
        """Values ``[h * h, nnz]`` on the node pairs of the topology."""
        slots = self._topology.slots
        tensors = self._element_tensors(form, data, sides, c)
        pieces = ((slots[block.kind][:, block.cells], local) for block, local in tensors)
        return scatter(self._topology.n_slots, pieces)

    def _vectors(self, form: Form, data: FormData, sides: Sides, c: OnBlock) -> Tensor:
        """Values ``[n, h]``, zero where a field has no unknown."""
        columns, unknowns = self._topology.columns, self._unknowns(self.layout.h)
        tensors = self._element_tensors(form, data, sides, c)
        pieces = ((columns[block.kind][:, block.cells], local) for block, local in tensors)
        values = scatter(self.n_points, pieces).t()
        if isinstance(unknowns, int):
            return values
        return values * present_unknowns(unknowns, self._topology.carriers).view(values.shape)

    def _element_tensors(
        self, form: Form, data: FormData, sides: Sides, coefficients: OnBlock
    ) -> Iterator[tuple[CellBlock, Tensor]]:
        """Element matrices or vectors ``[..., k, E]``, block by block."""
        contract = mixed_matrices if len(sides) == 2 else mixed_vectors
        for block in self._mixed_blocks(form, data, sides):
            rows = [[_rows(block, function) for function in s.functions] for s in sides]
            c = coefficients(block).unflatten(0, block.grid).movedim(1, -1).contiguous()
            yield block, contract(c, sides, rows, block.geometry, block.table.weights)

    def _derivative(
        self, form: Form, data: FormData, sides: Sides, make: MakeCoefficients, state: State
    ) -> Tensor:
        """Derivative by `state` of the coefficients that `make` gives, as of `_matrices`."""

        def at_points(block: CellBlock) -> Tensor:
            return derivatives(make, state, block.arguments)[..., 0, 0]

        return self._matrices(form, data, sides, at_points)

    def _linear(self, form: Form, data: FormData, sides: Sides) -> OnBlock:
        """Coefficients of a form that is linear on each side, which is checked."""
        for block in self._probe_blocks(form, data):
            arguments = {name: x.detach() for name, x in block.arguments.items()}
            c = mixed_coefficients(form, sides, arguments, self.points).detach()
            check_mixed_linear(form, sides, arguments, self.points, c)
        return lambda block: mixed_coefficients(form, sides, block.arguments, self.points)


class MixedBilinear(MixedAssembler):
    """Bilinear forms of several fields, on cells or facets."""

    def _block_values(
        self, func: Callable[..., Tensor] | None, data: FormData
    ) -> tuple[Tensor, int]:
        """Values ``[h * h, nnz]`` on the node pairs of the topology, and ``h``."""
        form = self._bound(func, data, "test", "trial")
        sides = self._sides(form, "test", "trial")
        return self._matrices(form, data, sides, self._linear(form, data, sides)), self.layout.h


class MixedLinear(HasMixedTangent, MixedAssembler):
    """Linear forms of several fields, on cells or facets."""

    def _node_values(
        self, func: Callable[..., Tensor] | None, data: FormData
    ) -> tuple[Tensor, int]:
        """Values ``[n, h]`` and ``h``."""
        form = self._bound(func, data, "test")
        sides = self._sides(form, "test")
        return self._vectors(form, data, sides, self._linear(form, data, sides)), self.layout.h

    def _tangent_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        form = self._bound(func, data, "test")
        (test,) = self._sides(form, "test")
        self._linear(form, data, [test])  # refuses what is not linear in the test functions
        state = State(form, data, self.layout, self.dimension)

        def make(names: list[str]) -> PointCoefficients:
            return residual(form, test, state, names, self.points)

        return self._derivative(form, data, [test, state.side], make, state), self.layout.h


def _rows(block: CellBlock, function: Function) -> Tensor:
    """Basis of a function ``[Q, inputs, B]``; zero at nodes that carry no unknown of it."""
    table, of = block.table, cell_type(block.kind)
    if not any(function.uses):
        return table.values.new_zeros(len(table.weights), 0, of.n_nodes)
    rows = table.rows(*function.uses)
    if function.order == of.order:
        return rows
    return rows @ carried_basis(block.kind, function.order).to(rows)


def _check_orders(layout: BlockLayout, topology: Topology) -> None:
    for kind in topology.cells:
        order = cell_type(kind).order
        for name, field in layout.fields.items():
            if field.order > order:
                raise ValueError(
                    f"fields[{name!r}] has order {field.order} and cells of type {kind!r} have "
                    f"{order}: a field has at most the order of the cells, which "
                    f"mesh.raised({field.order}) chooses"
                )
