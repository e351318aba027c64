"""Preconditioners of sharded systems: approximate inverses, for ``M @ r`` on owned slices."""

from tensormesh.distributed.preconditioner.interface import Scaled
from tensormesh.distributed.preconditioner.jacobi import Jacobi
from tensormesh.distributed.preconditioner.multilevel import Multilevel
from tensormesh.distributed.preconditioner.named import preconditioner_named
from tensormesh.distributed.preconditioner.schwarz import Schwarz
from tensormesh.sparse.krylov.preconditioner import Adjoint, Preconditioner

__all__ = [
    "Adjoint",
    "Jacobi",
    "Multilevel",
    "Preconditioner",
    "Scaled",
    "Schwarz",
    "preconditioner_named",
]
