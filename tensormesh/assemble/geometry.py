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

    Parameters
    ----------
    measure
        ``sqrt(det(J^T J))``, that is ``|det J|`` on cells of full dimension: ``[E, Q or 1]``.
    inverse
        ``dX/dx``, reference by physical direction: ``[E, Q or 1, tdim, gdim]``.
    """

    measure: Tensor
    inverse: Tensor

    def slice(self, block: slice) -> "CellGeometry":
        """Geometry of a block of the cells."""
        return CellGeometry(self.measure[block], self.inverse[block])


def is_affine(name: str) -> bool:
    """Whether the map of cell type `name` is affine: linear simplices."""
    kind = cell_type(name)
    return kind.order == 1 and kind.shape in ("line", "triangle", "tetrahedron")


def cell_geometry(
    name: str, corners: Tensor, table: Tabulation, numbers: Tensor | None = None
) -> CellGeometry:
    """Geometry of cells from their nodes.

    Parameters
    ----------
    name
        Cell type.
    corners
        Node coordinates ``[E, B, gdim]``.
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
    # The gradients of a basis sum to zero, so the place of a cell does not matter. Seen from its
    # first node, nodes that coincide give exact zeros, and a mesh far off loses no digits.
    jacobian = torch.einsum("qbk,ebd->eqdk", gradients, corners - corners[:, :1])
    gdim, tdim = jacobian.shape[-2:]
    if gdim == tdim:
        determinant = torch.linalg.det(jacobian)
    else:
        gram = jacobian.mT @ jacobian
        determinant = torch.linalg.det(gram).clamp_min(0).sqrt()
    measure = determinant.abs()
    _refuse_flat(name, corners, measure, tdim, numbers)
    _refuse_folded(name, determinant, numbers)
    if gdim == tdim:
        return CellGeometry(measure, torch.linalg.inv(jacobian))
    return CellGeometry(measure, torch.linalg.solve(gram, jacobian.mT))


def _refuse_flat(
    name: str, corners: Tensor, measure: Tensor, tdim: int, numbers: Tensor | None
) -> None:
    if corners.shape[0] == 0:
        return
    detached = corners.detach()
    size = (detached.amax(1) - detached.amin(1)).amax(1)
    flat = (measure.detach() <= torch.finfo(measure.dtype).eps * size.unsqueeze(1) ** tdim).any(1)
    _refuse(flat, name, "have no volume", "points coincide or are in one plane", numbers)


def _refuse_folded(name: str, determinant: Tensor, numbers: Tensor | None) -> None:
    negative = determinant.detach() < 0
    folded = negative.any(1) & ~negative.all(1)
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
