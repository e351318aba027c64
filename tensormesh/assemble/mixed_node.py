"""`MixedNodeAssembler`: linear forms of several fields, as vectors."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from tensormesh.assemble.base import ElementData
from tensormesh.assemble.mixed_assembler import MixedLinear


class MixedNodeAssembler(MixedLinear):
    """Vector of a linear form of several fields: a right-hand side of `MixedElementAssembler`.

    A subclass names its `fields` and defines ``forward`` at one point, with test functions and
    their gradients, and further arguments as of `NodeAssembler`. It returns a number.

    Examples
    --------
    >>> import tensormesh as tm
    >>> class Weight(tm.MixedNodeAssembler):
    ...     fields = {"u": tm.Field("v", components=2, order=2), "p": tm.Field("q")}
    ...     def forward(self, v):
    ...         return -9.81 * v[1]
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5).raised(2)
    >>> weight = Weight.from_mesh(mesh)
    >>> f = weight.layout.split(weight())
    >>> round(float(f["u"].sum()), 12), float(f["p"].abs().max())
    (-9.81, 0.0)
    """

    _family = "mixed node"

    def __call__(
        self,
        points: Tensor | None = None,
        func: Callable[..., Tensor] | None = None,
        point_data: Mapping[str, Tensor] | None = None,
        scalar_data: Mapping[str, Any] | None = None,
        *,
        element_data: ElementData | None = None,
    ) -> Tensor:
        """Assemble the vector.

        Parameters
        ----------
        points, func, point_data, scalar_data, element_data
            As of `ElementAssembler.__call__`; data at nodes have the order of the cells.

        Returns
        -------
        Tensor
            ``[n * h]``, zero where a field has no unknown; differentiable in points and data.

        Raises
        ------
        ValueError, TypeError
            As of `ElementAssembler.__call__`.
        """
        self._set_points(points)
        values, _ = self._node_values(func, self._data(point_data, element_data, scalar_data))
        return values.reshape(-1)
