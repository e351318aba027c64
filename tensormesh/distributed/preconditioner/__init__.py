"""Preconditioners of sharded systems: approximate inverses, for ``M @ r`` on owned slices."""

from tensormesh.distributed.preconditioner.interface import Adjoint, Preconditioner, Scaled
from tensormesh.distributed.preconditioner.jacobi import Jacobi
from tensormesh.distributed.preconditioner.multilevel import Multilevel
from tensormesh.distributed.preconditioner.named import PRECONDITIONERS, preconditioner_named
from tensormesh.distributed.preconditioner.schwarz import Schwarz

__all__ = [
    "PRECONDITIONERS",
    "Adjoint",
    "Jacobi",
    "Multilevel",
    "Preconditioner",
    "Scaled",
    "Schwarz",
    "preconditioner_named",
]
