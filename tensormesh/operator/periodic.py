"""Nodes of opposite sides that belong together."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor


def periodic_pairs(
    points: Any, translations: Tensor, tolerance: float = 1e-8
) -> tuple[Tensor, Tensor]:
    """Nodes that are images of others under translations.

    Parameters
    ----------
    points
        ``[n, dim]``; or a `DistributedMesh`, **collectively**: then each rank gets the pairs whose
        slaves it owns, in the numbering of the input, and points that no cell uses are left out.
    translations
        ``[m, dim]``: what leads from a side to the opposite one. A node that is an image under
        several, as at a corner, follows the first; its master may follow the next.
    tolerance
        Largest distance of a node from the place of an image.

    Returns
    -------
    slave, master
        Node numbers, int64 ``[n_pairs]``; each slave once, in ascending order.

    Raises
    ------
    ValueError
        If shapes do not fit, `tolerance` is not positive, or a translation leads from no node to
        another; on every rank.
    TypeError
        If `points` or `translations` is no tensor.
    """
    if not isinstance(points, Tensor) and hasattr(points, "periodic_pairs"):
        pairs: tuple[Tensor, Tensor] = points.periodic_pairs(translations, tolerance)
        return pairs
    shifts = checked_translations(points, translations, tolerance)
    places = points.detach().cpu().numpy()
    tree = cKDTree(places)
    master_of = np.full(len(places), -1)
    for shift in shifts:
        distance, image = tree.query(places + shift, distance_upper_bound=tolerance)
        master = np.flatnonzero(np.isfinite(distance) & (image != np.arange(len(places))))
        if not master.size:
            raise leads_nowhere(shift, tolerance)
        new = master_of[image[master]] < 0
        master_of[image[master][new]] = master[new]
    slave = torch.from_numpy(np.flatnonzero(master_of >= 0)).to(points.device)
    return slave, torch.from_numpy(master_of).to(points.device)[slave]


def checked_translations(points: Any, translations: Any, tolerance: float) -> NDArray[Any]:
    """Translations ``[m, dim]`` on the host; raises as `periodic_pairs`."""
    for name, x in {"points": points, "translations": translations}.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    if points.dim() != 2 or translations.dim() != 2 or translations.shape[1] != points.shape[1]:
        raise ValueError(
            f"points and translations must be [n, dim] and [m, dim], got {tuple(points.shape)} and "
            f"{tuple(translations.shape)}"
        )
    if not tolerance > 0:
        raise ValueError(f"tolerance must be positive, got {tolerance!r}")
    shifts: NDArray[Any] = translations.detach().cpu().numpy()
    return shifts


def leads_nowhere(shift: NDArray[Any], tolerance: float) -> ValueError:
    """What is wrong with a translation without images."""
    return ValueError(
        f"translations: {shift.tolist()} leads from no node to another within tolerance = "
        f"{tolerance:g}; the meshes of opposite sides have to match"
    )
