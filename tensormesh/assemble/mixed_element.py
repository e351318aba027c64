"""`MixedElementAssembler`: bilinear forms of several fields, as one sparse matrix."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import ElementData, check_batch_size
from tensormesh.assemble.mixed_assembler import MixedBilinear
from tensormesh.sparse.matrix import SparseMatrix


class MixedElementAssembler(MixedBilinear):
    """Sparse matrix of a bilinear form of several fields.

    A subclass names its `fields` and defines ``forward`` at one point: of each field its name and
    ``grad`` before it (columns of the matrix), of its test function likewise (rows), and further
    arguments as of `ElementAssembler`. It returns a number. Unknowns are those of a `BlockLayout`.

    Fields of the order of the mesh have unknowns at all nodes, fields of order 1 at vertices, and
    others as many as cells of their order have nodes: for Taylor-Hood elements of orders 2 and 1
    take ``mesh.raised(2)``, of orders 3 and 2 ``mesh.raised(3)``.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Stokes(tm.MixedElementAssembler):
    ...     fields = {"u": tm.Field("v", components=2, order=2), "p": tm.Field("q")}
    ...     def forward(self, gradu, gradv, p, q):
    ...         return (gradu * gradv).sum() - p * gradv.trace() - q * gradu.trace()
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5).raised(2)
    >>> K = Stokes.from_mesh(mesh)()
    >>> K.shape
    (75, 75)
    """

    _family = "mixed element"

    def __call__(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
        batch_size: int = -1,
    ) -> SparseMatrix:
        """Assemble the matrix.

        Parameters
        ----------
        points, func, point_data, element_data, scalar_data, batch_size
            As of `ElementAssembler.__call__`; data at nodes have the order of the cells.

        Returns
        -------
        SparseMatrix
            ``[n * h, n * h]``, sorted by row then column, without entries where a field has no
            unknown; differentiable in points and data.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        check_batch_size(batch_size)
        self._set_points(points)
        data = self._data(point_data, element_data, scalar_data, batch_size)
        return self._matrix(*self._block_values(func, data))
