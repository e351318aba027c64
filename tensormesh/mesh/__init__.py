"""Meshes: points, cells by type, data, files, facets, graphs, parts."""

from tensormesh.mesh.coloring import graph_coloring
from tensormesh.mesh.mesh import Mesh
from tensormesh.mesh.partition import graph_partition

__all__ = ["Mesh", "graph_coloring", "graph_partition"]
