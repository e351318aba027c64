r"""Sound of one frequency passes a lens: Helmholtz's equation, in complex numbers.

.. math::

    -\Delta u - k^2 n^2 u = 0 \text{ in } (0, 1)^2, \qquad
    \partial_\nu u - i k u = \partial_\nu u_0 - i k u_0 \text{ on the boundary}

for the amplitude :math:`u` of the pressure :math:`\mathrm{Re}(u e^{-i k t})`. The plane wave
:math:`u_0 = e^{i k d \cdot x}` comes in through the boundary, which lets out what a lens scatters,
but for small echoes. With the index :math:`n = 1` the solution is :math:`u_0` itself; Luneburg's
lens has :math:`n^2 = 2 - (r / R)^2` and collects the wave at a point of its rim. Run it either
way::

    python examples/helmholtz.py
    torchrun --nproc-per-node 4 examples/helmholtz.py
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

parser = argparse.ArgumentParser()
parser.add_argument("--cells", type=int, default=64, help="cells along each side, of order 2")
parser.add_argument("--waves", type=float, default=6.0, help="wavelengths along each side")
parser.add_argument("--method", default="coordinate", help="coordinate, spectral or metis")
parser.add_argument("--output", type=Path, default=Path("output"))
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

mesh = tm.Mesh.gen_rectangle(n=(options.cells, options.cells), order=2)
dmesh = tm.DistributedMesh(mesh, method=options.method)
k = 2 * math.pi * options.waves
centre, radius = mesh.points.new_tensor([0.45, 0.5]), 0.3
towards = mesh.points.new_tensor([math.cos(0.3), math.sin(0.3)])  # d, a unit vector


def plane_wave(x: Tensor) -> Tensor:
    """``u_0`` at points ``[..., 2]``."""
    return torch.exp(1j * k * (x @ towards))


# %%
# Weak form
# ---------
# Inside the form is real. On the boundary the normal derivative is replaced by its condition: a
# bilinear form on facets, which makes the matrix complex, and a linear one.
@distributed
class Waves(tm.ElementAssembler):
    """Bilinear form ``grad u . grad v - k^2 n^2 u v``."""

    def forward(self, u: Tensor, v: Tensor, gradu: Tensor, gradv: Tensor, square: Tensor) -> Tensor:
        """Integrand at one point."""
        return gradu @ gradv - k**2 * square * u * v


@distributed
class Impedance(tm.FacetBilinearAssembler):
    """Bilinear form ``-i k u v`` on the boundary."""

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Integrand at one point of a facet."""
        return -1j * k * u * v


@distributed
class ComingIn(tm.FacetAssembler):
    """Linear form ``(d u_0 / d n - i k u_0) v`` on the boundary."""

    def forward(self, v: Tensor, x: Tensor, n: Tensor) -> Tensor:
        """Integrand at one point of a facet, for all basis functions of the cell."""
        return 1j * k * (towards @ n - 1) * plane_wave(x) * v


waves = Waves.from_mesh(dmesh)
boundary = Impedance.from_mesh(dmesh)()
f = ComingIn.from_mesh(dmesh, quadrature_order=6)()

# %%
# Without and with the lens
# -------------------------
# The matrix is symmetric, but not Hermitian, and indefinite: GMRES, on each rank with the inverse
# of its own block.
distance = (mesh.points - centre).norm(dim=1)
squares = {"plane": torch.ones_like(distance), "lens": (2 - (distance / radius) ** 2).clamp(min=1)}
found = {}
for name, square in squares.items():
    K = waves(point_data={"square": square}) + boundary
    found[name], info = K.solve(
        f, method="gmres", preconditioner="schwarz", rtol=1e-9, return_info=True
    )
exact = dmesh.scatter(plane_wave(mesh.points))
error = float(dmesh.norm(found["plane"] - exact) / dmesh.norm(exact))

# %%
# Results
# -------
# Nothing is lost inside: tested with the conjugate of ``u``, the equation says that the boundary
# takes up the power that comes in.
u = found["lens"]
taken = -float(dmesh.dot(u, boundary @ u).imag)
given = -float(dmesh.dot(u, f).imag)
dmesh.write(options.output / "helmholtz.pvtu", {"real": u.real, "imaginary": u.imag})
whole = dmesh.gather(u).cpu()
loudest = int(whole.abs().argmax())
if dmesh.device_mesh.get_rank() == 0:
    from tensormesh.visualization import plot_field

    title = "A plane wave in Luneburg's lens"
    plot_field(mesh, whole.real, options.output / "helmholtz.png", title=title, label="Re u")
    focus = (mesh.points[loudest].cpu() - centre.cpu()) / radius
    print(f"{mesh.n_points} complex unknowns in {len(dmesh)} parts, {info.iterations} iterations")
    print(f"error of the plane wave {error:.6e}")
    print(f"power given    {given:.9f}")
    print(f"power taken    {taken:.9f}")
    print(f"loudest        {float(whole.abs().max()):.6f}")
    print(f"on the rim at  {float(focus.norm()):.4f} of the radius")
    print(f"in direction   {float(torch.atan2(focus[1], focus[0])):.4f}")

# Of quadratic cells of size h: (k h)^3 for what they can represent, k (k h)^4 for the phase that
# the wave loses on its way (Ihlenburg, Babuska, SIAM J. Numer. Anal. 34, 1997).
kh = k / options.cells
if error > 0.02 * kh**3 + 2e-3 * k * kh**4:
    raise SystemExit(f"the error {error:.3e} of the plane wave is larger than expected")
if abs(given - taken) > 1e-6 * given:
    raise SystemExit("power was lost")
if dist.is_initialized():
    dist.destroy_process_group()
