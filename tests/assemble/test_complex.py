"""Complex forms in one process: against scikit-fem and a known solution, with gradients."""

import math

import numpy as np
import pytest
import skfem
import torch
from skfem.helpers import dot, grad
from torch.autograd import gradcheck

import tensormesh as tm
from tests.assemble.meshes import filled
from tests.assemble.scikit_fem import basis_of, reordered, unknowns
from tests.assemble.waves import KINDS, K, SquaredError, plane_wave, solved, system


def on(mesh):
    return lambda cls, **kwargs: cls.from_mesh(mesh, **kwargs)


def l2_error(mesh):
    u = solved(mesh, on(mesh))
    data = {"re": u.real.contiguous(), "im": u.imag.contiguous()}
    return float(SquaredError.from_mesh(mesh, quadrature_order=6)(point_data=data).sum()) ** 0.5


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_a_plane_wave_falls_with_its_order(kind, order):
    gen = tm.Mesh.gen_cube if kind == "tet" else tm.Mesh.gen_rectangle
    dim = 3 if kind == "tet" else 2
    sizes = (n // order for n in KINDS[kind])
    coarse, fine = (l2_error(gen(n=(n,) * dim, element_type=kind, order=order)) for n in sizes)
    assert math.log2(coarse / fine) >= order + 0.8
    assert fine < 0.03


@pytest.mark.parametrize("kind", ["triangle6", "quad"])
def test_matrix_and_load_as_scikit_fem(kind):
    mesh = filled(kind, 3)
    basis = basis_of(mesh, 8)
    sides = basis.mesh.facets_satisfying(
        lambda x: (x[0] > 1 - 1e-9) | (abs(x[1] - 0.5) > 0.5 - 1e-9), boundaries_only=True
    )
    facets = skfem.FacetBasis(basis.mesh, basis.elem, facets=sides, intorder=8)
    d = np.array([0.8, 0.6])

    @skfem.BilinearForm(dtype=complex)
    def inside(u, v, _):
        return dot(grad(u), grad(v)) - K**2 * u * v

    @skfem.BilinearForm(dtype=complex)
    def absorbing(u, v, _):
        return -1j * K * u * v

    @skfem.LinearForm(dtype=complex)
    def coming_in(v, w):
        x = w.x.transpose(1, 2, 0) @ d
        n = w.n.transpose(1, 2, 0) @ d
        return 1j * K * (n - 1) * np.exp(1j * K * x) * v

    A, f = system(mesh, lambda cls, **kw: cls.from_mesh(mesh, **{**kw, "quadrature_order": 8}))
    theirs = inside.assemble(basis) + absorbing.assemble(facets)
    expected = reordered(theirs, mesh, basis)
    load = np.zeros(mesh.n_points, dtype=complex)
    np.add.at(load, unknowns(mesh, basis), coming_in.assemble(facets))
    assert np.abs(A.to_dense().numpy() - expected).max() < 1e-12 * np.abs(expected).max()
    assert np.abs(f.numpy() - load).max() < 1e-12 * np.abs(load).max()


def test_gradient_of_a_wave_by_its_wave_number_agrees_with_finite_differences():
    """Through cells, facets, prescribed values and the solve.

    features | complex forms: serial, differentiable.
    """
    mesh = tm.Mesh.gen_rectangle(n=(3, 3))

    def loudness(re, im):
        u = solved(mesh, on(mesh), torch.complex(re, im))
        return (u.abs() ** 2).sum(), u[-1].real

    k = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (K.real, K.imag)]
    assert gradcheck(loudness, k)


@pytest.mark.parametrize("method", ["gmres", "bicgstab"])
def test_iterative_methods_find_the_wave(method):
    mesh = tm.Mesh.gen_rectangle(n=(12, 12))
    direct = solved(mesh, on(mesh))
    found = solved(mesh, on(mesh), method=method, rtol=1e-11, preconditioner="jacobi")
    assert (found - direct).abs().max() < 1e-8


def test_single_precision_from_forms_to_gradients():
    """complex64 all the way: the numbers of complex128, to what single precision has."""

    def run(dtype):
        mesh = tm.Mesh.gen_rectangle(n=(6, 6)).to(dtype)
        k = torch.tensor(K, dtype=torch.complex64 if dtype == torch.float32 else torch.complex128)
        k.requires_grad_()
        u = solved(mesh, on(mesh), k)
        (u.abs() ** 2).sum().backward()
        return u.detach(), k.grad

    (u, g), (u64, g64) = run(torch.float32), run(torch.float64)
    assert (u.dtype, g.dtype) == (torch.complex64, torch.complex64)
    assert (u - u64).abs().max() < 1e-4
    assert (g - g64).abs() < 1e-3 * g64.abs()
    mesh = tm.Mesh.gen_rectangle(n=(6, 6))
    assert (u64 - plane_wave(mesh.points)).abs().max() < 0.3  # and it is the wave
