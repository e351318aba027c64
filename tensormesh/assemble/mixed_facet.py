"""`MixedFacetAssembler` and `MixedFacetBilinearAssembler`: forms of several fields on facets."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from torch import Tensor

from tensormesh.assemble.base import ElementData, few
from tensormesh.assemble.blocks import CellBlock
from tensormesh.assemble.facet_forms import FacetForms
from tensormesh.assemble.form import Form, FormData
from tensormesh.assemble.mixed_assembler import MixedAssembler, MixedBilinear, MixedLinear, Sides
from tensormesh.sparse.matrix import SparseMatrix


class MixedFacetForms(FacetForms, MixedAssembler):
    """What forms of several fields on facets have in common. Use one of the subclasses."""

    _family = "mixed facet"
    _has_normal: ClassVar[bool] = True

    def _mixed_blocks(self, form: Form, data: FormData, sides: Sides) -> Iterator[CellBlock]:
        return self._blocks(form, data)

    def _probe_blocks(self, form: Form, data: FormData) -> Iterator[CellBlock]:
        for kind, facet, cells in self._groups():
            picks = cells[few(len(cells), cells.device)]
            yield self._block(form, data, kind, facet, picks)


class MixedFacetAssembler(MixedFacetForms, MixedLinear):
    """Vector of a linear form of several fields on facets: tractions, fluxes.

    A subclass names its `fields` and defines ``forward`` at one point of a facet, with test
    functions and their gradients, the outward unit normal ``n`` (``[D]``), and further arguments as
    of `MixedNodeAssembler`. It returns a number.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Pressure(tm.MixedFacetAssembler):
    ...     fields = {"u": tm.Field("v", components=2, order=2), "p": tm.Field("q")}
    ...     def forward(self, v, n):
    ...         return -3.0 * (n @ v)
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5).raised(2)
    >>> right = Pressure.from_mesh(mesh, "right")
    >>> f = right.layout.split(right())
    >>> round(float(f["u"][:, 0].sum()), 12)
    -3.0
    """

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
            As of `FacetAssembler.__call__`; data at nodes have the order of the cells.

        Returns
        -------
        Tensor
            ``[n * h]``, zero where there is no facet; differentiable in points and data.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        self._set_points(points)
        values, _ = self._node_values(func, self._data(point_data, element_data, scalar_data))
        return values.reshape(-1)


class MixedFacetBilinearAssembler(MixedFacetForms, MixedBilinear):
    """Sparse matrix of a bilinear form of several fields on facets: friction, Nitsche's terms.

    A subclass names its `fields` and defines ``forward`` at one point of a facet, with the
    arguments of a `MixedElementAssembler` and the outward unit normal ``n``. It returns a number.
    The matrix has the pattern of the matrices of the cells, and adds to them.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Slip(tm.MixedFacetBilinearAssembler):
    ...     fields = {"u": tm.Field("v", components=2, order=2), "p": tm.Field("q")}
    ...     def forward(self, u, v, n):
    ...         return (u @ n) * (v @ n)
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5).raised(2)
    >>> K = Slip.from_mesh(mesh)()
    >>> round(float(K.sum()), 12)
    4.0
    """

    def __call__(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        *,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
    ) -> SparseMatrix:
        """Assemble the matrix.

        Parameters
        ----------
        points, func, point_data, element_data, scalar_data
            As of `FacetAssembler.__call__`; data at nodes have the order of the cells.

        Returns
        -------
        SparseMatrix
            ``[n * h, n * h]``; zeros where there is no facet.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        self._set_points(points)
        data = self._data(point_data, element_data, scalar_data)
        return self._matrix(*self._block_values(func, data))
