"""Process that assembles with PyPI's tensormesh-fem: `python -m peers.tensormesh_fem`, or torchrun.

It must run in an environment where ``import tensormesh`` finds that package.
"""

from importlib.metadata import version
from typing import Any

import meshio
import numpy as np
import torch
import torch.distributed as dist
from cases import POISSON, YOUNG, Case
from cube import cube_points, kuhn_tetrahedra
from fields import moved, probe
from harness import Peer, main

import tensormesh as tm
from tensormesh.distributed import distributed_element_assemble_per_rank

ASSEMBLERS = {
    "laplace": tm.LaplaceElementAssembler,
    "mass": tm.MassElementAssembler,
    "elasticity": tm.LinearElasticityElementAssembler,
}


class TensormeshFem(Peer):
    """Linear tetrahedra; on several ranks each call starts from the distributed mesh."""

    name = "tensormesh-fem"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        if dist.is_torchelastic_launched():
            dist.init_process_group("gloo")
            self.ranks, self.root = dist.get_world_size(), dist.get_rank() == 0
        cells = {"tetra": kuhn_tetrahedra(case.n)}
        self.mesh = tm.Mesh(meshio.Mesh(cube_points(case.n), cells)).double()
        self.points: torch.Tensor | None = None

    def version(self) -> str:
        """Version of the package and of torch."""
        return f"{version('tensormesh-fem')}, torch {torch.__version__}"

    def make_mesh(self) -> None:
        """Cut the mesh, on several ranks."""
        if self.ranks > 1:
            self.dmesh = tm.DistributedMesh(self.mesh, self.ranks, method="coordinate")

    def prepare(self) -> None:
        """Parameters of the form."""
        self.start = self.mesh.points.numpy().copy()
        elastic = self.case.form == "elasticity"
        double = [torch.tensor(x, dtype=torch.float64) for x in (YOUNG, POISSON)]
        self.parameters = dict(zip(("E", "nu"), double, strict=True)) if elastic else {}

    def make_pattern(self) -> None:
        """Assembler, on one rank."""
        if self.ranks == 1:
            self.assembler = ASSEMBLERS[self.case.form].from_mesh(self.mesh, **self.parameters)

    def move(self, k: int) -> None:
        """Make other coordinates; several ranks need another distributed mesh, which is timed."""
        self.points = torch.from_numpy(moved(self.start, k, self.case.order))
        self.mesh.points.copy_(self.points)

    def assemble(self) -> Any:
        """Assemble anew."""
        if self.ranks == 1:
            return self.assembler(self.points)
        if self.points is not None:
            self.make_mesh()  # the parts keep copies of the coordinates
        return distributed_element_assemble_per_rank(
            ASSEMBLERS[self.case.form], self.dmesh, dist.get_rank(), **self.parameters
        )

    def facts(self, result: Any) -> dict[str, float]:
        """By sums over the stored entries of all ranks."""
        x = torch.from_numpy(probe(self.start, self.case.n_unknowns)).flatten()
        if self.ranks > 1:
            to_global = result._partition_for_dispatch().local_to_global
            row, col = to_global[result.row_indices], to_global[result.col_indices]
        else:
            row, col = result.row, result.col
        values = result.values
        parts = [torch.tensor(values.numel()), values.sum(), values @ values]
        sums = torch.stack([*parts, x[row] @ (values * x[col])])
        if self.ranks > 1:
            dist.all_reduce(sums)
        entries, total, square, energy = sums.tolist()
        return {
            "size": float(x.numel()),
            "entries": entries,
            "sum": total,
            "norm": float(np.sqrt(square)),
            "energy": energy,
        }

    def barrier(self) -> None:
        """Wait for the other ranks."""
        if self.ranks > 1:
            dist.barrier()

    def maxima(self, values: list[float]) -> list[float]:
        """Largest of each value over the ranks."""
        if self.ranks == 1:
            return values
        largest = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return largest.tolist()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(TensormeshFem)
    if dist.is_initialized():
        dist.destroy_process_group()
