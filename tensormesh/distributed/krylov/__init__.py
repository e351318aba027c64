"""Krylov methods: one a file, the same for one rank and for many."""

from tensormesh.distributed.krylov.cg import cg
from tensormesh.distributed.krylov.solution import Solution

__all__ = ["Solution", "cg"]
