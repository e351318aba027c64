"""A partition as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tensormesh.distributed.collectives import agree, all_gather_rows
from tensormesh.visualization.figure import add_polygons, frame, new_axes, part_colours
from tensormesh.visualization.surface import as_triangles, visible_polygons

if TYPE_CHECKING:
    from tensormesh.distributed.mesh import DistributedMesh
    from tensormesh.distributed.part import Part


def plot_partition(
    dmesh: "DistributedMesh", path: "str | Path | None" = None, *, explode: float = 0.0
) -> Any:
    """Draw the cells coloured by part, with the nodes that parts share. **Collective.**

    What is drawn (the cells of a plane mesh, the surfaces of the parts of a solid) is gathered on
    every rank.

    Parameters
    ----------
    dmesh
        The mesh.
    path
        Where rank 0 writes the picture.
    explode
        How far to move each part from the centre, in distances of its own centre from it.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, on every rank.

    Raises
    ------
    ValueError
        On every rank, if there is nothing to draw, or the suffix of `path` is of no format.
    OSError
        On every rank, if the file cannot be written.
    ImportError
        Without matplotlib.
    """
    with agree(dmesh.device_mesh):
        rows, nodes = zip(*(_part(part) for part in dmesh.parts), strict=True)
    shift = _shifts(dmesh, explode)
    corners = all_gather_rows(torch.cat(rows).contiguous(), dmesh.device_mesh).cpu()
    shared = all_gather_rows(torch.cat(nodes).contiguous(), dmesh.device_mesh).cpu()
    part = corners[:, -1].long()
    dim = dmesh.parts[0].mesh.dim
    polygons = (corners[:, :-1].reshape(-1, 3, dim) + shift[part].unsqueeze(1)).numpy()
    points = (shared[:, :dim] + shift[shared[:, -1].long()]).numpy()
    figure, axes = new_axes(dim, f"{dmesh.num_partitions} parts by {dmesh.method}")
    style = {"cmap": part_colours(dmesh.num_partitions), "edgecolor": "white", "linewidth": 0.1}
    drawn = add_polygons(axes, list(polygons), **style)
    drawn.set_array(part.numpy())
    drawn.set_clim(-0.5, dmesh.num_partitions - 0.5)
    axes.scatter(*points.T, s=4, color="black", label="nodes of several parts")
    frame(axes, polygons.reshape(-1, dim))
    if len(points):
        axes.legend(loc="upper right", fontsize="small")
    with agree(dmesh.device_mesh):
        if path is not None and dmesh.device_mesh.get_local_rank() == 0:
            figure.savefig(path, dpi=150)
    return figure


def _part(part: "Part") -> tuple[torch.Tensor, torch.Tensor]:
    """Corners of the triangles to draw, and the nodes owned elsewhere, with the part's number."""
    points = part.mesh.points.detach().double()
    triangles = torch.from_numpy(as_triangles(visible_polygons(part.mesh))).to(points.device)
    number = points.new_full((1,), float(part.number))
    corners = points[triangles].flatten(1)
    ghosts = points[part.node_owner != part.number]
    return (
        torch.cat([corners, number.expand(corners.shape[0], 1)], dim=1),
        torch.cat([ghosts, number.expand(ghosts.shape[0], 1)], dim=1),
    )


def _shifts(dmesh: "DistributedMesh", explode: float) -> torch.Tensor:
    centres = torch.stack([part.mesh.points.detach().double().mean(0) for part in dmesh.parts])
    centres = all_gather_rows(centres, dmesh.device_mesh).cpu()
    return explode * (centres - centres.mean(0))
