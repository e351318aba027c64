"""A nodal field as a picture."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tensormesh.mesh.mesh import Mesh
from tensormesh.visualization.figure import add_polygons, frame, new_axes
from tensormesh.visualization.surface import as_triangles, visible_polygons


def plot_field(
    mesh: Mesh,
    values: Tensor,
    path: str | Path | None = None,
    *,
    displacement: Tensor | None = None,
    title: str | None = None,
    label: str | None = None,
) -> Any:
    """Draw a nodal field: on a plane mesh, or on the surface of a solid.

    Parameters
    ----------
    mesh
        2-D or 3-D.
    values
        ``[n]``.
    path
        Where to write the picture; the suffix chooses the format.
    displacement
        ``[n, D]``, added to the points, as large as it is given.
    title, label
        Of the figure and of its colour bar.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.

    Raises
    ------
    ValueError
        If a length does not fit or there is nothing to draw.
    ImportError
        Without matplotlib.
    """
    if values.shape != (mesh.n_points,):
        raise ValueError(f"values has shape {tuple(values.shape)}, expected [{mesh.n_points}]")
    points = mesh.points.detach()
    if displacement is not None:
        if displacement.shape != points.shape:
            raise ValueError(
                f"displacement has shape {tuple(displacement.shape)}, "
                f"expected {tuple(points.shape)}"
            )
        points = points + displacement.detach()
    corners = points.cpu().numpy()
    colours = values.detach().cpu().numpy()
    triangles = as_triangles(visible_polygons(mesh))
    figure, axes = new_axes(mesh.dim, title)
    if mesh.dim == 2:
        drawn = axes.tripcolor(*corners.T, triangles, colours, shading="gouraud")
    else:
        drawn = add_polygons(axes, list(corners[triangles]))
        drawn.set_array(colours[triangles].mean(axis=1))
        drawn.set_edgecolor("face")
    frame(axes, corners[np.unique(triangles)])
    figure.colorbar(drawn, ax=axes, label=label, shrink=0.7)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
