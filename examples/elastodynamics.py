r"""A beam is bent, let go, and swings: elastodynamics by Newmark's method.

.. math::

    \rho \ddot u - \nabla \cdot \sigma(u) = 0, \qquad u = 0 \text{ at the wall}

on a strip of 10 x 1 in plane strain with :math:`E = 1000`, :math:`\nu = 0.3`, :math:`\rho = 1`.
It starts at rest from its shape under a load, which is then taken away. Run it either way::

    python examples/elastodynamics.py
    torchrun --nproc-per-node 4 examples/elastodynamics.py
"""

# %%
import argparse
import math
import os
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--cells", type=int, default=4, help="cells across the beam")
parser.add_argument("--steps", type=int, default=100, help="steps in a period of beam theory")
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

LENGTH, YOUNG, POISSON = 10.0, 1000.0, 0.3

# %%
# Mesh and matrices
# -----------------
# Quadratic cells, which bend without locking.
n = options.cells
mesh = tm.Mesh.gen_rectangle(n=(5 * n, n), element_type="quad", order=2)
mesh.points = mesh.points * mesh.points.new_tensor([LENGTH, 1.0])
dmesh = tm.DistributedMesh(mesh, method=options.method)


@distributed
class Mass(tm.ElementAssembler):
    """Bilinear form ``u . v`` of two components."""

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Integrand at one point."""
        return u * v * torch.eye(2, dtype=mesh.dtype, device=mesh.device)


M = Mass.from_mesh(dmesh)()
Elasticity = distributed(tm.LinearElasticityElementAssembler)
K = Elasticity.from_mesh(dmesh, E=YOUNG, nu=POISSON)()

# %%
# The shape under the load
# ------------------------
held = (mesh.points[:, 0] == 0).repeat_interleave(2)
condenser = tm.Condenser(held)
force = mesh.points.new_tensor([0.0, -0.01])
load = distributed(tm.const_node_assembler(force)).from_mesh(dmesh)()
K_free, load_free = condenser(K, load)
bent = condenser.recover(K_free.solve(load_free, rtol=1e-9))

# %%
# Swinging
# --------
# Beam theory knows the period of the first mode. Newmark's method with the average acceleration
# keeps the energy, to the tolerance of the solver.
stiffness = YOUNG / (1 - POISSON**2) / 12
theory = 2 * math.pi * (LENGTH / 1.875104) ** 2 / math.sqrt(stiffness)
dt = theory / options.steps
beam = tm.time.Newmark(M, K, dt, condenser=condenser, solve_options={"rtol": 1e-11})
motion = beam.start(bent, torch.zeros_like(bent))


def energy(motion: tm.time.Motion) -> float:
    """Kinetic and elastic energy."""
    moving, strained = dmesh.dot(motion.v, M @ motion.v), dmesh.dot(motion.u, K @ motion.u)
    return float(moving + strained) / 2


at_end = (mesh.points == mesh.points.new_tensor([LENGTH, 0.5])).all(1)
tip = dmesh.scatter(torch.stack([0.0 * at_end, 1.0 * at_end], 1).flatten().to(mesh.dtype))
heights, energies = [float(dmesh.dot(tip, motion.u))], [energy(motion)]
for _ in range(options.steps):
    motion = beam.step(motion)
    heights.append(float(dmesh.dot(tip, motion.u)))
    energies.append(energy(motion))

# %%
# Results
# -------
# The tip passes its place at rest twice in a period.
passes = [dt * (i + a / (a - b)) for i, (a, b) in enumerate(pairwise(heights)) if a * b < 0]
period = 2 * (passes[1] - passes[0])
drift = max(abs(e / energies[0] - 1) for e in energies)
displacement = dmesh.gather(motion.u).view(-1, 2).cpu()
dmesh.write(options.output / "elastodynamics.pvtu", {"displacement": motion.u})
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    plot_field(
        mesh,
        displacement.norm(dim=1),
        options.output / "elastodynamics.png",
        displacement=displacement,
        title="A swinging beam after about a period",
        label="|u|",
    )
    print(f"{mesh.n_elements} cells, {2 * mesh.n_points} unknowns in {len(dmesh)} parts\n")
    print(f"deflection at first {heights[0]:.8f}")
    print(f"period              {period:.8f}")
    print(f"of beam theory      {theory:.8f}")
    print(f"energy              {energies[0]:.10f}")
    print(f"largest drift of it {drift:.1e}")
if dist.is_initialized():
    dist.destroy_process_group()
