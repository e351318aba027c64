"""Pictures of meshes and fields, by matplotlib (extra ``plot``)."""

from tensormesh.visualization.field import plot_field

__all__ = ["plot_field"]
