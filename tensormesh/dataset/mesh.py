"""The generators in one place; those of curved shapes need the extra ``gmsh``."""

from tensormesh.mesh.carved import gen_hollow_cube, gen_hollow_rectangle, gen_L
from tensormesh.mesh.curved import gen_circle, gen_hollow_circle, gen_hollow_sphere, gen_sphere
from tensormesh.mesh.generators import gen_cube, gen_rectangle
from tensormesh.mesh.mesh_gen import MeshGen

__all__ = [
    "MeshGen",
    "gen_L",
    "gen_circle",
    "gen_cube",
    "gen_hollow_circle",
    "gen_hollow_cube",
    "gen_hollow_rectangle",
    "gen_hollow_sphere",
    "gen_rectangle",
    "gen_sphere",
]
