"""`FacetAssembler`: linear forms on facets, as vectors."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from tensormesh.assemble.base import Assembler, ElementData, cells_last, check_project
from tensormesh.assemble.contract import element_vectors
from tensormesh.assemble.form import Form, FormData, bind
from tensormesh.assemble.geometry import CellGeometry, cell_geometry, tabulation
from tensormesh.assemble.integrand import FormError, check_linear, facet_coefficients
from tensormesh.assemble.scatter import scatter
from tensormesh.assemble.topology import Topology
from tensormesh.element.facet import facet_quadrature, local_facets
from tensormesh.mesh.facets import facets_of_cells

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh

# Cell type -> cell index and local facet index of each facet.
Facets = Mapping[str, tuple[Tensor, Tensor]]


class FacetAssembler(Assembler):
    """Vector of a linear form on facets: tractions, fluxes.

    Subclass it and define ``forward`` at one point of a facet. The test function keeps the basis
    axis of the cell: ``v`` is ``[B]``, ``gradv`` is ``[B, D]`` (``u``, ``gradu`` are other names of
    the same). Further arguments are ``x``, the outward unit normal ``n`` (``[D]``), fields, values
    per cell and constants. It returns ``[B]``, or ``[B, H]`` such as ``v[:, None] * traction``.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Perimeter(tm.FacetAssembler):
    ...     def forward(self, v):
    ...         return v
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
    >>> round(float(Perimeter.from_mesh(mesh)().sum()), 12)
    4.0
    >>> round(float(Perimeter.from_mesh(mesh, "left")().sum()), 12)
    1.0
    """

    _family = "facet"
    _facets: Facets

    @classmethod
    def from_mesh(  # type: ignore[override]
        cls,
        mesh: "Mesh",
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
        topology = Topology.of(mesh)
        made = cls.__new__(cls)
        Assembler.__init__(made, topology, quadrature_order)
        made._facets = select_facets(mesh, boundary_mask)
        made.__post_init__(*args, **kwargs)
        return made

    def _on(self, mesh: "Mesh", boundary_mask: Tensor | str | None = None) -> Self:
        """Give the same form on facets of another mesh, its parameters shared."""
        made = super()._on(mesh)
        made._facets = select_facets(mesh, boundary_mask)
        return made

    def _adopt(self, source: Assembler | None) -> None:
        if isinstance(source, FacetAssembler):
            self._facets = source._facets

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._facets = {kind: (fn(c), fn(f)) for kind, (c, f) in self._facets.items()}
        return self

    def __call__(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        *,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Assemble the vector.

        Parameters
        ----------
        points, func, point_data, element_data, scalar_data
            As of `ElementAssembler.__call__`; `element_data` are values per cell.

        Returns
        -------
        Tensor
            ``[n * H]``, node-major; zero where there is no facet.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        self._set_points(points)
        values, _ = self._node_values(func, self._data(point_data, element_data, scalar_data))
        return values.reshape(-1)

    def _node_values(
        self, func: Callable[..., Tensor] | None, data: FormData
    ) -> tuple[Tensor, int]:
        """Values ``[n, H]`` and ``H``."""
        form = bind(self._integrand(func), data, ("v", "gradv", "u", "gradu"), normal=True)
        if bool(form.of_kind("test")) == bool(form.of_kind("trial")):
            raise FormError(
                f"{type(self).__name__}: a linear facet form needs one of v, gradv "
                "(or of u, gradu, but not of both)"
            )
        columns = self._topology.columns
        values = scatter(
            self.n_points,
            (
                (columns[kind][:, cells], self._integrate(form, data, kind, facet, cells))
                for kind, facet, cells in self._groups()
            ),
        )
        return values.t(), values.shape[0]

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

    def _integrate(
        self, form: Form, data: FormData, kind: str, facet: int, cells: Tensor
    ) -> Tensor:
        table = tabulation(kind, *facet_quadrature(kind, facet, self._degree(kind)), self.points)
        geometry = cell_geometry(kind, self._corners(kind, cells), table, cells)
        reference = self.points.new_tensor(local_facets(kind)[facet].normal)
        # Nanson's formula: n ds = det(J) J^-T N dS.
        covector = torch.einsum("qkde,k->qed", geometry.inverse, reference)
        stretch = covector.norm(dim=-1)
        geometry = CellGeometry(geometry.measure * stretch, geometry.inverse)
        normal = covector / stretch.unsqueeze(-1)
        arguments, grid = self._arguments(form, data, kind, cells, geometry, table, normal)
        c = facet_coefficients(form, arguments, self.dimension, self.points)
        check_linear(form, arguments, self.dimension, self.points, c, basis_axis=True)
        return element_vectors(form, cells_last(form, c, grid), geometry, table)


def select_facets(mesh: "Mesh", chosen: Tensor | str | None) -> Facets:
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
