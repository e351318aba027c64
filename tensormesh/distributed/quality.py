"""How good a partition is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensormesh.distributed.collectives import all_gather_rows
from tensormesh.distributed.device_mesh import DeviceMesh
from tensormesh.distributed.part import Part
from tensormesh.mesh.facets import boundary_facets


@dataclass(frozen=True)
class PartitionQuality:
    """Sizes of all parts, int64 ``[n_parts]`` each.

    Parameters
    ----------
    cells, owned, ghosts
        Cells, owned nodes, and nodes of its cells that other parts own.
    neighbours
        Parts that a part exchanges nodes with.
    interface_facets
        Facets that a part shares with others.
    """

    cells: Tensor
    owned: Tensor
    ghosts: Tensor
    neighbours: Tensor
    interface_facets: Tensor

    @property
    def edge_cut(self) -> int:
        """Facets between cells of different parts."""
        return int(self.interface_facets.sum()) // 2

    @property
    def imbalance(self) -> float:
        """Most cells of a part over the mean, minus one."""
        return float(self.cells.max()) / float(self.cells.double().mean()) - 1.0

    def __str__(self) -> str:
        """Table with a row a part."""
        lines = ["part     cells     owned    ghosts  neighbours  interface facets"]
        columns = (self.cells, self.owned, self.ghosts, self.neighbours, self.interface_facets)
        for part, row in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
            lines.append("{:4d} {:9d} {:9d} {:9d} {:11d} {:17d}".format(part, *row))
        lines.append(f"imbalance {self.imbalance:.2%}, edge cut {self.edge_cut}")
        return "\n".join(lines)


def measure(parts: list[Part], n_parts: int, device_mesh: DeviceMesh) -> PartitionQuality:
    """Quality of a partition from the parts of each process. **Collective over `device_mesh`.**"""
    rows = torch.stack([_row(part, n_parts) for part in parts]).to(device_mesh.device)
    table = all_gather_rows(rows, device_mesh).cpu()
    needs = table[:, 4:] > 0
    neighbours = (needs | needs.T).sum(1)
    return PartitionQuality(table[:, 0], table[:, 1], table[:, 2], neighbours, table[:, 3])


def _row(part: Part, n_parts: int) -> Tensor:
    owned_by = torch.bincount(part.node_owner.cpu(), minlength=n_parts)
    n_owned = int(owned_by[part.number])
    owned_by[part.number] = 0
    interface = len(boundary_facets(part.mesh)) - len(part.mesh.boundary_facets())
    head = [part.mesh.n_elements, n_owned, int(owned_by.sum()), interface]
    return torch.cat([owned_by.new_tensor(head), owned_by])
