r"""A steel bracket warms up and sheds its heat to the air: transient heat with a Robin condition.

.. math::

    \rho c \, \dot\theta - \nabla \cdot (k \nabla \theta) = 0, \qquad
    k \, \partial_n \theta + h \theta = \frac{P}{|\text{pins}|} \text{ on the pins}, \quad
    0 \text{ on the rest of the boundary}

for the temperature :math:`\theta` above that of the air, in millimetres, watts and kelvins: a power
:math:`P = 10` W comes in through the pins, and :math:`h \theta` goes out everywhere. Run it either
way::

    python examples/heat_sink.py
    torchrun --nproc-per-node 4 examples/heat_sink.py
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
bracket = Path(__file__).parents[1] / "tests" / "data" / "bracket.msh"
parser.add_argument("--mesh", type=Path, default=bracket)
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--dt", type=float, default=60.0, help="step of time in seconds")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

CONDUCTIVITY = 0.05  # W / (mm K)
CAPACITY = 3.6e-3  # J / (mm^3 K)
TRANSFER = 2.5e-5  # W / (mm^2 K)
POWER = 10.0  # W

mesh = tm.Mesh.read(options.mesh)
dmesh = tm.DistributedMesh(mesh, method=options.method)


# %%
# Forms
# -----
# Inside, conduction and capacity; on the boundary, what goes out and what comes in. The matrix of
# facets has the pattern of the matrices of cells, so that they add.
@distributed
class Conduction(tm.ElementAssembler):
    """Bilinear form ``k grad u . grad v``."""

    def forward(self, gradu: Tensor, gradv: Tensor) -> Tensor:
        """Integrand at one point."""
        return CONDUCTIVITY * (gradu @ gradv)


@distributed
class Transfer(tm.FacetBilinearAssembler):
    """Bilinear form ``h u v`` on the boundary."""

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Integrand at one point of a facet."""
        return TRANSFER * u * v


@distributed
class Flux(tm.FacetAssembler):
    """Linear form ``v`` on facets."""

    def forward(self, v: Tensor) -> Tensor:
        """Integrand at one point of a facet, for all basis functions of the cell."""
        return v


M = distributed(tm.MassElementAssembler).from_mesh(dmesh)() * CAPACITY
out = Transfer.from_mesh(dmesh)()
K = Conduction.from_mesh(dmesh)() + out
into_pins = Flux.from_mesh(dmesh, "pins")()
f = POWER / dmesh.sum(into_pins) * into_pins

# %%
# Implicit Euler
# --------------
# The matrix of a step is made once. Tested with the constant 1, a step says that what comes in is
# stored or goes out; this holds for each step, to the tolerance of the solver.
heat = tm.time.ThetaMethod(M, K, options.dt, theta=1.0, solve_options={"rtol": 1e-10})
theta = torch.zeros_like(f)
given_off = 0.0
for _ in range(options.steps):
    theta = heat.step(theta, f)
    given_off += options.dt * float(dmesh.sum(out @ theta))
stored = float(dmesh.sum(M @ theta))
put_in = POWER * options.dt * options.steps

# %%
# Results
# -------
temperature = dmesh.gather(theta).cpu()
dmesh.write(options.output / "heat_sink.pvtu", {"temperature": theta})
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    minutes = options.dt * options.steps / 60
    plot_field(
        mesh,
        temperature,
        options.output / "heat_sink.png",
        title=f"Bracket after {minutes:.0f} min at {POWER:.0f} W",
        label="above the air (K)",
    )
    print(f"{mesh.n_elements} cells, {mesh.n_points} unknowns in {len(dmesh)} parts\n")
    print(f"heat put in   {put_in:.6f} J")
    print(f"stored        {stored:.6f} J")
    print(f"given off     {given_off:.6f} J")
    print(f"hottest       {float(temperature.max()):.6f} K")
    print(f"coolest       {float(temperature.min()):.6f} K")
if abs(put_in - stored - given_off) > 1e-6 * put_in:
    raise SystemExit("heat was lost")
if dist.is_initialized():
    dist.destroy_process_group()
