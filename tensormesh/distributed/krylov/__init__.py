"""Krylov methods: one a file, the same for one rank and for many."""

from tensormesh.distributed.krylov.bicgstab import bicgstab
from tensormesh.distributed.krylov.cg import cg
from tensormesh.distributed.krylov.gmres import gmres
from tensormesh.distributed.krylov.minres import minres
from tensormesh.distributed.krylov.solution import Solution

__all__ = ["Solution", "bicgstab", "cg", "gmres", "minres"]
