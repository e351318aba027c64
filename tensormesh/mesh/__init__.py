"""Meshes: points, cells by type, data, files, facets."""

from tensormesh.mesh.mesh import Mesh

__all__ = ["Mesh"]
