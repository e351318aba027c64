"""`FacetBilinearAssembler`: bilinear forms on facets, as sparse matrices."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import ElementData
from tensormesh.assemble.blocks import CellBlock
from tensormesh.assemble.contract import element_matrices
from tensormesh.assemble.facet_forms import FacetForms
from tensormesh.assemble.form import Form, FormData, bind
from tensormesh.assemble.integrand import FormError, bilinear_coefficients, check_linear
from tensormesh.assemble.sampling import cells_last
from tensormesh.assemble.scatter import scatter
from tensormesh.sparse.matrix import SparseMatrix


class FacetBilinearAssembler(FacetForms):
    """Sparse matrix of a bilinear form on facets: Robin conditions, impedances.

    Subclass it and define ``forward`` at one point of a facet, with the arguments of an
    `ElementAssembler` and the outward unit normal ``n``. The basis is that of the cell behind the
    facet, so that ``gradu`` and ``gradv`` have all directions. The matrix has the pattern of the
    matrices of the cells, and adds to them.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Robin(tm.FacetBilinearAssembler):
    ...     def forward(self, u, v):
    ...         return u * v
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
    >>> round(float(Robin.from_mesh(mesh)().sum()), 12)
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
            As of `ElementAssembler.__call__`; `element_data` are values per cell.

        Returns
        -------
        SparseMatrix
            ``[n * H, n * H]``, complex where data are; zeros where there is no facet.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        self._set_points(points)
        data = self._data(point_data, element_data, scalar_data)
        return self._matrix(*self._block_values(func, data))

    def _block_values(
        self, func: Callable[..., Tensor] | None, data: FormData
    ) -> tuple[Tensor, int]:
        """Values ``[H * H, nnz]`` on the node pairs of the topology, and ``H``."""
        form = bind(self._integrand(func), data, ("u", "gradu", "v", "gradv"), normal=True)
        if not (form.of_kind("trial") and form.of_kind("test")):
            raise FormError(
                f"{type(self).__name__}: a bilinear form needs one of u, gradu and one of v, gradv"
            )
        slots = self._topology.slots
        values = scatter(
            self._topology.n_slots,
            (
                (slots[block.kind][:, block.cells], self._matrices(form, block))
                for block in self._blocks(form, data)
            ),
        )
        return values, math.isqrt(values.shape[0])

    def _matrices(self, form: Form, block: CellBlock) -> Tensor:
        c = bilinear_coefficients(form, block.arguments, self.dimension, self.points)
        check_linear(form, block.arguments, self.dimension, self.points, c)
        return element_matrices(form, cells_last(form, c, block.grid), block.geometry, block.table)
