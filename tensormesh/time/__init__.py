"""Steps in time of linear problems, with matrices of one process or sharded ones."""

from tensormesh.time.first_order import ThetaMethod
from tensormesh.time.second_order import GeneralizedAlpha, Motion, Newmark

__all__ = ["GeneralizedAlpha", "Motion", "Newmark", "ThetaMethod"]
