"""Coefficients that are one scalar function times a constant tensor: ``C(x) = s(x) P``.

Most coefficients are: a conductivity, a density, a Young's modulus. Then the form needs to be
evaluated for one pair of unit inputs only, and the geometry that multiplies ``s`` is the same in
each call. The structure is guessed from a few points, and checked at every point with an input
that is no unit input: a form of another structure fails there, and is integrated the general way.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tensormesh.assemble.form import Form
from tensormesh.assemble.integrand import Side, input_weights, values_at

_ROUNDINGS = 64.0


@dataclass(frozen=True)
class Separable:
    """The constant tensor ``P`` of a bilinear form and its largest entry.

    Parameters
    ----------
    tensor
        ``[T, A, k]``, detached; its entry at `pick` is 1.
    pick
        Test input, trial input and component of the largest entry.
    """

    tensor: Tensor
    pick: tuple[int, int, int]

    @property
    def constant(self) -> Tensor:
        """``P`` as coefficients ``[1, T, A, k, 1]`` that are the same everywhere."""
        return self.tensor[None, ..., None]


def separate(coefficients: Tensor) -> Separable | None:
    """``P`` of coefficients ``[N, T, A, ...]`` at some points, None if they have no such structure.

    Coefficients of which gradients are wanted, beyond those of data, have none: ``P`` is a
    constant.
    """
    if coefficients.requires_grad or not coefficients.numel():
        return None
    flat = coefficients.flatten(3) if coefficients.dim() > 3 else coefficients.unsqueeze(3)
    if not bool(torch.isfinite(torch.view_as_real(flat) if flat.is_complex() else flat).all()):
        return None
    rows = flat.flatten(1)
    largest = int(rows.abs().argmax())
    sample, entry = divmod(largest, rows.shape[1])
    scale = rows[sample, entry]
    if scale == 0:
        return None
    tensor = rows[sample] / scale
    rest = rows - rows[:, entry : entry + 1] * tensor
    if bool(rest.abs().amax() > _ROUNDINGS * torch.finfo(rows.dtype).eps * scale.abs()):
        return None
    _, n_trial, n_components = flat.shape[1:]
    test, within = divmod(entry, n_trial * n_components)
    return Separable(tensor.view(flat.shape[1:]), (test, *divmod(within, n_components)))


def factor(
    form: Form, data: Mapping[str, Tensor], dim: int, like: Tensor, separable: Separable
) -> Tensor | None:
    """``s`` ``[N]`` at points, differentiable; None where the form is not ``s P`` after all.

    Parameters
    ----------
    form, data, dim, like
        As of `bilinear_coefficients`.
    separable
        The guess.
    """
    test, trial, component = separable.pick
    weights = []
    sides: tuple[tuple[Side, int], ...] = (("test", test), ("trial", trial))
    for side, unit in sides:
        probe = input_weights(form, side, dim, like)[0]
        weights.append(torch.stack([torch.eye(len(probe)).to(probe)[unit], probe]))
    found = values_at(form, data, dim, like, weights)  # [N, 2, ...]
    found = found.flatten(2) if found.dim() > 2 else found.unsqueeze(2)
    s = found[:, 0, component]
    with torch.no_grad():
        tensor = separable.tensor
        v, u = (w[1].to(tensor.dtype) for w in weights)
        expected = torch.einsum("t,a,tak->k", v, u, tensor)
        rest = (found[:, 1] - s.unsqueeze(1) * expected).abs().amax()
        bound = _ROUNDINGS * torch.finfo(found.dtype).eps * s.abs().amax()
        if not bool(rest <= bound * tensor.abs().sum()):
            return None
    return s
