"""The rows of `tensormesh.functional`: tensors at one point."""

import math

import pytest
import torch
from torch.func import vmap

import tensormesh as tm
from tensormesh import functional

f64 = torch.float64


def gradient(dim, *batch):
    return torch.randn(*batch, dim, dim, dtype=f64, generator=torch.Generator().manual_seed(0))


def engineering(eps):
    """Strain as Voigt's column."""
    pairs = [(0, 1)] if eps.shape[0] == 2 else [(1, 2), (0, 2), (0, 1)]
    return torch.stack([*eps.diagonal(), *(2 * eps[a, b] for a, b in pairs)])


def test_row_exports():
    """base-api 1 | functional names at top level and in `tensormesh.functional`."""
    for name in functional.__all__:
        if name != "lame":
            assert getattr(tm, name) is getattr(functional, name)


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 5), (3, 4, 2)])
def test_row_sym_skew_strain(shape):
    """base-api 1 | `sym`, `skew`, `strain`: parts of `[..., D, D]`."""
    A = gradient(*shape)
    assert torch.allclose(tm.sym(A) + tm.skew(A), A)
    assert torch.equal(tm.sym(A), tm.sym(A).mT)
    assert torch.equal(tm.skew(A), -tm.skew(A).mT)
    assert torch.equal(tm.strain(A), tm.sym(A))


def test_row_isotropic_stress():
    """base-api 1 | `isotropic_stress`: uniaxial stress gives E; plane strain is cut from 3-D."""
    E, nu = 7.0, 0.3
    uniaxial = torch.diag(torch.tensor([1.0, -nu, -nu], dtype=f64))
    stress = tm.isotropic_stress(uniaxial, E, nu)
    assert torch.allclose(stress, torch.diag(torch.tensor([E, 0.0, 0.0], dtype=f64)))
    plane = tm.sym(gradient(2, 4))
    solid = torch.zeros(4, 3, 3, dtype=f64)
    solid[:, :2, :2] = plane
    expected = tm.isotropic_stress(solid, E, nu)[:, :2, :2]
    assert torch.allclose(tm.isotropic_stress(plane, E, nu), expected)
    with pytest.raises(ValueError, match="nu must lie"):
        tm.isotropic_stress(plane, E, 0.5)


def test_row_deviatoric_stress():
    """base-api 1 | `deviatoric_stress`, `deviatoric_stress_norm`: von Mises of known states."""
    pressure = -3.0 * torch.eye(3, dtype=f64)
    assert not tm.deviatoric_stress(pressure).any()
    tension = torch.diag(torch.tensor([5.0, 0.0, 0.0], dtype=f64))
    shear = 2 * tm.sym(torch.eye(3, dtype=f64).roll(1, 0) * torch.tensor([0.0, 0.0, 1.0]))
    for state, mises in ((tension, 5.0), (tension + pressure, 5.0), (shear, math.sqrt(3))):
        found = math.sqrt(1.5) * tm.deviatoric_stress_norm(state)
        assert float(found) == pytest.approx(mises)
    batch = gradient(3, 6)
    assert tm.deviatoric_stress(batch).diagonal(dim1=-2, dim2=-1).sum(-1).abs().max() < 1e-14
    with pytest.raises(ValueError, match="3, 3"):
        tm.deviatoric_stress(gradient(2))


@pytest.mark.parametrize("dim", [2, 3])
def test_row_voigt_shape_grad(dim):
    """base-api 3 | `voigt_shape_grad(g)` -> `[3, 2]` or `[6, 3]`: the strain of `N d`."""
    g, d = gradient(dim)[:2]
    B = tm.voigt_shape_grad(g)
    assert B.shape == ((3, 2) if dim == 2 else (6, 3))
    expected = engineering(tm.strain(torch.outer(d, g)))
    assert torch.allclose(B @ d, expected)
    many = vmap(tm.voigt_shape_grad)(gradient(dim))
    assert torch.equal(many[0], B)
    with pytest.raises(ValueError, match=r"\[2\] or \[3\]"):
        tm.voigt_shape_grad(torch.ones(4))


@pytest.mark.parametrize("dim", [2, 3])
def test_row_voigt_stiffness(dim):
    """base-api 3 | `voigt_stiffness(E, nu, dim)` -> `[3, 3]` (plane strain) or `[6, 6]`."""
    E, nu = torch.tensor(2.0, dtype=f64), 0.3
    C, eps = tm.voigt_stiffness(E, nu, dim), tm.sym(gradient(dim))
    stress = tm.isotropic_stress(eps, E, nu)
    pairs = [(0, 1)] if dim == 2 else [(1, 2), (0, 2), (0, 1)]
    expected = torch.stack([*stress.diagonal(), *(stress[a, b] for a, b in pairs)])
    assert C.dtype == f64
    assert torch.allclose(C @ engineering(eps), expected)
    assert tm.voigt_stiffness(2.0, 0.3).shape == (3, 3)
    E.requires_grad_()
    tm.voigt_stiffness(E, nu, dim).sum().backward()
    assert torch.allclose(E.grad, C.sum() / 2)
    for wrong in ({"dim": 1}, {"nu": 0.5}, {"nu": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            tm.voigt_stiffness(**{"E": 1.0, "nu": 0.3, **wrong})
