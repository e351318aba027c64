"""Ready-made weak forms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tensormesh.assemble.element import ElementAssembler
from tensormesh.assemble.form import promote
from tensormesh.assemble.node import NodeAssembler
from tensormesh.functional.elasticity import lame, strain


class LaplaceElementAssembler(ElementAssembler):
    """Stiffness of the Laplacian, ``grad u · grad v``."""

    def forward(self, gradu: Tensor, gradv: Tensor) -> Tensor:
        """Integrand."""
        return gradu @ gradv


class MassElementAssembler(ElementAssembler):
    """Mass: ``u v``."""

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """Integrand."""
        return u * v


class ScaledMassElementAssembler(ElementAssembler):
    """Mass of density `c`: ``c u v``, with `c` from the data of the call."""

    def forward(self, u: Tensor, v: Tensor, c: Tensor) -> Tensor:
        """Integrand."""
        return c * u * v


class AnisotropicLaplaceElementAssembler(ElementAssembler):
    """Diffusion by a tensor, ``(A grad u) · grad v``, with `A` ``[D, D]`` at each point or cell.

    `A` may be complex, and need not be symmetric: it acts on the gradient of the solution.
    """

    def forward(self, gradu: Tensor, gradv: Tensor, A: Tensor) -> Tensor:
        """Integrand."""
        return gradv.to(A.dtype) @ (A @ gradu.to(A.dtype))


class LinearElasticityElementAssembler(ElementAssembler):
    """Small-strain isotropic elasticity; ``H = D`` unknowns a node. In 2-D, plane strain.

    Parameters
    ----------
    E
        Young's modulus (force per area).
    nu
        Poisson's ratio, between -1 and 0.5 exclusive.

    References
    ----------
    T. J. R. Hughes, The Finite Element Method, Dover 2000, section 2.7.
    """

    def __post_init__(self, E: float | Tensor = 1.0, nu: float | Tensor = 0.3) -> None:
        """Set the Lame constants ``lam`` and ``mu`` from `E` and `nu`."""
        self.lam, self.mu = lame(E, nu)

    def forward(self, gradu: Tensor, gradv: Tensor) -> Tensor:
        """``sigma(u e_b) : eps(v e_a)`` for each pair of directions ``a, b``."""
        identity = torch.eye(gradu.shape[0], dtype=gradu.dtype, device=gradu.device)
        shear = (gradu @ gradv) * identity + torch.outer(gradu, gradv)
        return self.lam * torch.outer(gradv, gradu) + self.mu * shear

    def element_energy(self, graddisplacement: Tensor) -> Tensor:
        """Strain energy per volume of the field ``displacement`` ``[n, D]``."""
        eps = strain(graddisplacement)
        return self.lam / 2 * torch.trace(eps) ** 2 + self.mu * (eps * eps).sum()


def const_node_assembler(c: float | Tensor = 1.0) -> type[NodeAssembler]:
    """Class of the linear form ``c v``.

    Parameters
    ----------
    c
        Number, or ``[H]`` for ``H`` unknowns a node. ``from_mesh(mesh, c=...)`` overrides it.

    Returns
    -------
    type
        Subclass of `NodeAssembler`.
    """
    default = c

    class ConstNodeAssembler(NodeAssembler):
        """Load of constant density."""

        c: Tensor

        def __post_init__(self, c: float | Tensor = default) -> None:
            self.register_buffer("c", promote("c", c, self.dtype, self.device))

        def forward(self, v: Tensor) -> Tensor:
            return self.c * v

    return ConstNodeAssembler


def func_node_assembler(f: Callable[[Tensor], Any] = lambda x: x) -> type[NodeAssembler]:
    """Class of the linear form ``f(x) v``.

    Parameters
    ----------
    f
        From the coordinate ``[D]`` to a number or ``[H]``, in torch operations without branches
        on values. ``from_mesh(mesh, f=...)`` overrides it.

    Returns
    -------
    type
        Subclass of `NodeAssembler`.
    """
    default = f

    class FuncNodeAssembler(NodeAssembler):
        """Load of density ``f(x)``."""

        def __post_init__(self, f: Callable[[Tensor], Any] = default) -> None:
            self.f = f

        def forward(self, v: Tensor, x: Tensor) -> Tensor:
            return self.f(x) * v

    return FuncNodeAssembler
