"""Partitioners: the part of each cell by coordinates, spectral bisection or METIS."""

from tensormesh.mesh.partition.cells import partition_cells, partition_mesh
from tensormesh.mesh.partition.graph import graph_partition

__all__ = ["graph_partition", "partition_cells", "partition_mesh"]
