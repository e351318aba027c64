"""Pictures of meshes and fields, by matplotlib (extra ``plot``)."""

from tensormesh.visualization.field import plot_field
from tensormesh.visualization.plot import plot_mesh

__all__ = ["plot_field", "plot_mesh"]
