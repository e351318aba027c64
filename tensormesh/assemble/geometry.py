"""Cell geometry at quadrature points: determinants, inverse Jacobians, coordinates."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_name, cell_type
from tensormesh.element.lagrange import tabulate

_ALL = slice(None)


@dataclass(frozen=True)
class Tabulation:
    """Basis of one reference cell at a set of points.

    Parameters
    ----------
    values
        ``[Q, B]``.
    gradients
        Reference gradients ``[Q, B, tdim]``.
    weights
        ``[Q]``.
    mapping
        Basis of the map from the reference cell, where that is another one.
    """

    values: Tensor
    gradients: Tensor
    weights: Tensor
    mapping: "Tabulation | None" = None

    @property
    def of_map(self) -> "Tabulation":
        """Basis of the map from the reference cell, at the same points."""
        return self.mapping or self

    @property
    def is_affine(self) -> bool:
        """Whether that map is affine: a simplex by its vertices."""
        n_basis, tdim = self.of_map.gradients.shape[1:]
        return n_basis == tdim + 1

    def rows(self, with_value: bool, with_gradient: bool) -> Tensor:
        """Value, then reference derivatives, of each basis function: ``[Q, T, B]``."""
        parts = [self.values.unsqueeze(1)] if with_value else []
        parts += [self.gradients.transpose(1, 2)] if with_gradient else []
        return torch.cat(parts, dim=1)


def tabulation(
    name: str, points: Tensor, weights: Tensor, like: Tensor, geometry_order: int | None = None
) -> Tabulation:
    """Basis of cell type `name` at reference `points`, in the dtype and on the device of `like`.

    With `geometry_order` the map is that of a cell of that order.
    """
    values, gradients = tabulate(name, points)
    real = like.real if like.is_complex() else like
    mapped, mapping = map_type(name, geometry_order), None
    if mapped != name:
        mapping = tabulation(mapped, points, weights, like)
    return Tabulation(values.to(real), gradients.to(real), weights.to(real), mapping)


def map_type(name: str, geometry_order: int | None) -> str:
    """Cell type whose basis maps the reference cell to cells `name` of a mesh."""
    return name if geometry_order is None else cell_name(cell_type(name).shape, geometry_order)


@dataclass(frozen=True)
class CellGeometry:
    """Map from the reference cell, for ``E`` cells at ``Q`` points (or one, where it is affine).

    Cells are the last axis: each component is an array over cells, and arithmetic with components
    runs along it.

    Parameters
    ----------
    measure
        ``sqrt(det(J^T J))``, that is ``|det J|`` on cells of full dimension: ``[Q or 1, E]``.
    inverse
        ``dX/dx``, reference by physical direction: ``[Q or 1, tdim, gdim, E]``.
    """

    measure: Tensor
    inverse: Tensor


def cell_geometry(
    name: str, corners: Tensor, table: Tabulation, numbers: Tensor | slice = _ALL
) -> CellGeometry:
    """Geometry of cells from their nodes.

    Parameters
    ----------
    name
        Cell type.
    corners
        Coordinates of the nodes that make the geometry, ``[gdim, B, E]``.
    table
        Basis of the cell type, and of its map, at the quadrature points.
    numbers
        Index of each of these cells, for messages; by default they are all cells of the type.

    Raises
    ------
    ValueError
        If a cell has no volume, or folds over: its determinant changes sign inside. The message
        counts such cells and names the first. A cell of negative orientation is as good as its
        mirror image.
    """
    jacobian = _jacobian(corners, table)
    gdim, tdim = jacobian.shape[0], jacobian.shape[2]
    if gdim == tdim:
        determinant, inverse = _inverse(jacobian)
    else:
        gram = torch.einsum("dqke,dqle->kqle", jacobian, jacobian)
        squared, gram_inverse = _inverse(gram)
        determinant = squared.clamp_min(0).sqrt()
        inverse = torch.einsum("qkle,dqle->qkde", gram_inverse, jacobian)
    measure = determinant.abs()
    _refuse_flat(name, corners, measure, tdim, numbers)
    if len(determinant) > 1:
        _refuse_folded(name, determinant, numbers)
    return CellGeometry(measure, inverse)


def _jacobian(corners: Tensor, table: Tabulation) -> Tensor:
    """``dx/dX``, ``[gdim, Q or 1, tdim, E]``.

    The gradients of a basis sum to zero, so the place of a cell does not matter; seen from its
    first node, nodes that coincide give exact zeros, and a mesh far away loses no digits.
    """
    if table.is_affine:
        return (corners[:, 1:] - corners[:, :1]).unsqueeze(1)
    gradients = table.of_map.gradients
    n_points, n_basis, tdim = gradients.shape
    by_row = gradients.transpose(1, 2).reshape(n_points * tdim, n_basis)
    return (by_row @ (corners - corners[:, :1])).unflatten(1, (n_points, tdim))


def _inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Determinants ``[Q, E]`` and inverses ``[Q, k, d, E]`` of ``[d, Q, k, E]``, k = d <= 3.

    Cramer's rule: the columns of the inverse are cross products of the rows.
    """
    if matrix.shape[0] == 1:
        determinant = matrix[0, :, 0]
        return determinant, (1 / matrix).transpose(0, 1)
    if matrix.shape[0] == 2:
        r, s = matrix.unbind(0)
        determinant = _minor(r, s, 0, 1)
        cofactors = [s[:, 1], -r[:, 1], -s[:, 0], r[:, 0]]
    else:
        r, s, t = matrix.unbind(0)
        pairs = ((s, t), (t, r), (r, s))
        # Row by row of the inverse: component k of each cross product.
        cofactors = [_minor(a, b, (k + 1) % 3, (k + 2) % 3) for k in range(3) for a, b in pairs]
        of_r = cofactors[::3]
        determinant = torch.addcmul(r[:, 0] * of_r[0], r[:, 1], of_r[1])
        determinant = torch.addcmul(determinant, r[:, 2], of_r[2])
    adjugate = torch.stack(cofactors, dim=1)
    inverse = adjugate * (1 / determinant).unsqueeze(1)
    return determinant, inverse.unflatten(1, matrix.shape[:1] * 2)


def _minor(a: Tensor, b: Tensor, i: int, j: int) -> Tensor:
    """``a_i b_j - a_j b_i`` of components along axis 1."""
    return torch.addcmul(a[:, i] * b[:, j], a[:, j], b[:, i], value=-1)


def _refuse_flat(
    name: str, corners: Tensor, measure: Tensor, tdim: int, numbers: Tensor | slice
) -> None:
    if corners.shape[-1] == 0:
        return
    detached = corners.detach()
    size = (detached[:, 1:] - detached[:, :1]).abs().amax((0, 1))
    # Asked this way round, coordinates that are not finite are caught too.
    flat = ~(measure.detach() > torch.finfo(measure.dtype).eps * size**tdim).all(0)
    why = "points coincide, are in one plane or are not finite"
    _refuse(flat, name, "have no volume", why, numbers)


def _refuse_folded(name: str, determinant: Tensor, numbers: Tensor | slice) -> None:
    negative = determinant.detach() < 0
    folded = negative.any(0) & ~negative.all(0)
    why = "the nodes are in another order than meshio's, or lie too far off their places"
    _refuse(folded, name, "fold over", why, numbers)


def _refuse(wrong: Tensor, name: str, what: str, why: str, numbers: Tensor | slice) -> None:
    if not bool(wrong.any()):
        return
    cells = wrong.nonzero().flatten()
    first = int(cells[0])
    first += (numbers.start or 0) if isinstance(numbers, slice) else int(numbers[first]) - first
    raise ValueError(
        f"{cells.numel()} cells of type {name!r} {what} (first: cell {first}): {why}; "
        "repair the mesh"
    )
