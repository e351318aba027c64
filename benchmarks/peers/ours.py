"""Process that assembles with this package: `python -m peers.ours`, or under torchrun."""

from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from cases import POISSON, YOUNG, Case
from fields import coefficient, moved, probe
from harness import Peer, main
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed


class Diffusion(tm.ElementAssembler):
    """Laplace with a coefficient."""

    def forward(self, gradu: Tensor, gradv: Tensor, c: Tensor) -> Tensor:
        """Integrand."""
        return c * (gradu @ gradv)


class Elasticity(tm.LinearElasticityElementAssembler):
    """Elasticity with a stiffness that varies."""

    def forward(self, gradu: Tensor, gradv: Tensor, c: Tensor) -> Tensor:
        """Integrand."""
        return c * super().forward(gradu, gradv)


class Load(tm.NodeAssembler):
    """Load with a density."""

    def forward(self, v: Tensor, c: Tensor) -> Tensor:
        """Integrand."""
        return c * v


ASSEMBLERS: dict[str, type[Any]] = {
    "laplace": tm.LaplaceElementAssembler,
    "laplace-cell": Diffusion,
    "laplace-nodal": Diffusion,
    "mass": tm.MassElementAssembler,
    "elasticity": tm.LinearElasticityElementAssembler,
    "elasticity-cell": Elasticity,
    "load": Load,
}


class Ours(Peer):
    """One rank works on a plain mesh, several on a distributed one."""

    name = "tensormesh"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        if dist.is_torchelastic_launched():
            dist.init_process_group("gloo")
            self.ranks, self.root = dist.get_world_size(), dist.get_rank() == 0
        self.has_symbolic_phase = self.ranks > 1
        kind = "tet" if case.is_simplex else "hex"
        self.mesh = tm.Mesh.gen_cube(element_type=kind, n=case.n)
        if case.order > 1:
            self.mesh = self.mesh.raised(case.order)
        self.call: dict[str, Any] = {}

    def version(self) -> str:
        """Version of the package and of torch."""
        return f"{tm.__version__}, torch {torch.__version__}"

    def make_mesh(self) -> None:
        """Cut the mesh, on several ranks."""
        if self.ranks > 1:
            self.dmesh = tm.DistributedMesh(self.mesh)
            self.part = self.dmesh.submeshes[dist.get_rank()]
        else:
            self.part = self.mesh

    def prepare(self) -> None:
        """Set coefficient 0."""
        self.start = self.part.points.numpy().copy()
        (cells,) = self.part.top_cells().values()
        n_vertices = 4 if self.case.is_simplex else 8
        self.midpoints = self.part.points[cells[:, :n_vertices]].mean(1).numpy()
        self.set_coefficient(0)

    def make_pattern(self) -> None:
        """Assembler, and on several ranks the layout of the matrix."""
        cls = ASSEMBLERS[self.case.form]
        elastic = self.case.form.startswith("elasticity")
        parameters: dict[str, Any] = {"E": YOUNG, "nu": POISSON} if elastic else {}
        parameters["quadrature_order"] = max(self.case.degree, 1)
        if self.ranks == 1:
            self.assembler = cls.from_mesh(self.mesh, **parameters)
            return
        self.assembler = distributed(cls).from_mesh(self.dmesh, **parameters)
        h = self.case.n_unknowns
        if not self.case.is_vector:
            self.dmesh.layout(h)
            self.bytes_sent = self.dmesh.plan.off_rank_entries * h * h * 8

    def set_coefficient(self, k: int) -> None:
        """Pass another coefficient in later calls."""
        if self.case.form.endswith("-cell"):
            c = torch.from_numpy(coefficient(self.midpoints, k))
            self.call["element_data"] = {"c": c}
        elif self.case.form in ("laplace-nodal", "load"):
            self.call["point_data"] = {"c": torch.from_numpy(coefficient(self.start, k))}

    def move(self, k: int) -> None:
        """Pass other coordinates in later calls."""
        self.call["points"] = torch.from_numpy(moved(self.start, k, self.case.order))

    def assemble(self) -> Any:
        """Call the assembler."""
        return self.assembler(**self.call)

    def facts(self, result: Any) -> dict[str, float]:
        """Of the rows of all ranks."""
        values = result if self.case.is_vector else result.values
        x = torch.from_numpy(probe(self.mesh.points.numpy(), self.case.n_unknowns)).flatten()
        x = self.dmesh.scatter(x) if self.ranks > 1 else x
        image = result if self.case.is_vector else result @ x
        sizes = torch.tensor([x.numel(), values.numel()])
        sums = torch.cat([sizes, torch.stack([values.sum(), values @ values, x @ image])])
        if self.ranks > 1:
            dist.all_reduce(sums)
        size, entries, total, square, energy = sums.tolist()
        return {
            "size": size,
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
    main(Ours)
    if dist.is_initialized():
        dist.destroy_process_group()
