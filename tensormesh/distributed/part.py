"""One part of a mesh in the process that assembles it."""

from dataclasses import dataclass

from torch import Tensor

from tensormesh.mesh.mesh import Mesh


@dataclass(frozen=True)
class Part:
    """A part, and how its nodes are numbered elsewhere.

    Parameters
    ----------
    number
        Number of the part.
    mesh
        Its cells, on its device; nodes in increasing global number.
    node_owner
        Part that owns each node, int64 ``[n_part]``.
    to_local
        Local index of each node in the process's index map, int64 ``[n_part]``.
    """

    number: int
    mesh: Mesh
    node_owner: Tensor
    to_local: Tensor

    @property
    def node_ids(self) -> Tensor:
        """Global number of each node, int64 ``[n_part]``."""
        ids: Tensor = self.mesh.point_data["orig_nid"]
        return ids
