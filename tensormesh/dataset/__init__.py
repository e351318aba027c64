"""Meshes of simple shapes."""

from tensormesh.dataset.mesh import (
    MeshGen,
    gen_circle,
    gen_cube,
    gen_hollow_circle,
    gen_hollow_cube,
    gen_hollow_rectangle,
    gen_hollow_sphere,
    gen_L,
    gen_rectangle,
    gen_sphere,
)

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
