r"""Frequencies and shapes in which a steel cantilever rings: a sharded eigenproblem.

.. math::

    -\nabla \cdot \sigma(u) = \omega^2 \rho \, u, \qquad u = 0 \text{ at the wall}

on a beam of 1 m x 0.1 m x 0.05 m with :math:`E = 210` GPa, :math:`\nu = 0.3` and
:math:`\rho = 7850` kg/m^3. Run it either way::

    python examples/modal_analysis.py
    torchrun --nproc-per-node 4 examples/modal_analysis.py
"""

# %%
import argparse
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.preconditioner import Multilevel

parser = argparse.ArgumentParser()
parser.add_argument("--cells", type=int, default=2, help="cells across the thickness")
parser.add_argument("--modes", type=int, default=6)
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

# %%
# Stiffness and mass
# ------------------
length, width, height, E, rho = 1.0, 0.1, 0.05, 210e9, 7850.0
n = options.cells
mesh = tm.Mesh.gen_cube(n=(10 * n, 2 * n, n), order=2, element_type="hex")
mesh.points = mesh.points * mesh.points.new_tensor([length, width, height])
dmesh = tm.DistributedMesh(mesh)


@distributed
class Mass(tm.ElementAssembler):
    """Bilinear form ``rho u . v``, a block of three components for each pair of nodes."""

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Integrand at one point."""
        return rho * u * v * torch.eye(3, dtype=u.dtype, device=u.device)


K = distributed(tm.LinearElasticityElementAssembler).from_mesh(dmesh, E=E, nu=0.3)()
M = Mass.from_mesh(dmesh)()

# %%
# Modes
# -----
# The wall holds all components; the rigid motions tell the preconditioner what bends easily.
condenser = tm.Condenser((mesh.points[:, 0] < 1e-9).repeat_interleave(3))
M_free, K_free = condenser(M)[0], condenser(K)[0]
T = Multilevel(K_free, near_null_space=condenser.restrict(dmesh.rigid_modes()))
squares, modes = K_free.eigsh(options.modes, "SA", M=M_free, preconditioner=T, rtol=1e-6)
frequencies = squares.sqrt() / (2 * math.pi)
first = dmesh.gather(condenser.recover(modes[:, 0].contiguous())).view(-1, 3).cpu()

# %%
# Results
# -------
# Of a slender beam (Euler, Bernoulli) the lowest is ``1.875^2 / (2 pi L^2) sqrt(E I / (rho A))``.
slender = 1.8751**2 / (2 * math.pi * length**2) * math.sqrt(E * height**2 / 12 / rho)
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    options.output.mkdir(parents=True, exist_ok=True)
    plot_field(
        mesh,
        first.norm(dim=1),
        options.output / "modal_analysis.png",
        displacement=first * (0.2 / float(first.norm(dim=1).max())),
        title=f"First mode: {float(frequencies[0]):.1f} Hz",
        label="|u|",
    )
    for i, frequency in enumerate(frequencies.tolist(), start=1):
        print(f"mode {i} {frequency:.6f} Hz")
    print(f"slender beam {slender:.3f} Hz")
if abs(float(frequencies[0]) / slender - 1) > 0.03:
    raise SystemExit("the lowest frequency is not that of a slender beam")
if dist.is_initialized():
    dist.destroy_process_group()
