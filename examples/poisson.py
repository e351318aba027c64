r"""Poisson's equation with a known solution, in one process or on many ranks.

.. math::

    -\Delta u = f \text{ in } (0, 1)^2, \qquad u = g \text{ on the boundary}

with :math:`u = \sin(\pi x) \sin(\pi y) + x` chosen, hence
:math:`f = 2 \pi^2 \sin(\pi x) \sin(\pi y)` and :math:`g = x`. Run it either way::

    python examples/poisson.py
    torchrun --nproc-per-node 4 examples/poisson.py
"""

# %%
# Ranks
# -----
# Under ``torchrun`` each process is a rank and has one part of the mesh. Without it, this process
# has all parts, and the same lines run.
import argparse
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--cells", type=int, default=64, help="cells along each side")
parser.add_argument("--order", type=int, default=1, choices=(1, 2))
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

# %%
# Mesh
# ----
# The global mesh is cut into one part a rank.
mesh = tm.Mesh.gen_rectangle(n=(options.cells, options.cells), order=options.order)
dmesh = tm.DistributedMesh(mesh, method=options.method)


# %%
# Weak form
# ---------
# Find ``u`` with ``(grad u, grad v) = (f, v)`` for all ``v`` that vanish on the boundary. A form is
# written at one point; its arguments are matched by name.
@distributed
class Stiffness(tm.ElementAssembler):
    """Bilinear form ``grad u . grad v``."""

    def forward(self, gradu: Tensor, gradv: Tensor) -> Tensor:
        """Integrand at one point."""
        return gradu @ gradv


@distributed
class Load(tm.NodeAssembler):
    """Linear form ``f v``."""

    def forward(self, v: Tensor, x: Tensor) -> Tensor:
        """Integrand at one point."""
        return 2 * math.pi**2 * torch.sin(math.pi * x[0]) * torch.sin(math.pi * x[1]) * v


K = Stiffness.from_mesh(dmesh)()
f = Load.from_mesh(dmesh, quadrature_order=4)()

# %%
# Boundary values and solution
# ----------------------------
# The condenser removes the constrained rows and columns in place and lifts the values into the
# right-hand side. Matrix and vectors stay sharded.
condenser = tm.Condenser(mesh.boundary_mask, mesh.points[:, 0])
K_free, f_free = condenser(K, f)
u_free, info = K_free.solve(f_free, rtol=1e-10, return_info=True)
u = condenser.recover(u_free)


# %%
# Error
# -----
# ``|u_h - u|`` in L2, by the same assembler: the integral of the squared difference.
@distributed
class SquaredError(tm.NodeAssembler):
    """Linear form ``(u_h - u)^2 v``; its sum is the integral, since the basis sums to one."""

    def forward(self, v: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Integrand at one point."""
        exact = torch.sin(math.pi * x[0]) * torch.sin(math.pi * x[1]) + x[0]
        return (u - exact) ** 2 * v


squared = SquaredError.from_mesh(dmesh, quadrature_order=6)(point_data={"u": u})
error = float(dmesh.sum(squared).sqrt())

# %%
# A picture, and the files for ParaView.
u_global = dmesh.gather(u)
dmesh.write(options.output / "poisson.pvtu", {"u": u})
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    plot_field(mesh, u_global.cpu(), options.output / "poisson.png", title="u", label="u")
    print(f"{mesh.n_points} unknowns in {len(dmesh)} parts, {info.iterations} iterations")
    print(f"L2 error {error:.3e}")

# The error of linear cells falls with h^2, of quadratic ones with h^3.
expected = {1: 2.5, 2: 1.0}[options.order] / options.cells ** (options.order + 1)
if error > expected:
    raise SystemExit(f"the error {error:.3e} is larger than expected, {expected:.3e}")
if dist.is_initialized():
    dist.destroy_process_group()
