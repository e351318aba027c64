r"""A steel bracket under load: linear elasticity from a mesh file, on any number of ranks.

.. math::

    -\nabla \cdot \sigma(u) = 0, \qquad u = 0 \text{ on the bolts}, \qquad
    \sigma n = \frac{F}{|\text{pins}|} \text{ on the pins}

in millimetres and newtons: :math:`E = 210000\,` MPa, :math:`\nu = 0.3`, and a total force
:math:`F = (0, 0, -1000)` N spread evenly over the area of the pins. Run it either way::

    python examples/bracket.py
    torchrun --nproc-per-node 4 examples/bracket.py
"""

# %%
import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import Multilevel, distributed

parser = argparse.ArgumentParser()
bracket = Path(__file__).parents[1] / "tests" / "data" / "bracket.msh"
parser.add_argument("--mesh", type=Path, default=bracket)
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--rtol", type=float, default=1e-8, help="tolerance of the solver")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

seconds: dict[str, float] = {}
clock = time.perf_counter()


def lap(phase: str) -> None:
    """Note the time since the last lap."""
    global clock
    now = time.perf_counter()
    seconds[phase], clock = now - clock, now


# %%
# Mesh
# ----
# The file holds tetrahedra and the triangles of two groups of faces.
mesh = tm.Mesh.read(options.mesh)
lap("read")
dmesh = tm.DistributedMesh(mesh, method=options.method)
lap("partition")

# %%
# Stiffness and load
# ------------------
# Elasticity is built in; three unknowns a node.
Elasticity = distributed(tm.LinearElasticityElementAssembler)
stiffness = Elasticity.from_mesh(dmesh, E=210_000.0, nu=0.3)
K = stiffness()
lap("first assembly")
K = stiffness()
lap("assembly again")


@distributed
class Area(tm.FacetAssembler):
    """Linear form ``v`` on facets: its sum is their area."""

    def forward(self, v: Tensor) -> Tensor:
        """Integrand at one point, for all basis functions of the cell."""
        return v


@distributed
class Traction(tm.FacetAssembler):
    """Linear form ``t . v`` on facets, with the traction ``t`` in MPa."""

    def forward(self, v: Tensor, t: Tensor) -> Tensor:
        """Integrand at one point: a row a basis function, a column a direction."""
        return v[:, None] * t


area = float(dmesh.sum(Area.from_mesh(dmesh, "pins")()))
force = mesh.points.new_tensor([0.0, 0.0, -1000.0])
f = Traction.from_mesh(dmesh, "pins")(scalar_data={"t": force / area})
lap("load")

# %%
# Supports
# --------
# All three components are held at the nodes of the bolts' faces.
held = torch.zeros(mesh.n_points, dtype=torch.bool)
for kind, faces in mesh.group("bolts").items():
    held[mesh.cells[kind][faces]] = True
condenser = tm.Condenser(held.repeat_interleave(3))
K_free, f_free = condenser(K, f)
lap("supports")

# %%
# Solution
# --------
# Conjugate gradients, preconditioned on several levels. These are made of the motions that cost no
# energy, the six of a rigid body, as far as the supports leave them.
modes = condenser.restrict(dmesh.rigid_modes())
levels = Multilevel(K_free, near_null_space=modes)
u_free, info = K_free.solve(f_free, preconditioner=levels, rtol=options.rtol, return_info=True)
u = condenser.recover(u_free)
lap("solve")

# %%
# Results
# -------
# The work of the load, ``f . u``, is twice the energy; the largest displacement is over all nodes.
work = float(dmesh.dot(f, u))
displacement = dmesh.gather(u).view(-1, 3).cpu()
largest = float(displacement.norm(dim=1).max())
quality = dmesh.quality()
dmesh.write(options.output / "bracket.pvtu", {"displacement": u})
lap("files")
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    plot_field(
        mesh,
        displacement.norm(dim=1),
        options.output / "bracket.png",
        displacement=displacement * (0.1 * float(mesh.points.max()) / largest),
        title=f"Bracket under 1 kN: largest displacement {largest * 1e3:.2f} µm",
        label="|u| (mm)",
    )
    lap("picture")
    print(f"\n{options.mesh.name}: {mesh.n_elements} cells, {3 * mesh.n_points} DOFs")
    print(quality)
    print("\nphase             seconds")
    for phase, spent in seconds.items():
        print(f"{phase:15s} {spent:9.2f}")
    print(f"\niterations           {info.iterations}")
    print(f"relative residual    {info.residual:.2e}")
    print(f"area of the pins     {area:.3f} mm^2")
    print(f"work of the load     {work:.6f} N mm")
    print(f"largest displacement {largest:.6f} mm")
    print(f"\nfiles: {options.output}/bracket.pvtu (ParaView), {options.output}/bracket.png")
if dist.is_initialized():
    dist.destroy_process_group()
