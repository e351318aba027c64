r"""Find a conductivity inside a body from temperatures at sensors, in one process or on many ranks.

.. math::

    -\nabla \cdot (k \nabla u) = 1 \text{ in } (0, 1)^2, \qquad u = 0 \text{ on the left and right}

with :math:`k = e^m` unknown. Given are the temperatures :math:`u_s` at sensors, and what is
minimised over :math:`m` is

.. math::

    \frac{1}{2 \sigma^2 n_s} \sum_s (u - u_s)^2 + \frac{\alpha}{2} \int |\nabla m|^2

Run it either way::

    python examples/inverse.py
    torchrun --nproc-per-node 4 examples/inverse.py
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
parser.add_argument("--cells", type=int, default=24, help="cells along each side")
parser.add_argument("--spacing", type=int, default=3, help="cells between sensors")
parser.add_argument("--iterations", type=int, default=50)
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

NOISE = 1e-3  # what a difference at a sensor is measured by
SMOOTHING = 0.002

n = options.cells
mesh = tm.Mesh.gen_rectangle(n=(n, n))
dmesh = tm.DistributedMesh(mesh, method=options.method)
x, y = mesh.points.unbind(1)


# %%
# Forms
# -----
# The conductivity is nodal data; the gradient of the loss flows back through assembly and solution.
@distributed
class Conduction(tm.ElementAssembler):
    """Bilinear form ``exp(m) grad u . grad v``."""

    def forward(self, gradu: Tensor, gradv: Tensor, m: Tensor) -> Tensor:
        """Integrand at one point."""
        return torch.exp(m) * (gradu @ gradv)


f = tm.distributed_node_assemble(tm.const_node_assembler(), dmesh)
conduction = Conduction.from_mesh(dmesh)
roughness = distributed(tm.LaplaceElementAssembler).from_mesh(dmesh)()
condenser = tm.Condenser((x < 1e-9) | (x > 1 - 1e-9))


def temperature(m: Tensor) -> Tensor:
    """Owned slice of the solution, differentiable in that of ``m``."""
    K, load = condenser(conduction(point_data={"m": m}), f)
    return condenser.recover(K.solve(load, rtol=1e-12))


# %%
# Measurements
# ------------
# A round inclusion conducts better than the rest. Sensors stand on a grid of nodes.
truth = dmesh.scatter(torch.exp(-(((x - 0.6) ** 2 + (y - 0.4) ** 2) / 0.04)))
steps = (mesh.points * n).round().long()
inside = (x > 1e-9) & (x < 1 - 1e-9)
is_sensor = ((steps % options.spacing) == 0).all(dim=1) & inside
weights = dmesh.scatter(is_sensor.to(mesh.dtype) / is_sensor.sum())
measured = temperature(truth).detach()

# %%
# Minimisation
# ------------
# Each rank holds its slice of the unknowns in an optimizer of its own; what optimizers such as Adam
# do is entry by entry, so that ranks need not know of each other. LBFGS takes inner products of all
# entries: to be the same on any number of ranks it is given the whole vector on each.
m = torch.zeros(mesh.n_points, dtype=mesh.dtype, requires_grad=True)
optimizer = torch.optim.LBFGS(
    [m],
    max_iter=options.iterations,
    history_size=20,
    tolerance_grad=1e-9,
    tolerance_change=0.0,
    line_search_fn="strong_wolfe",
)
losses = []


def loss() -> Tensor:
    """Value, with the gradient in ``m.grad``."""
    optimizer.zero_grad()
    owned = dmesh.scatter(m)
    misfit = temperature(owned) - measured
    value = dmesh.dot(weights * misfit, misfit) / (2 * NOISE**2)
    value = value + SMOOTHING / 2 * dmesh.dot(owned, roughness @ owned)
    value.backward()
    losses.append(float(value.detach()))
    return value


optimizer.step(loss)

# %%
# Results
# -------
found = dmesh.scatter(m.detach())
error = float(dmesh.norm(found - truth) / dmesh.norm(truth))
slope = float(m.grad.norm())
dmesh.write(options.output / "inverse.pvtu", {"m": found, "truth": truth})
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    k = torch.exp(m.detach()).cpu()
    plot_field(mesh, k, options.output / "inverse.png", title="Conductivity found", label="k")
    print(f"{mesh.n_points} unknowns in {len(dmesh)} parts, {int(is_sensor.sum())} sensors")
    print(f"first loss    {losses[0]:.12e}")
    print(f"last loss     {losses[-1]:.12e}")
    print(f"gradient      {slope:.3e}")
    print(f"highest k     {float(k.max()):.12f}")
    print(f"error of m    {error:.12e}")
if losses[-1] > 1e-2 * losses[0]:
    raise SystemExit("the measurements were not met")
if dist.is_initialized():
    dist.destroy_process_group()
