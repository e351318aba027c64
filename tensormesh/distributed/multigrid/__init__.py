"""Smoothed aggregation over the ranks: one idea a file, from strength of connection to the cycle.

Aggregates never cross ranks ("uncoupled"), so coarsening sends nothing. Smoothing the prolongator
and the Galerkin product see neighbours; each level is a sharded matrix with a halo of its own.
"""

from tensormesh.distributed.multigrid.cycle import Cycle
from tensormesh.distributed.multigrid.hierarchy import Hierarchy, build, finest_level

__all__ = ["Cycle", "Hierarchy", "build", "finest_level"]
