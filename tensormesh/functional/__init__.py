"""Formulas to write weak forms with: tensors at one point."""

from tensormesh.functional.elasticity import (
    determinant,
    deviatoric_stress,
    deviatoric_stress_norm,
    isotropic_stress,
    lame,
    skew,
    strain,
    sym,
)
from tensormesh.functional.voigt import voigt_shape_grad, voigt_stiffness

__all__ = [
    "determinant",
    "deviatoric_stress",
    "deviatoric_stress_norm",
    "isotropic_stress",
    "lame",
    "skew",
    "strain",
    "sym",
    "voigt_shape_grad",
    "voigt_stiffness",
]
