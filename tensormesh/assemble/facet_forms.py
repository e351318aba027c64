"""What linear and bilinear forms on facets have in common: which facets, and their geometry."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor

from tensormesh.assemble.base import Assembler, check_project
from tensormesh.assemble.blocks import CellBlock
from tensormesh.assemble.form import Form, FormData
from tensormesh.assemble.geometry import CellGeometry, cell_geometry, tabulation
from tensormesh.assemble.topology import Topology
from tensormesh.assemble.workspace import corners
from tensormesh.element.facet import facet_quadrature, local_facets
from tensormesh.mesh.facets import facets_of_cells
from tensormesh.mesh.mesh import Mesh

# Cell type -> cell index and local facet index of each facet.
Facets = Mapping[str, tuple[Tensor, Tensor]]


class FacetForms(Assembler):
    """A weak form on facets. Use `from_mesh` of one of the subclasses."""

    _family = "facet"
    _facets: Facets

    @classmethod
    def from_mesh(  # type: ignore[override]
        cls,
        mesh: Mesh,
        boundary_mask: Tensor | str | None = None,
        quadrature_order: int = 2,
        project: str = "reduce",
        *args: Any,
        **kwargs: Any,
    ) -> Self:
        """Assembler on some facets of `mesh`.

        Parameters
        ----------
        mesh
            The mesh.
        boundary_mask
            None: the whole boundary, that is the facets that exactly one cell has. A bool tensor
            ``[n]``, or the name of one in ``mesh.point_data``: the boundary facets all of whose
            nodes are flagged. The name of a physical group: its facets.
        quadrature_order, project, *args, **kwargs
            As of `Assembler.from_mesh`.

        Raises
        ------
        KeyError
            If nothing is called `boundary_mask`.
        ValueError
            If the mask has another length, or a facet of the group belongs to no cell.
        TypeError
            If the mask is not bool.
        """
        check_project(project)
        made = cls._bare(Topology.of(mesh), quadrature_order)
        made._facets = select_facets(mesh, boundary_mask)
        made.__post_init__(*args, **kwargs)
        return made

    def _on(self, mesh: Mesh, boundary_mask: Tensor | str | None = None) -> Self:
        """Give the same form on facets of another mesh, its parameters shared."""
        made = super()._on(mesh)
        made._facets = select_facets(mesh, boundary_mask)
        return made

    def _adopt(self, source: Assembler | None) -> None:
        if isinstance(source, FacetForms):
            self._facets = source._facets

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._facets = {kind: (fn(c), fn(f)) for kind, (c, f) in self._facets.items()}
        return self

    @classmethod
    def from_elements(
        cls,
        points: Tensor,
        elements: Mapping[str, Tensor],
        boundary_mask: Tensor | None = None,
        quadrature_order: int = 2,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        project: str = "reduce",
        *args: Any,
        **kwargs: Any,
    ) -> Self:
        """Assembler on bare arrays: `points` ``[n, D]`` and ``{cell type: [E, B]}``.

        Parameters as of `from_mesh`; `boundary_mask` is None or a bool tensor ``[n]``.
        """
        cells = {name: cell.to(device, torch.int64) for name, cell in elements.items()}
        mesh = Mesh.from_arrays(points.to(device, dtype), cells)
        return cls.from_mesh(mesh, boundary_mask, quadrature_order, project, *args, **kwargs)

    def _blocks(self, form: Form, data: FormData) -> Iterator[CellBlock]:
        """Facets of one type and local number at a time: at least one block, be it empty."""
        for kind, facet, cells in self._groups():
            yield self._block(form, data, kind, facet, cells)

    def _groups(self) -> Iterator[tuple[str, int, Tensor]]:
        """Cell type, local facet index, and cells: at least one group, be it empty."""
        empty = True
        for kind, (cells, local) in self._facets.items():
            for facet in range(len(local_facets(kind))):
                chosen = cells[local == facet]
                if chosen.numel():
                    empty = False
                    yield kind, facet, chosen
        if empty:
            kind, cell = next(iter(self.elements.items()))
            yield kind, 0, cell.new_zeros(0)

    def _block(self, form: Form, data: FormData, kind: str, facet: int, cells: Tensor) -> CellBlock:
        table = tabulation(
            kind,
            *facet_quadrature(kind, facet, self._workspace.degree(kind)),
            self.points,
            self._topology.geometry_order,
        )
        geometry = cell_geometry(kind, corners(self._topology, kind, cells), table, cells)
        reference = self.points.new_tensor(local_facets(kind)[facet].normal)
        # Nanson's formula: n ds = det(J) J^-T N dS.
        covector = torch.einsum("qkde,k->qed", geometry.inverse, reference)
        stretch = covector.norm(dim=-1)
        geometry = CellGeometry(geometry.measure * stretch, geometry.inverse)
        normal = covector / stretch.unsqueeze(-1)
        arguments, grid = self._arguments(form, data, kind, cells, geometry, table, normal)
        return CellBlock(kind, cells, table, geometry, arguments, grid)


def select_facets(mesh: Mesh, chosen: Tensor | str | None) -> Facets:
    """Facets of `mesh` by mask, by name, or all of its boundary; see `FacetAssembler.from_mesh`."""
    boundary = mesh.boundary_facets()
    if chosen is None:
        return dict(boundary.items())
    if isinstance(chosen, str):
        if chosen not in mesh.point_data:
            return dict(facets_of_cells(mesh, mesh.group(chosen)).items())
        chosen = mesh.point_data[chosen]
    if not isinstance(chosen, Tensor) or chosen.dtype != torch.bool:
        raise TypeError(
            "boundary_mask must be a bool tensor, a name or None, got "
            f"{chosen.dtype if isinstance(chosen, Tensor) else type(chosen).__name__}"
        )
    if chosen.shape != (mesh.n_points,):
        raise ValueError(
            f"boundary_mask has shape {tuple(chosen.shape)}; the mesh has {mesh.n_points} points"
        )
    kept = {}
    for kind, (cells, local) in boundary.items():
        width = max(len(f.nodes) for f in local_facets(kind))
        # A facet with fewer nodes than the widest repeats its last one.
        table = [[*f.nodes, *f.nodes[-1:] * (width - len(f.nodes))] for f in local_facets(kind)]
        nodes = mesh.cells[kind][
            cells.unsqueeze(1), torch.tensor(table, device=cells.device)[local]
        ]
        inside = chosen[nodes].all(dim=1)
        kept[kind] = (cells[inside], local[inside])
    return kept
