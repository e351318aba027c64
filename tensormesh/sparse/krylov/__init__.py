"""Krylov methods: one a file, the same for one rank and for many."""

from tensormesh.sparse.krylov.bicgstab import bicgstab
from tensormesh.sparse.krylov.cg import cg
from tensormesh.sparse.krylov.gmres import gmres
from tensormesh.sparse.krylov.lobpcg import lobpcg
from tensormesh.sparse.krylov.minres import minres
from tensormesh.sparse.krylov.solution import Solution

__all__ = ["Solution", "bicgstab", "cg", "gmres", "lobpcg", "minres"]
