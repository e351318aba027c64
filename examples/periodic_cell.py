r"""How well does a fibrous material conduct? Homogenisation of a periodic cell, and its gradient.

.. math::

    -\nabla \cdot \bigl(k (e_j + \nabla w_j)\bigr) = 0 \text{ in } (0, 1)^2, \qquad
    w_j \text{ periodic}, \qquad
    k^*_{ij} = \int k \, (e_i + \nabla w_i) \cdot (e_j + \nabla w_j)

The corrector :math:`w_j` is what the cell adds to the temperature :math:`x_j` of a uniform body,
and :math:`k^*` is the conductivity of the uniform body that conducts as many such cells do. Run it
either way::

    python examples/periodic_cell.py
    torchrun --nproc-per-node 4 examples/periodic_cell.py
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
parser.add_argument("--cells", type=int, default=48, help="cells along each side, an even number")
parser.add_argument("--conductivity", type=float, default=10.0, help="of the fibres; 1 around them")
parser.add_argument("--radius", type=float, default=0.35, help="of a fibre; cells are 1 apart")
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

n = options.cells
mesh = tm.Mesh.gen_rectangle(n=(n, n), element_type="quad")
dmesh = tm.DistributedMesh(mesh, method=options.method)


@distributed
class Conduction(tm.ElementAssembler):
    """Bilinear form ``k grad u . grad v``."""

    def forward(self, gradu: Tensor, gradv: Tensor, k: Tensor) -> Tensor:
        """Integrand at one point."""
        return k * (gradu @ gradv)


# %%
# Periodic sides
# --------------
# Nodes of the right side follow those of the left, those of the top follow the bottom, wherever
# these are: a rank knows the pairs whose first node it owns.
conduction = Conduction.from_mesh(dmesh)
centre = mesh.points[mesh.cells["quad"]].mean(dim=1)
uniform = conduction(element_data={"k": torch.ones_like(centre[:, 0])})
translations = torch.eye(2, dtype=mesh.dtype, device=mesh.device)
sides = tm.operator.MultiPoint(uniform, *tm.operator.periodic_pairs(dmesh, translations))
x = dmesh.scatter(mesh.points)


def homogenised(k: Tensor) -> tuple[Tensor, Tensor]:
    """Effective conductivities ``[2, 2]`` and correctors, differentiable in those of the cells."""
    K = conduction(element_data={"k": k})
    K_r, f_r = sides(K, -(K @ x))
    w = sides.recover(K_r.solve(f_r, rtol=1e-12, null_space="constants"))
    u, flux = x + w, K @ (x + w)
    entries = [dmesh.dot(u[:, i], flux[:, j]) for i in (0, 1) for j in (0, 1)]
    return torch.stack(entries).view(2, 2), w


# %%
# Layers
# ------
# A case with a closed form, which finite elements meet exactly: across layers of equal thickness
# their resistances are in series, along them in parallel.
k_2 = torch.tensor(options.conductivity, dtype=mesh.dtype, requires_grad=True)
layers, _ = homogenised(torch.where(centre[:, 0] < 0.5, k_2, 1.0))
across, along = 2 / (1 + 1 / k_2), (1 + k_2) / 2
off = float((layers - torch.diag(torch.stack([across, along]))).detach().abs().max())

# %%
# Fibres
# ------
# By symmetry the fibres make an isotropic material. It conducts no better than the phases in
# parallel, no worse than in series (Voigt, Reuss), and within the bounds of Hashin and Shtrikman,
# which hold for all isotropic materials of two phases in the plane.
fibre = (centre - 0.5).norm(dim=1) < options.radius
share = float(fibre.to(mesh.dtype).mean())
found, w = homogenised(torch.where(fibre, k_2, 1.0))
(slope,) = torch.autograd.grad(found[0, 0], k_2)


def bound(k: float, other: float, share: float) -> float:
    """Of Hashin and Shtrikman, in the plane: what conducts `k` surrounds the other phase."""
    return k + share / (1 / (other - k) + (1 - share) / (2 * k))


k = float(k_2.detach())
series, parallel = 1 / (1 - share + share / k), 1 - share + share * k
below, above = sorted([bound(1.0, k, share), bound(k, 1.0, 1 - share)])

# %%
# A gradient
# ----------
# How much does :math:`k^*` gain from better fibres? The derivative goes through assembly,
# constraints and solution. A difference of two more solutions confirms it.
step = 1e-4 * k
with torch.no_grad():
    more, less = (homogenised(torch.where(fibre, k_2 + s, 1.0))[0][0, 0] for s in (step, -step))
difference = float(more - less) / (2 * step)

# %%
# Results
# -------
k_star = float(found[0, 0].detach())
corrector = w.detach()[:, 0] - dmesh.mean(w.detach()[:, 0])
dmesh.write(options.output / "periodic_cell.pvtu", {"corrector": corrector})
picture = dmesh.gather(corrector).cpu()
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    plot_field(
        mesh,
        picture,
        options.output / "periodic_cell.png",
        title=f"Fibres that conduct {k:g} times as well",
        label="corrector in direction x",
    )
    print(f"{mesh.n_points} unknowns in {len(dmesh)} parts, {sides.n_reduced} of them free\n")
    print(f"layers, off by   {off:.3e}")
    print(f"share of fibres  {share:.9f}")
    print(f"in series        {series:.9f}")
    print(f"lower bound      {below:.9f}")
    print(f"fibres           {k_star:.9f}")
    print(f"upper bound      {above:.9f}")
    print(f"in parallel      {parallel:.9f}")
    print(f"slope            {float(slope):.9f}")
    print(f"by a difference  {difference:.9f}")
if off > 1e-8 * k or not below < k_star < above:
    raise SystemExit("the effective conductivity is wrong")
if dist.is_initialized():
    dist.destroy_process_group()
