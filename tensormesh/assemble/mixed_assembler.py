"""What the assemblers of forms of several fields, of several orders, have in common."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from tensormesh.assemble.base import Assembler
from tensormesh.assemble.field import BlockLayout, Field
from tensormesh.assemble.form import Form, FormData, bind
from tensormesh.assemble.geometry import tabulation
from tensormesh.assemble.integrand import FormError, Side
from tensormesh.assemble.mixed import (
    Function,
    MixedSide,
    check_mixed_linear,
    mixed_coefficients,
    mixed_matrices,
    mixed_vectors,
)
from tensormesh.assemble.topology import Topology, Unknowns
from tensormesh.element.cell_type import cell_name, cell_type
from tensormesh.element.lagrange import reference_nodes, tabulate
from tensormesh.element.quadrature import quadrature


class MixedAssembler(Assembler):
    """What forms of several fields have in common. Use one of the subclasses.

    Attributes
    ----------
    fields
        Name -> `Field`; a subclass sets it.
    """

    fields: ClassVar[Mapping[str, Field]] = {}

    @classmethod
    def _create(
        cls,
        topology: Topology,
        quadrature_order: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        source: Assembler | None = None,
    ) -> Self:
        _check_orders(BlockLayout(cls.fields), topology)
        return super()._create(topology, quadrature_order, args, kwargs, source)

    @property
    def layout(self) -> BlockLayout:
        """Where each field is in a vector."""
        return BlockLayout(self.fields)

    def at_nodes(self, x: Tensor) -> dict[str, Tensor]:
        """Fields of a solution at all nodes, for output: those at vertices are interpolated.

        Parameters
        ----------
        x
            ``[n * h]``; on a `DistributedMesh` the owned slice, and the call is **collective**.

        Returns
        -------
        dict
            Name -> ``[n]`` or ``[n, components]``.

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
            name: self._from_vertices(values) if self.fields[name].order == 1 else values
            for name, values in split.items()
        }

    def _from_vertices(self, values: Tensor) -> Tensor:
        found = values.clone()
        for kind, nodes in self.elements.items():
            of = cell_type(kind)
            basis, _ = tabulate(cell_name(of.shape, 1), reference_nodes(kind))
            between = basis[of.n_vertices :].to(values)
            at_vertices = values[nodes[:, : of.n_vertices]]
            found[nodes[:, of.n_vertices :]] = torch.einsum("bv,ev...->eb...", between, at_vertices)
        return found

    def _unknowns(self, h: int) -> Unknowns:
        at_vertices = self.layout.at_vertices
        return at_vertices if any(at_vertices) else h

    def _bound(self, func: Callable[..., Tensor] | None, data: FormData, *sides: Side) -> Form:
        """The form, whose functions are those of `sides`, each of which it needs."""
        functions = {name: side for name, side in self.layout.sides.items() if side in sides}
        form = bind(self._integrand(func), data, functions, sides=functions)
        for side in sides:
            if not form.of_kind(side):
                names = [name for name, of in functions.items() if of == side]
                raise FormError(f"{type(self).__name__}: the form needs one of {', '.join(names)}")
        return form

    def _element_tensors(
        self, form: Form, data: FormData, sides: list[MixedSide]
    ) -> Iterator[tuple[str, slice, Tensor]]:
        """Element matrices or vectors, block by block: cell type, block, ``[..., k, E]``."""
        contract = mixed_matrices if len(sides) == 2 else mixed_vectors
        for kind, cells in self.elements.items():
            table, geometry = self._table(kind), self._cell_geometry(kind)
            rows = [[self._rows(kind, function) for function in s.functions] for s in sides]
            self._refuse_nonlinear(form, data, kind, sides)
            n, n_points = cells.shape[0], len(table.weights)
            size = data.cells_a_block(n_points, self._width(kind, sides))
            for start in range(0, max(n, 1), size):
                block = slice(start, min(start + size, n))
                local = geometry.of(block)
                arguments, grid = self._arguments(form, data, kind, block, local, table)
                c = mixed_coefficients(form, sides, arguments, self.points)
                c = c.unflatten(0, grid).movedim(1, -1).contiguous()
                yield kind, block, contract(c, sides, rows, local, table.weights)

    def _width(self, kind: str, sides: list[MixedSide]) -> int:
        """How many numbers a cell takes in a block, the larger of tensors and coefficients."""
        coefficients, tensors = len(self._table(kind).weights), 1
        for s in sides:
            coefficients *= sum(s.sizes)
            tensors *= cell_type(kind).n_nodes * self.layout.h
        return max(coefficients, tensors)

    def _refuse_nonlinear(
        self, form: Form, data: FormData, kind: str, sides: list[MixedSide]
    ) -> None:
        few = self._few_cells(kind)
        local = self._cell_geometry(kind).of(few)
        arguments, _ = self._arguments(form, data, kind, few, local, self._table(kind))
        arguments = {name: x.detach() for name, x in arguments.items()}
        c = mixed_coefficients(form, sides, arguments, self.points).detach()
        check_mixed_linear(form, sides, arguments, self.points, c)

    def _rows(self, kind: str, function: Function) -> Tensor:
        """Basis of a function ``[Q, inputs, B]``; zero at nodes where it has no unknowns."""
        table, of = self._table(kind), cell_type(kind)
        if not any(function.uses):
            return table.values.new_zeros(len(table.weights), 0, of.n_nodes)
        if function.order == of.order:
            return table.rows(*function.uses)
        rule = quadrature(kind, self._workspace.degree(kind))
        lower = tabulation(cell_name(of.shape, function.order), *rule, self.points)
        return pad(lower.rows(*function.uses), (0, of.n_nodes - of.n_vertices))


def _check_orders(layout: BlockLayout, topology: Topology) -> None:
    for kind in topology.cells:
        order = cell_type(kind).order
        for name, field in layout.fields.items():
            if field.order not in (1, order):
                raise ValueError(
                    f"fields[{name!r}] has order {field.order} and cells of type {kind!r} have "
                    f"{order}: a field has order 1 or that of the cells, which "
                    f"mesh.raised({field.order}) chooses"
                )
