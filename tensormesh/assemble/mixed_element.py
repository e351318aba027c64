"""`MixedElementAssembler`: bilinear forms of several fields, as one sparse matrix."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import ElementData, check_batch_size
from tensormesh.assemble.blocks import CellBlock
from tensormesh.assemble.form import FormData
from tensormesh.assemble.has_energy import HasEnergy
from tensormesh.assemble.linearize import coefficients, variation
from tensormesh.assemble.mixed_assembler import MixedBilinear
from tensormesh.assemble.mixed_linearize import State
from tensormesh.assemble.mixed_tangent import HasMixedTangent
from tensormesh.assemble.tangent import DATA
from tensormesh.sparse.matrix import SparseMatrix


class MixedElementAssembler(HasMixedTangent, HasEnergy, MixedBilinear):
    """Sparse matrix of a bilinear form of several fields.

    A subclass names its `fields` and defines ``forward`` at one point: of each field its name and
    ``grad`` before it (columns of the matrix), of its test function likewise (rows), and further
    arguments as of `ElementAssembler`. It returns a number. Unknowns are those of a `BlockLayout`.

    Fields of the order of the mesh have unknowns at all nodes, fields of order 1 at vertices, and
    others as many as cells of their order have nodes: for Taylor-Hood elements of orders 2 and 1
    take ``mesh.raised(2)``, of orders 3 and 2 ``mesh.raised(3)``.

    It may define ``element_energy`` instead, with the fields themselves as arguments: `energy`
    integrates it, `internal_force` and `tangent` are its derivatives by all fields.

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

    def internal_force(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        element_data: ElementData | None = None,
        scalar_data: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Derivative of `energy` by the unknowns of all fields: the residual without loads.

        By automatic differentiation at each point; `tangent` is the derivative of this.

        Parameters
        ----------
        points, func, element_data, scalar_data
            As of `energy`; real.
        point_data
            As of `energy`, the fields among them, such as ``at_nodes(x)``.

        Returns
        -------
        Tensor
            ``[n * h]``, zero where a field has no unknown; differentiable.

        Raises
        ------
        NotImplementedError, ValueError, TypeError
            As of `energy` and `tangent`.

        Examples
        --------
        >>> import torch, tensormesh as tm
        >>> class Heated(tm.MixedElementAssembler):
        ...     fields = {"u": tm.Field("v", components=2, order=2), "T": tm.Field("s")}
        ...     def element_energy(self, gradu, T):
        ...         return (gradu * gradu).sum() / 2 - T * gradu.trace()
        >>> heated = Heated.from_mesh(tm.Mesh.gen_rectangle(chara_length=0.5).raised(2))
        >>> x = torch.linspace(0, 1, 75, dtype=torch.float64)
        >>> fields = heated.at_nodes(x)
        >>> K, f = heated.tangent(point_data=fields), heated.internal_force(point_data=fields)
        >>> K.shape, f.shape
        ((75, 75), torch.Size([75]))
        """
        call = dict(zip(DATA, (point_data, element_data, scalar_data), strict=True))
        return self._assembled_force({"points": points, "func": func, **call}, None)

    def _force_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        """Values ``[n, h]`` and ``h``."""
        form = self._density(func, data)
        state = State(form, data, self.layout, self.dimension)

        def at_points(block: CellBlock) -> Tensor:
            return coefficients(partial(variation, form, state), state, block.arguments)[..., 0]

        return self._vectors(form, data, [state.side], at_points), self.layout.h

    def _tangent_values(
        self, func: Callable[..., Tensor] | None, data: FormData, unknown: str | None
    ) -> tuple[Tensor, int]:
        form = self._density(func, data)
        state = State(form, data, self.layout, self.dimension)
        make = partial(variation, form, state)
        return self._derivative(form, data, [state.side] * 2, make, state), self.layout.h
