"""Operators on assembled systems: constraints, and the motions that they have to hold."""

from tensormesh.operator.condenser import Condenser
from tensormesh.operator.rigid_modes import rigid_modes

__all__ = ["Condenser", "rigid_modes"]
