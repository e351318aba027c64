r"""Slow flow through a channel that narrows at a step: Stokes' equations, with two fields.

.. math::

    -\Delta u + \nabla p = 0, \qquad \nabla \cdot u = 0

for the velocity :math:`u` and the pressure :math:`p`. The fluid comes in from the left with a
parabola of height 1, sticks to the walls, and leaves freely on the right, where the channel is half
as high. Run it either way::

    python examples/stokes.py
    torchrun --nproc-per-node 4 examples/stokes.py
"""

# %%
import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import Multilevel, distributed

parser = argparse.ArgumentParser()
parser.add_argument("--cells", type=int, default=24, help="cells across the inlet")
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

# %%
# Mesh
# ----
# Quadratic velocities and linear pressures (Taylor and Hood) on the same triangles: the mesh has
# the nodes of the velocity, and the pressure uses those at vertices.
triangles = tm.Mesh.gen_L(
    chara_length=1 / options.cells, element_type="tri", right=3.0, right_inner=1.0, top_inner=0.5
)
mesh = triangles.raised(2)
dmesh = tm.DistributedMesh(mesh, method=options.method)
FIELDS = {"u": tm.Field("v", components=2, order=2), "p": tm.Field("q", order=1)}


# %%
# Weak forms
# ----------
# One form of both fields and their test functions gives one matrix. A second one has the same
# unknowns and is easy to invert approximately: it preconditions the first.
@distributed
class Stokes(tm.MixedElementAssembler):
    """Bilinear form ``grad u : grad v - p div v - q div u``."""

    fields = FIELDS

    def forward(self, gradu: Tensor, gradv: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """Integrand at one point."""
        return (gradu * gradv).sum() - p * gradv.trace() - q * gradu.trace()


@distributed
class Norms(tm.MixedElementAssembler):
    """Bilinear form ``grad u : grad v + p q``."""

    fields = FIELDS

    def forward(self, gradu: Tensor, gradv: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """Integrand at one point."""
        return (gradu * gradv).sum() + p * q


# %%
# Conditions and solution
# -----------------------
# The velocity is prescribed on all sides but the right one, the pressure nowhere. The condenser
# also leaves out the unknowns that there are not, pressures between vertices.
stokes = Stokes.from_mesh(dmesh)
layout = stokes.layout
sides = {name: mesh.point_data[f"is_{name}_boundary"] for name in ("left", "right")}
walls = mesh.point_data["is_bottom_boundary"] | mesh.point_data["is_L_top_boundary"]
held = mesh.boundary_mask & (walls | ~sides["right"])
y = mesh.points[:, 1]
inflow = torch.stack([4 * y * (1 - y), torch.zeros_like(y)], dim=1) * sides["left"].unsqueeze(1)
condenser = tm.Condenser(layout.join({"u": held}), layout.join({"u": inflow}))

norms, _ = condenser(Norms.from_mesh(dmesh)())
K, f = condenser(stokes())
x, info = K.solve(f, preconditioner=Multilevel(norms), rtol=1e-9, return_info=True)
fields = stokes.at_nodes(condenser.recover(x))
velocity, pressure = fields["u"], fields["p"]


# %%
# Results
# -------
# What comes in goes out. Far behind the step the profile is again a parabola, twice as fast, and
# the pressure falls by 64 a length.
@distributed
class Outflow(tm.FacetAssembler):
    """Linear form ``u . n v`` on facets, of the velocity found."""

    def forward(self, v: Tensor, velocity: Tensor, n: Tensor) -> Tensor:
        """Integrand at one point of a facet, for all basis functions of the cell."""
        return (velocity @ n) * v


def flow(name: str) -> float:
    """What leaves through a side."""
    return float(dmesh.sum(Outflow.from_mesh(dmesh, name)(point_data={"velocity": velocity})))


coming_in, going_out = -flow("left"), flow("right")
dmesh.write(options.output / "stokes.pvtu", {"velocity": velocity, "pressure": pressure})
u, p = dmesh.gather(velocity.flatten()).view(-1, 2).cpu(), dmesh.gather(pressure).cpu()
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    plot_field(mesh, u.norm(dim=1), options.output / "stokes.png", title="Speed", label="|u|")
    n_pressures = triangles.n_points
    print(f"{2 * mesh.n_points} velocities and {n_pressures} pressures in {len(dmesh)} parts")
    print(f"{info.method}: {info.iterations} iterations\n")
    print(f"coming in      {coming_in:.9f}")
    print(f"going out      {going_out:.9f}")
    print(f"fastest        {float(u[:, 0].max()):.6f}")
    print(f"pressure drop  {float(p[sides['left']].mean() - p[sides['right']].mean()):.6f}")
if abs(coming_in - going_out) > 1e-6 * coming_in:
    raise SystemExit("flow was lost")
if dist.is_initialized():
    dist.destroy_process_group()
