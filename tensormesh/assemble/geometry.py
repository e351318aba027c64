"""Cell geometry at quadrature points: determinants, inverse Jacobians, coordinates."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensormesh.element.cell_type import cell_type
from tensormesh.element.lagrange import tabulate


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
    """

    values: Tensor
    gradients: Tensor
    weights: Tensor

    def rows(self, with_value: bool, with_gradient: bool) -> Tensor:
        """Value, then reference derivatives, of each basis function: ``[Q, T, B]``."""
        parts = [self.values.unsqueeze(1)] if with_value else []
        parts += [self.gradients.transpose(1, 2)] if with_gradient else []
        return torch.cat(parts, dim=1)


def tabulation(name: str, points: Tensor, weights: Tensor, like: Tensor) -> Tabulation:
    """Basis of cell type `name` at reference `points`, in the dtype and on the device of `like`."""
    values, gradients = tabulate(name, points)
    real = like.real if like.is_complex() else like
    return Tabulation(values.to(real), gradients.to(real), weights.to(real))


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

    def slice(self, block: slice) -> "CellGeometry":
        """Geometry of a block of the cells."""
        return CellGeometry(self.measure[..., block], self.inverse[..., block])


def is_affine(name: str) -> bool:
    """Whether the map of cell type `name` is affine: linear simplices."""
    kind = cell_type(name)
    return kind.order == 1 and kind.n_vertices == kind.dim + 1


def cell_geometry(
    name: str, corners: Tensor, table: Tabulation, numbers: Tensor | None = None
) -> CellGeometry:
    """Geometry of cells from their nodes.

    Parameters
    ----------
    name
        Cell type.
    corners
        Node coordinates ``[gdim, B, E]``.
    table
        Basis of the cell type at the quadrature points.
    numbers
        Index of each of these cells, for messages; None: they are all cells of the type.

    Raises
    ------
    ValueError
        If a cell has no volume, or folds over: its determinant changes sign inside. The message
        counts such cells and names the first. A cell of negative orientation is as good as its
        mirror image.
    """
    gradients = table.gradients[:1] if is_affine(name) else table.gradients
    n_points, n_basis, tdim = gradients.shape
    by_row = gradients.transpose(1, 2).reshape(n_points * tdim, n_basis)
    # The gradients of a basis sum to zero, so the place of a cell does not matter; seen from its
    # first node, nodes that coincide give exact zeros, and a mesh far away loses no digits.
    jacobian = (by_row @ (corners - corners[:, :1])).unflatten(1, (n_points, tdim))
    gdim = corners.shape[0]  # jacobian: [gdim, Q, tdim, E]
    if gdim == tdim:
        determinant, inverse = _inverse(jacobian)
    else:
        gram = torch.einsum("dqke,dqle->kqle", jacobian, jacobian)
        squared, gram_inverse = _inverse(gram)
        determinant = squared.clamp_min(0).sqrt()
        inverse = torch.einsum("qkle,dqle->qkde", gram_inverse, jacobian)
    measure = determinant.abs()
    _refuse_flat(name, corners, measure, tdim, numbers)
    _refuse_folded(name, determinant, numbers)
    return CellGeometry(measure, inverse)


def _inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Determinants ``[Q, E]`` and inverses ``[Q, k, d, E]`` of ``[d, Q, k, E]``, k = d <= 3.

    Cramer's rule: the columns of the inverse are cross products of the rows.
    """
    if matrix.shape[0] == 1:
        determinant = matrix[0, :, 0]
        return determinant, (1 / matrix).transpose(0, 1)
    if matrix.shape[0] == 2:
        r, s = matrix
        determinant = r[:, 0] * s[:, 1] - r[:, 1] * s[:, 0]
        columns = [torch.stack([s[:, 1], -s[:, 0]], 1), torch.stack([-r[:, 1], r[:, 0]], 1)]
    else:
        r, s, t = matrix
        columns = [_cross(s, t), _cross(t, r), _cross(r, s)]
        determinant = (r * columns[0]).sum(1)
    adjugate = torch.stack(columns, dim=2)
    return determinant, adjugate / determinant[:, None, None]


def _cross(a: Tensor, b: Tensor) -> Tensor:
    """Cross product along axis 1 of ``[Q, 3, E]``."""
    a0, a1, a2 = a.unbind(1)
    b0, b1, b2 = b.unbind(1)
    return torch.stack([a1 * b2 - a2 * b1, a2 * b0 - a0 * b2, a0 * b1 - a1 * b0], dim=1)


def _refuse_flat(
    name: str, corners: Tensor, measure: Tensor, tdim: int, numbers: Tensor | None
) -> None:
    if corners.shape[-1] == 0:
        return
    detached = corners.detach()
    size = (detached.amax(1) - detached.amin(1)).amax(0)
    # Asked this way round, coordinates that are not finite are caught too.
    flat = ~(measure.detach() > torch.finfo(measure.dtype).eps * size**tdim).all(0)
    why = "points coincide, are in one plane or are not finite"
    _refuse(flat, name, "have no volume", why, numbers)


def _refuse_folded(name: str, determinant: Tensor, numbers: Tensor | None) -> None:
    negative = determinant.detach() < 0
    folded = negative.any(0) & ~negative.all(0)
    why = "the nodes are in another order than meshio's, or lie too far off their places"
    _refuse(folded, name, "fold over", why, numbers)


def _refuse(wrong: Tensor, name: str, what: str, why: str, numbers: Tensor | None) -> None:
    if not bool(wrong.any()):
        return
    cells = wrong.nonzero().flatten()
    first = int(cells[0] if numbers is None else numbers[cells[0]])
    raise ValueError(
        f"{cells.numel()} cells of type {name!r} {what} (first: cell {first}): {why}; "
        "repair the mesh"
    )
