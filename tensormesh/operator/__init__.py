"""Operators on assembled systems: constraints."""

from tensormesh.operator.condenser import Condenser

__all__ = ["Condenser"]
