"""`PerQuadraturePoint`: the marker of values that vary inside a cell."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PerQuadraturePoint:
    """Values at each quadrature point of each cell, as an entry of ``element_data``.

    A bare tensor ``[E, 3]`` is a vector a cell, also where cells happen to have three points.
    Marked, its second axis are the points, in the order of ``assembler.transformation[kind]``.

    Parameters
    ----------
    values
        ``[E, Q, ...]``; a form sees ``[...]``.

    Examples
    --------
    >>> import tensormesh as tm
    >>> mesh = tm.Mesh.gen_rectangle(chara_length=0.5)
    >>> mass = tm.MassElementAssembler.from_mesh(mesh)
    >>> at = mass.transformation["triangle"]
    >>> x = (at.shape_val @ at.element_coords)[..., 0]
    >>> M = mass(func=lambda u, v, c: c * u * v, element_data={"c": tm.PerQuadraturePoint(x)})
    >>> round(float(M.sum()), 12)
    0.5
    """

    values: Tensor
