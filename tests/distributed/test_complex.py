"""Complex and single-precision forms on ranks: what one process has, from forms to gradients."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import tensormesh as tm
from tensormesh.distributed import distributed
from tensormesh.distributed.device_mesh import DeviceMesh
from tests.assemble.waves import KINDS, K, plane_wave, solved, system
from tests.distributed.cases import NOTHING_OWNED, dmesh_of, mesh_of
from tests.rank_pool import RankPool

CASES = ("tri", "mixed", "tetra10", "grid")
DTYPES = {torch.float32: torch.complex64, torch.float64: torch.complex128}
OPTIONS = {"method": "gmres", "restart": 200}


def on_ranks(device_mesh: DeviceMesh, kinds: tuple[str, ...]) -> dict[str, list[Tensor]]:
    found = {}
    for kind in kinds:
        mesh = mesh_of(kind)
        dmesh = dmesh_of(mesh, device_mesh, NOTHING_OWNED if kind == "grid" else "coordinate")
        make = lambda cls, **kw: distributed(cls).from_mesh(dmesh, **kw)  # noqa: B023, E731
        A, f = system(mesh, make)
        u = solved(mesh, make, rtol=1e-12, **OPTIONS)
        found[kind] = [A.to_single().to_dense(), dmesh.gather(f), dmesh.gather(u)]
    return found


@cache
def serial(kind: str) -> list[Tensor]:
    mesh = mesh_of(kind)
    A, f = system(mesh, lambda cls, **kw: cls.from_mesh(mesh, **kw))
    return [A.to_dense(), f, solved(mesh, lambda cls, **kw: cls.from_mesh(mesh, **kw))]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_have_the_wave_of_one_process(ranks: RankPool, n: int) -> None:
    """Cells and facets, prescribed complex values, and the solution.

    features | complex forms: distributed.
    """
    kinds = CASES if n == 2 else CASES[:-1] if n == 3 else CASES[:1]
    for cases in ranks(n, on_ranks, kinds, timeout=120.0):
        for kind, found in cases.items():
            for ours, whole, rtol in zip(found, serial(kind), (1e-13, 1e-13, 1e-9), strict=True):
                assert ours.dtype == torch.complex128
                assert (ours - whole).abs().max() < rtol * whole.abs().max(), kind


def largest_errors(device_mesh: DeviceMesh, order: int) -> list[float]:
    errors = []
    for n in KINDS["tri"]:
        mesh = tm.Mesh.gen_rectangle(n=(n // order, n // order), order=order)
        dmesh = dmesh_of(mesh, device_mesh)
        make = lambda cls, **kw: distributed(cls).from_mesh(dmesh, **kw)  # noqa: B023, E731
        u = solved(mesh, make, rtol=1e-9, method="gmres", preconditioner="schwarz")
        errors.append(float((dmesh.gather(u) - plane_wave(mesh.points)).abs().max()))
    return errors


@pytest.mark.parametrize("order", [1, 2])
def test_the_error_of_a_wave_falls_with_the_order(ranks: RankPool, order: int) -> None:
    for coarse, fine in ranks(3, largest_errors, order):
        assert 2 ** (order + 0.7) < coarse / fine < 2 ** (order + 1.5)


# -- gradients in both precisions --------------------------------------------------------------


def wave_and_gradient(device_mesh: DeviceMesh | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Forms, prescribed values, solve and gradient by the wave number."""
    mesh = tm.Mesh.gen_rectangle(n=(6, 6)).to(dtype)
    k = torch.tensor(K, dtype=DTYPES[dtype]).requires_grad_()
    if device_mesh is None:
        u = solved(mesh, lambda cls, **kw: cls.from_mesh(mesh, **kw), k)
        (u.abs() ** 2).sum().backward()
    else:
        dmesh = dmesh_of(mesh, device_mesh)
        make = lambda cls, **kw: distributed(cls).from_mesh(dmesh, **kw)  # noqa: E731
        rtol = 1e-5 if dtype == torch.float32 else 1e-11
        u = solved(mesh, make, k, rtol=rtol, **OPTIONS)
        dmesh.sum(u.abs() ** 2).backward()
        u = dmesh.gather(u.detach())
    assert k.grad is not None
    return u.detach(), k.grad


class Reaction(tm.ElementAssembler):
    def forward(self, u, v, gradu, gradv, k):
        return gradu @ gradv + k * u * v


def heat_and_gradient(device_mesh: DeviceMesh | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same of a real problem with a coefficient a cell, by that coefficient."""
    mesh = mesh_of("mixed").to(dtype)
    cells = {kind: len(c) for kind, c in mesh.top_cells().items()}
    k = torch.linspace(1, 2, sum(cells.values()), dtype=dtype).requires_grad_()
    call: dict[str, Any] = {"k": dict(zip(cells, k.split(list(cells.values())), strict=True))}
    condenser = tm.Condenser(mesh.points[:, 0] < 1e-6, mesh.points[:, 1].sin())
    if device_mesh is None:
        A, b = condenser(Reaction.from_mesh(mesh)(element_data=call))
        u = condenser.recover(A.solve(b))
        (u**2).sum().backward()
    else:
        dmesh = dmesh_of(mesh, device_mesh)
        A, b = condenser(distributed(Reaction).from_mesh(dmesh)(element_data=call))
        u = condenser.recover(A.solve(b, rtol=1e-5 if dtype == torch.float32 else 1e-12))
        dmesh.sum(u**2).backward()
        u = dmesh.gather(u.detach())
    assert k.grad is not None
    return u.detach(), k.grad


@pytest.mark.parametrize("run", [wave_and_gradient, heat_and_gradient])
@pytest.mark.parametrize("n", [None, 1, 2, 3])
def test_single_precision_has_the_digits_that_it_can(ranks: RankPool, run: Any, n: int) -> None:
    """From forms to gradients.

    features | single precision, complex forms: serial, distributed, differentiable.
    """
    u, gradient = run(None, torch.float64)
    found = [run(None, torch.float32)] if n is None else ranks(n, run, torch.float32)
    for u32, g32 in found:
        assert u32.dtype == (DTYPES[torch.float32] if u.is_complex() else torch.float32)
        assert g32.dtype == u32.dtype
        assert (u32 - u).abs().max() < 1e-4 * u.abs().max()
        assert (g32 - gradient).abs().max() < 1e-3 * gradient.abs().max()
    if n is not None:
        for u64, g64 in ranks(n, run, torch.float64):
            assert (u64 - u).abs().max() < 1e-8 * u.abs().max()
            assert (g64 - gradient).abs().max() < 1e-7 * gradient.abs().max()
