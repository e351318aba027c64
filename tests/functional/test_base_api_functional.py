"""The rows of `tensormesh.functional`: tensors at one point."""

import math

import pytest
import torch
from torch.autograd import gradcheck
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
    """base-api 1 | `sym`, `skew`, `strain`: parts of `[..., D, D]`.

    features | sym, skew, strain: serial.
    """
    A = gradient(*shape)
    assert torch.allclose(tm.sym(A) + tm.skew(A), A)
    assert torch.equal(tm.sym(A), tm.sym(A).mT)
    assert torch.equal(tm.skew(A), -tm.skew(A).mT)
    assert torch.equal(tm.strain(A), tm.sym(A))


def test_row_isotropic_stress():
    """base-api 1 | `isotropic_stress`: uniaxial stress gives E; plane strain is cut from 3-D.

    features | isotropic_stress: serial.
    """
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
    """base-api 1 | `deviatoric_stress`, `deviatoric_stress_norm`: von Mises of known states.

    features | deviatoric_stress, deviatoric_stress_norm: serial.
    """
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
    """base-api 3 | `voigt_shape_grad(g)` -> `[3, 2]` or `[6, 3]`: the strain of `N d`.

    features | voigt_shape_grad: serial.
    """
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
    """base-api 3 | `voigt_stiffness(E, nu, dim)` -> `[3, 3]` (plane strain) or `[6, 6]`.

    features | voigt_stiffness: serial.
    """
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


def test_lame_and_determinant():
    """lam = E nu / (1 + nu) / (1 - 2 nu), and det of a rotation times a stretch.

    features | lame, determinant: serial.
    """
    assert functional.lame(2.0, 0.25) == pytest.approx((0.8, 0.8))
    angle, stretch = torch.tensor(0.3, dtype=f64), torch.tensor([2.0, 3.0], dtype=f64)
    c, s = torch.cos(angle), torch.sin(angle)
    rotation = torch.stack([torch.stack([c, -s]), torch.stack([s, c])])
    assert float(tm.determinant(rotation * stretch)) == pytest.approx(6.0)
    assert torch.allclose(tm.determinant(gradient(3, 5)), torch.linalg.det(gradient(3, 5)))


def test_formulas_are_differentiable():
    """features | sym, skew, strain, determinant, isotropic_stress, lame: differentiable.
    features | deviatoric_stress, deviatoric_stress_norm: differentiable.
    features | voigt_shape_grad, voigt_stiffness: differentiable.
    """
    A = gradient(3, 2).requires_grad_()
    for name in ("sym", "skew", "strain", "determinant", "deviatoric_stress"):
        assert gradcheck(getattr(tm, name), A), name
    assert gradcheck(tm.deviatoric_stress_norm, A)
    assert gradcheck(tm.voigt_shape_grad, A[0, 0].detach().requires_grad_())
    E, nu = (torch.tensor(c, dtype=f64, requires_grad=True) for c in (2.0, 0.3))
    assert gradcheck(lambda A, E, nu: tm.isotropic_stress(tm.sym(A), E, nu), (A, E, nu))
    assert gradcheck(lambda E, nu: tm.voigt_stiffness(E, nu, 3), (E, nu))
    assert gradcheck(functional.lame, (E, nu))
