"""Operators on assembled systems: constraints, and the motions that they have to hold."""

from tensormesh.operator.condenser import Condenser
from tensormesh.operator.multipoint import MultiPoint
from tensormesh.operator.periodic import periodic_pairs
from tensormesh.operator.rigid_modes import rigid_modes

__all__ = ["Condenser", "MultiPoint", "periodic_pairs", "rigid_modes"]
