"""A mesh of higher order that has the same geometry: its nodes carry fields of that order."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.element.cell_type import NAMES, cell_name, cell_type
from tensormesh.element.lagrange import reference_nodes, tabulate
from tensormesh.mesh.arrays import ByType, MeshArrays
from tensormesh.mesh.facets import FacetSet, facet_nodes_mask, mark_facet_nodes
from tensormesh.mesh.lattice import lattice_numbers

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh


def raised_arrays(mesh: "Mesh", order: int) -> MeshArrays:
    """Contents of `Mesh.raised`, which see.

    Raises
    ------
    ValueError
        If `order` is none that all cells have, or is below theirs, or theirs differ.
    """
    _check(mesh, order)
    names = raised_names(mesh, order)
    nodes = _Nodes(mesh, names, order)
    straight = mesh.geometry_order == 1 or all(cell_type(kind).order == 1 for kind in mesh.cells)
    own = mesh.arrays()
    return MeshArrays(
        nodes.interpolated(mesh.points),
        nodes.cells,
        {name: nodes.field(values) for name, values in own.point_data.items()},
        {name: _renamed(by_type, names) for name, by_type in own.cell_data.items()},
        own.field_data,
        {name: _renamed(by_type, names) for name, by_type in own.cell_sets.items()},
        1 if straight and order > 1 else None,
    )


def raised_names(mesh: "Mesh", order: int) -> dict[str, str]:
    """Each cell type of `mesh`: that of its shape and `order`."""
    return {kind: cell_name(cell_type(kind).shape, order) for kind in mesh.cells}


def _check(mesh: "Mesh", order: int) -> None:
    kinds = [cell_type(kind) for kind in mesh.cells if cell_type(kind).dim > 0]
    if not kinds:
        raise ValueError("the mesh has no cells of dimension 1 or more whose order can be raised")
    present = {kind.order for kind in kinds}
    if len(present) > 1:
        raise ValueError(
            f"the cells of the mesh have several orders ({', '.join(mesh.cells)}): an order is "
            "raised from one that all have"
        )
    for kind in kinds:
        orders = [p for shape, p in NAMES.values() if shape == kind.shape and p >= kind.order]
        if isinstance(order, bool | float) or order not in orders:
            raise ValueError(
                f"order = {order!r}: cells of type {kind.name!r} can be raised to orders "
                f"{orders[0]} to {orders[-1]}"
            )


def _renamed(by_type: ByType, names: dict[str, str]) -> ByType:
    return {names[kind]: tensor for kind, tensor in by_type.items()}


@dataclass(frozen=True)
class _Source:
    """Where values of some new nodes come from: a cell of the old mesh, and a place in it.

    Parameters
    ----------
    nodes
        Old nodes of the cell of each new node, (k, B).
    weights
        Old basis at its place, (k, B); exact zeros where it vanishes.
    """

    nodes: Tensor
    weights: Tensor

    def values(self, field: Tensor) -> Tensor:
        """Values (k, ...) of nodal data (n, ...), by the basis; of integers, those that all share.

        Seen from the node with the largest weight: data that are constant on an edge or a face
        stay what they are to the last digit.
        """
        nodal = field[self.nodes]
        at = torch.arange(len(nodal), device=nodal.device)
        nearest = nodal[at, self.weights.abs().argmax(dim=1)]
        weights = self.weights.view(*self.weights.shape, *(1,) * (field.dim() - 1))
        if nodal.is_floating_point() or nodal.is_complex():
            weights = weights.to(nodal.dtype)
            return nearest + (weights * (nodal - nearest.unsqueeze(1))).sum(dim=1)
        agree = ((nodal == nearest.unsqueeze(1)) | (weights == 0)).all(dim=1)
        return torch.where(agree, nearest, torch.zeros_like(nearest))


class _Nodes:
    """Nodes of the raised mesh: the old ones that it has, then new ones.

    Parameters
    ----------
    mesh
        The old mesh.
    names
        Each of its cell types: that of the raised one.
    order
        Order of the raised one.
    """

    def __init__(self, mesh: "Mesh", names: dict[str, str], order: int) -> None:
        self._mesh, self._names = mesh, names
        old = mesh.cells.to_dict()
        numbers, n_numbers = lattice_numbers(old, mesh.n_points, order)
        kept = torch.ones(n_numbers, dtype=torch.bool, device=mesh.device)
        for nodes in old.values():
            kept[nodes] = False
        kept[mesh.n_points :] = False
        for kind, nodes in numbers.items():
            here, there = _common_nodes(kind, names[kind])
            nodes[:, there] = old[kind][:, here]
            kept[nodes] = True
        rank = kept.cumsum(0) - 1
        self._old = kept[: mesh.n_points].nonzero().flatten()
        self.cells = {names[kind]: rank[nodes] for kind, nodes in numbers.items()}
        self.n_points = int(kept.sum())
        self._sources, self._order = self._find_sources()
        self._boundary: tuple[Tensor, Tensor] | None = None

    def _find_sources(self) -> tuple[list[_Source], Tensor]:
        """Sources cell type by cell type, and the row in them of each new node.

        Of the cells that have a node the first counts: all ranks find the same digits.
        """
        n_old = len(self._old)
        sizes = [nodes.numel() for nodes in self.cells.values()]
        all_nodes = torch.cat([nodes.flatten() for nodes in self.cells.values()])
        position = torch.arange(sum(sizes), device=all_nodes.device)
        first = position.new_full((self.n_points,), sum(sizes))
        first = first.scatter_reduce(0, all_nodes, position, "amin")[n_old:]
        sources, new_nodes, start = [], [], 0
        for (kind, name), size in zip(self._names.items(), sizes, strict=True):
            mine = ((first >= start) & (first < start + size)).nonzero().flatten()
            width = cell_type(name).n_nodes
            cell, column = (first[mine] - start) // width, (first[mine] - start) % width
            basis = _basis_at_nodes_of(kind, name).to(all_nodes.device)
            sources.append(_Source(self._mesh.cells[kind][cell], basis[column]))
            new_nodes.append(mine)
            start += size
        return sources, torch.argsort(torch.cat(new_nodes))

    def interpolated(self, field: Tensor) -> Tensor:
        """Nodal data (n, ...) of the old mesh at the nodes of the raised one."""
        new = torch.cat([source.values(field) for source in self._sources])
        return torch.cat([field[self._old], new[self._order]])

    def field(self, values: Tensor) -> Tensor:
        """Point data at the nodes; a mask of boundary nodes marks no node that is not one."""
        found = self.interpolated(values)
        if values.dtype != torch.bool:
            return found
        before, after = self._boundaries()
        shape = (-1, *(1,) * (values.dim() - 1))
        if bool((values & ~before.view(shape)).any()):
            return found
        return found & after.view(shape)

    def _boundaries(self) -> tuple[Tensor, Tensor]:
        """Nodes on the boundary, of the old mesh and of the raised one."""
        if self._boundary is None:
            facets = self._mesh.boundary_facets()
            top = {self._names[kind]: self.cells[self._names[kind]] for kind in facets}
            raised = raised_facets(facets, self._names)
            after = mark_facet_nodes(top, raised, self.n_points)
            self._boundary = facet_nodes_mask(self._mesh, facets), after
        return self._boundary


def raised_facets(facets: FacetSet, names: dict[str, str]) -> FacetSet:
    """The same facets of the raised cells: shapes number their facets alike at each order."""
    return FacetSet({names[kind]: of_kind for kind, of_kind in facets.items()})


def _common_nodes(kind: str, name: str) -> tuple[list[int], list[int]]:
    """Local numbers, in the old type and in the raised one, of the nodes that both have."""
    distance = (reference_nodes(kind).unsqueeze(1) - reference_nodes(name)).abs().sum(dim=2)
    here, there = (distance < 1e-9).nonzero(as_tuple=True)
    return here.tolist(), there.tolist()


def _basis_at_nodes_of(kind: str, name: str) -> Tensor:
    """Basis of cell type `kind` at the nodes of `name`, (nodes, B), zeros exact."""
    values, _ = tabulate(kind, reference_nodes(name))
    return torch.where(values.abs() < 1e-12, 0.0, values)
