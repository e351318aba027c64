r"""A rubber beam bends far: compressible neo-Hookean elasticity by Newton's method.

.. math::

    \min_u \int W(I + \nabla u) - \int b \cdot u, \qquad
    W(F) = \tfrac{\mu}{2} (\operatorname{tr} F^\mathsf{T} F - 3) - \mu \ln J
    + \tfrac{\lambda}{2} (\ln J)^2

on a beam of 4 x 1 x 1 that is held at one end, with :math:`J = \det F`, :math:`E = 2`,
:math:`\nu = 0.3` and a load :math:`b = (0, 0, -q)` a volume. Run it either way::

    python examples/hyperelastic_beam.py
    torchrun --nproc-per-node 4 examples/hyperelastic_beam.py
"""

# %%
import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--cells", type=int, default=6, help="cells across the beam")
parser.add_argument("--load", type=float, default=0.004, help="force a volume")
parser.add_argument("--steps", type=int, default=8, help="steps in which the load is put on")
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

# %%
# Mesh
# ----
# A cube of boxes, stretched.
n = options.cells
mesh = tm.Mesh.gen_cube(n=(4 * n, n, n), element_type="hex")
mesh.points = mesh.points * mesh.points.new_tensor([4.0, 1.0, 1.0])
dmesh = tm.DistributedMesh(mesh, method=options.method)


# %%
# Energy
# ------
# An energy is written at one point. The internal force is its derivative by the nodal values, and
# the tangent the second: both by automatic differentiation at the quadrature points.
@distributed
class NeoHookean(tm.ElementAssembler):
    """Compressible neo-Hookean body, of Young's modulus 2 and Poisson's ratio 0.3."""

    def __post_init__(self) -> None:
        """Lame constants."""
        self.lam, self.mu = tm.functional.lame(2.0, 0.3)

    def element_energy(self, gradu: Tensor) -> Tensor:
        """Energy per volume of the body at rest."""
        F = torch.eye(3, dtype=gradu.dtype, device=gradu.device) + gradu
        log_j = torch.log(tm.determinant(F))
        return self.mu * ((F * F).sum() / 2 - 1.5 - log_j) + self.lam / 2 * log_j**2


body = NeoHookean.from_mesh(dmesh)
b = mesh.points.new_tensor([0.0, 0.0, -options.load])
load = distributed(tm.const_node_assembler(b)).from_mesh(dmesh)()


def fields(u: Tensor) -> dict[str, Tensor]:
    """Displacement of the nodes as data of the energy."""
    return {"u": u.reshape(u.numel() // 3, 3)}


# %%
# Newton's method
# ---------------
# The load is put on in a few steps, and each begins at the solution of the one before. The reports
# show the residual; close to the solution the number of its digits doubles.
held = (mesh.points[:, 0] == 0).repeat_interleave(3)
condenser = tm.Condenser(held)
u = torch.zeros_like(load)
reports = []
for step in range(1, options.steps + 1):
    share = step / options.steps
    u, info = tm.newton(
        lambda u, share=share: body.internal_force(point_data=fields(u)) - share * load,
        lambda u: body.tangent(point_data=fields(u)),
        u,
        condenser=condenser,
        return_info=True,
    )
    reports.append(info)

# %%
# Results
# -------
energy = float(body.energy(point_data=fields(u)))
displacement = dmesh.gather(u).view(-1, 3).cpu()
lowest = float(displacement[:, 2].min())
dmesh.write(options.output / "hyperelastic_beam.pvtu", {"displacement": u})
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    plot_field(
        mesh,
        displacement.norm(dim=1),
        options.output / "hyperelastic_beam.png",
        displacement=displacement,
        title="A neo-Hookean beam under its own weight",
        label="|u|",
    )
    print(f"{mesh.n_elements} cells, {3 * mesh.n_points} unknowns in {len(dmesh)} parts\n")
    for step, info in enumerate(reports, start=1):
        sizes = " ".join(f"{size:.1e}" for size in info.residuals)
        print(f"step {step}: {info.iterations} iterations, |F| = {sizes}")
    print(f"\nlowest displacement {lowest:.6f}")
    print(f"elastic energy      {energy:.8f}")
if dist.is_initialized():
    dist.destroy_process_group()
