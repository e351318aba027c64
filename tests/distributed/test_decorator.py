"""`@distributed`: what it makes of a class, and what it refuses."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.distributed.cases import dmesh_of, mesh_of, outcome
from tests.rank_pool import RankPool


class Diffusion(tm.ElementAssembler):
    """A user's class."""

    def __post_init__(self, k: float = 1.0) -> None:
        self.k = k
        self.scale = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, gradu, gradv):
        return self.k * self.scale * (gradu @ gradv)


class Heat(tm.NodeAssembler):
    def forward(self, v, x):
        return x[0] * v


class Perimeter(tm.FacetAssembler):
    def forward(self, v):
        return v


def mass(u: Tensor, v: Tensor) -> Tensor:
    return u * v


def calls(device_mesh: DeviceMesh) -> dict[str, Any]:
    mesh = mesh_of("tri")
    dmesh = dmesh_of(mesh, device_mesh)
    asm = distributed(Diffusion).from_mesh(dmesh, 2, "sparse", k=3.0)
    K = asm()
    with torch.no_grad():
        asm.scale.mul_(2.0)  # the parameters of the instance are those that assemble
    found = {
        "names": (type(asm).__name__, type(K).__name__, isinstance(asm, Diffusion)),
        "K": K.to_single().to_dense().detach(),
        "twice": asm().to_single().to_dense().detach(),
        "func": asm(func=mass).to_single().to_dense().detach(),
        "points": asm(points=2 * mesh.points, func=mass).to_single().to_dense().detach(),
        "heat": dmesh.gather(distributed(Heat).from_mesh(dmesh)()),
        "left": dmesh.gather(distributed(Perimeter).from_mesh(dmesh, "left")()),
        "serial mesh": outcome(distributed(Diffusion).from_mesh, mesh),
    }
    return found


@pytest.mark.parametrize("n", [1, 3])
def test_the_class_assembles_in_parallel(ranks: RankPool, n: int) -> None:
    """distributed-api @distributed | `Distributed<Name>`: form, parameters, data, `func=`.

    features | distributed: distributed.
    """
    mesh = mesh_of("tri")
    K = tm.LaplaceElementAssembler.from_mesh(mesh)().to_dense()
    M = tm.MassElementAssembler.from_mesh(mesh)().to_dense()
    right = {
        "K": 6 * K,
        "twice": 12 * K,
        "func": M,
        "points": 4 * M,
        "heat": Heat.from_mesh(mesh)(),
        "left": Perimeter.from_mesh(mesh, "left")(),
    }
    for got in ranks(n, calls):
        assert got["names"] == ("DistributedDiffusion", "DSparseMatrix", True)
        for name, x in right.items():
            torch.testing.assert_close(got[name], x, rtol=1e-13, atol=1e-13, msg=name)
        assert got["serial mesh"][0] == "TypeError"
        assert "DistributedMesh" in got["serial mesh"][1]


def test_the_original_class_is_untouched() -> None:
    """distributed-api @distributed | the original class is untouched."""
    before = dict(vars(Diffusion))
    made = distributed(Diffusion)
    assert dict(vars(Diffusion)) == before
    assert issubclass(made, Diffusion)
    assert made is not Diffusion
    assert isinstance(Diffusion.from_mesh(mesh_of("tri"))(), tm.SparseMatrix)


@pytest.mark.parametrize("wrong", [tm.Mesh, int, mass, "Diffusion", tm.Condenser, None])
def test_anything_else_is_refused(wrong: Any) -> None:
    """distributed-api @distributed | `TypeError`: for anything else."""
    with pytest.raises(TypeError, match="distributed"):
        distributed(wrong)
