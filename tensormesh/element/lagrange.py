"""Values and reference gradients of the Lagrange basis, in file node order."""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tensormesh.element.cell_type import cell_type, lagrange_element
from tensormesh.element.reference import SHAPES, file_order_nodes


def tabulate(name: str, points: Tensor) -> tuple[Tensor, Tensor]:
    """Values and gradients of the basis of cell type `name` at reference points.

    Parameters
    ----------
    name
        Cell type, see `cell_type`.
    points
        Reference coordinates, (Q, tdim).

    Returns
    -------
    values
        (Q, B), float64, column i belongs to node i of the cell as the file numbers them.
    gradients
        (Q, B, tdim), float64, with respect to the reference coordinates. At the apex of a
        pyramid the gradient has no limit; its value there is a finite choice of basix.

    Raises
    ------
    KeyError
        If the cell type is not supported.
    ValueError
        If `points` is not (Q, tdim).
    """
    tdim = cell_type(name).dim
    if points.ndim != 2 or points.shape[1] != tdim:
        raise ValueError(
            f"points must have shape (Q, {tdim}) for {name!r}, got {tuple(points.shape)}."
        )
    where = np.ascontiguousarray(points.detach().cpu().numpy(), dtype=np.float64)
    values, gradients = _tabulate(name, where.tobytes(), len(where))
    return (
        torch.tensor(values, device=points.device),
        torch.tensor(gradients, device=points.device),
    )


def reference_nodes(name: str) -> Tensor:
    """Reference coordinates of the nodes of cell type `name`, in file order.

    Returns
    -------
    Tensor
        (B, tdim), float64.
    """
    kind = cell_type(name)
    return torch.from_numpy(file_order_nodes(SHAPES[kind.shape], kind.order))


@lru_cache(maxsize=512)
def _tabulate(
    name: str, points: bytes, n_points: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    kind = cell_type(name)
    if kind.dim == 0:
        return np.ones((n_points, 1)), np.zeros((n_points, 1, 0))
    where = np.frombuffer(points).reshape(n_points, kind.dim)
    table = np.asarray(lagrange_element(name).tabulate(1, where))[..., 0]
    table = table[:, :, list(kind.basix_permutation)]
    return table[0], np.moveaxis(table[1:], 0, 2)
