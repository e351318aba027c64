"""Coefficients that are one scalar function times a constant tensor: ``C(x) = s(x) P``.

Most coefficients are: a conductivity, a density, a Young's modulus. Then the form needs to be
evaluated for one pair of unit inputs only, and the geometry that multiplies ``s`` is the same in
each call. The structure is guessed from a few points, and checked at every point with an input
that is no unit input: a form of another structure fails there, and is integrated the general way.
Of data that are differentiated the structure has to hold for other values too: ``k u v + grad u .
grad v`` with a constant ``k`` is ``s P`` as it is, but its derivative is not that of ``s`` times
``P``.
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
        picked = torch.zeros_like(probe)
        picked[unit] = 1
        weights.append(torch.stack([picked, probe]))

    def at_weights(here: Mapping[str, Tensor]) -> Tensor:  # [N, 2, k]
        found = values_at(form, here, dim, like, weights)
        return found.flatten(2) if found.dim() > 2 else found.unsqueeze(2)

    found = at_weights(data)
    with torch.no_grad():
        others = [at_weights(_moved(data))] if any(x.requires_grad for x in data.values()) else []
        if not all(_fit(x, separable, weights) for x in (found, *others)):
            return None
    return found[:, 0, component]


def _fit(found: Tensor, separable: Separable, weights: list[Tensor]) -> bool:
    """Whether values ``[N, 2, k]``, at the picked inputs and at probes, are those of ``s P``."""
    tensor, s = separable.tensor, found[:, 0, separable.pick[2]]
    v, u = (w[1].to(tensor.dtype) for w in weights)
    expected = torch.einsum("t,a,tak->k", v, u, tensor)
    rest = (found[:, 1] - s.unsqueeze(1) * expected).abs().amax()
    bound = _ROUNDINGS * torch.finfo(found.dtype).eps * s.abs().amax()
    return bool(rest <= bound * tensor.abs().sum())


def _moved(data: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`data` with other values where they are differentiated, each entry moved by itself."""
    return {
        name: x + _steps(x, place) if x.requires_grad else x
        for place, (name, x) in enumerate(data.items())
    }


def _steps(x: Tensor, place: int) -> Tensor:
    # The fourth root of the precision: second derivatives move the result by more than roundings.
    size = torch.finfo(x.dtype).eps ** 0.25
    scale = x.abs() + torch.where(x.abs().amax() > 0, x.abs().amax(), 1.0)
    number = torch.arange(x.numel(), dtype=scale.dtype, device=x.device).view(x.shape)
    without_pattern = 0.5 + (0.6180339887 * (number + place / 7)) % 1  # Weyl's sequence
    turn = 1 + 0.7j if x.is_complex() else 1
    return size * scale * without_pattern * turn
