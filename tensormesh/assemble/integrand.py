"""A weak form at points, as the tensor of its coefficients.

A bilinear form is linear in ``(u, grad u)`` and in ``(v, grad v)``. Called on the unit inputs of
both, it yields its coefficients; the element tensor is then a product of matrices. No pair of
basis functions is ever passed to the user's function.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import vmap

from tensormesh.assemble.form import Form

Side = Literal["trial", "test"]
_NAMES: dict[Side, tuple[str, str]] = {"trial": ("u", "gradu"), "test": ("v", "gradv")}


# How torch begins its message when a function that it maps reads out a value.
_OF_VMAP = "vmap: It looks like you're "


class FormError(ValueError):
    """A weak form that is not linear in its basis arguments, or returns the wrong thing."""


def unit_inputs(form: Form, side: Side, dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Unit values and gradients of one side: ``[T]`` and ``[T, dim]``.

    Only inputs that the form uses get a row: the value first, then one per direction.
    """
    value, gradient = (form.uses(name) for name in _NAMES[side])
    n = int(value) + (dim if gradient else 0)
    eye = torch.eye(n, dtype=like.dtype, device=like.device)
    none = like.new_zeros(n, dim)
    return (eye[:, 0] if value else none[:, 0]), (eye[:, int(value) :] if gradient else none)


def bilinear_coefficients(form: Form, data: Mapping[str, Tensor], dim: int, like: Tensor) -> Tensor:
    """Coefficients of a bilinear form at points.

    Parameters
    ----------
    form
        The form.
    data
        Value of each further argument: ``[N, ...]``, or constants under ``name + "="``.
    dim
        Space dimension.
    like
        Gives dtype and device of the unit inputs.

    Returns
    -------
    Tensor
        ``[N, T, A]`` or ``[N, T, A, H, H]``: test inputs ``T``, trial inputs ``A``; ``N = 1``
        where nothing varies.
    """
    names, tensors, vary = split_data(data)

    def at_point(u: Any, gu: Any, v: Any, gv: Any, *rest: Any) -> Any:
        return call_form(form, {"u": u, "gradu": gu, "v": v, "gradv": gv}, names, rest)

    constants = (None,) * len(tensors)
    over_trial = vmap(at_point, in_dims=(0, 0, None, None, *constants))
    over_test = vmap(over_trial, in_dims=(None, None, 0, 0, *constants))
    trial, test = (unit_inputs(form, side, dim, like) for side in ("trial", "test"))
    result = over_points(over_test, (*trial, *test), tensors, vary)
    _check_shape(form, result, 3, "a number or an [H, H] tensor", square=True)
    return result


def linear_coefficients(form: Form, data: Mapping[str, Tensor], dim: int, like: Tensor) -> Tensor:
    """Coefficients of a linear form at points: ``[N, T]`` or ``[N, T, H]``.

    Parameters as of `bilinear_coefficients`.
    """
    names, tensors, vary = split_data(data)

    def at_point(v: Any, gv: Any, *rest: Any) -> Any:
        return call_form(form, {"v": v, "gradv": gv}, names, rest)

    over_test = vmap(at_point, in_dims=(0, 0, *(None,) * len(tensors)))
    test = unit_inputs(form, "test", dim, like)
    result = over_points(over_test, test, tensors, vary)
    _check_shape(form, result, 2, "a number or an [H] tensor")
    return result


def facet_coefficients(form: Form, data: Mapping[str, Tensor], dim: int, like: Tensor) -> Tensor:
    """Coefficients of a linear facet form: ``[N, T]`` or ``[N, T, H]``.

    The form sees a basis axis: the unit inputs stand in for the basis of the cell.
    """
    names, tensors, vary = split_data(data)

    def at_point(v: Any, gv: Any, *rest: Any) -> Any:
        return call_form(form, {"v": v, "gradv": gv, "u": v, "gradu": gv}, names, rest)

    test = facet_units(form, dim, like)
    result = over_points(at_point, test, tensors, vary)
    _check_shape(form, result, 2, "a [B] or a [B, H] tensor, B the basis axis of v")
    if result.shape[1] != test[0].shape[0]:
        raise FormError(f"{_label(form)} must keep the basis axis of v first: return [B] or [B, H]")
    return result


def point_values(form: Form, data: Mapping[str, Tensor]) -> Tensor:
    """Values ``[N]`` of a form without basis arguments at points; ``N = 1`` where nothing varies.

    Parameters as of `bilinear_coefficients`.
    """
    result = point_tensors(form, data)
    check_number(form, result[0] if len(result) else result.new_zeros(result.shape[1:]))
    return result


def point_tensors(form: Form, data: Mapping[str, Tensor]) -> Tensor:
    """Values ``[N, ...]`` of a form without basis arguments, of any shape; see `point_values`."""
    names, tensors, vary = split_data(data)

    def at_point(*rest: Any) -> Any:
        return call_form(form, {}, names, rest)

    return over_points(at_point, (), tensors, vary)


def check_number(form: Form, value: Tensor) -> None:
    """Refuse what a form returned at a point, unless it is a number."""
    if value.dim():
        raise FormError(
            f"{_label(form)} returned shape {tuple(value.shape)} at a point, expected a number"
        )


def facet_units(form: Form, dim: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Unit inputs of a linear facet form, whose basis has either of its two names."""
    side: Side = "trial" if form.of_kind("trial") else "test"
    return unit_inputs(form, side, dim, like)


def split_data(data: Mapping[str, Tensor]) -> tuple[list[str], list[Tensor], list[int | None]]:
    """Names, tensors, and the axis of points of each: None where it is a constant."""
    names = [key.removesuffix("=") for key in data]
    return names, list(data.values()), [None if key.endswith("=") else 0 for key in data]


def call_form(form: Form, basis: Mapping[str, Any], names: list[str], rest: tuple[Any, ...]) -> Any:
    """Value of the form at a point, for arguments by name: `basis`, and `rest` under `names`."""
    values = {**basis, **dict(zip(names, rest, strict=True))}
    try:
        result = form.function(**{a.name: values[a.name] for a in form.arguments})
    except RuntimeError as error:
        if not str(error).startswith(_OF_VMAP):
            raise
        raise FormError(
            f"{_label(form)} needs the value of a tensor as a Python number or bool, but it is "
            "called for many points at once: write torch.where for if, and tensors for numbers"
        ) from error
    if not isinstance(result, Tensor):
        raise FormError(f"{_label(form)} returned {type(result).__name__}, expected a tensor")
    return result


def over_points(
    function: Any, units: tuple[Tensor, ...], tensors: list[Tensor], vary: list[int | None]
) -> Tensor:
    """Values ``[N, ...]`` of a function of `units`, the same at all points, and of `tensors`."""
    if all(axis is None for axis in vary):
        result: Tensor = function(*units, *tensors).unsqueeze(0)
        return result
    in_dims = (*(None,) * len(units), *vary)
    n = next(t.shape[0] for t, axis in zip(tensors, vary, strict=True) if axis == 0)
    if n == 0:
        # vmap refuses an empty axis; a part without cells still has to learn the result's shape.
        dummy = [
            t.new_zeros(1, *t.shape[1:]) if axis == 0 else t
            for t, axis in zip(tensors, vary, strict=True)
        ]
        shape: Tensor = vmap(function, in_dims=in_dims)(*units, *dummy)
        return shape[:0]
    result = vmap(function, in_dims=in_dims)(*units, *tensors)
    return result


def _check_shape(
    form: Form, result: Tensor, lead: int, expected: str, square: bool = False
) -> None:
    block = result.shape[lead:]
    allowed = (0, 2) if square else (0, 1)
    fits = result.dim() >= lead and len(block) in allowed
    if not fits or (square and len(block) == 2 and block[0] != block[1]):
        raise FormError(
            f"{_label(form)} returned shape {tuple(block)} at a point, expected {expected}"
        )


def _label(form: Form) -> str:
    return getattr(form.function, "__qualname__", repr(form.function))


# -- linearity ---------------------------------------------------------------------------------

_N_SAMPLES = 4
# Any numbers without a pattern; signs are such that |u|, |v| and |u v| are told from linear ones.
_PROBES = {"trial": ((-0.83, 0.61), (0.71, 0.37)), "test": ((-0.57, 0.94), (-0.92, 0.53))}


def check_linear(
    form: Form,
    data: Mapping[str, Tensor],
    dim: int,
    like: Tensor,
    coefficients: Tensor,
    *,
    basis_axis: bool = False,
) -> None:
    """Compare the form at a few points with its coefficients, for inputs that are no unit inputs.

    Parameters
    ----------
    form, data, dim, like
        As of `bilinear_coefficients`.
    coefficients
        What that function returned: ``[N, T, A, ...]``, or ``[N, T, ...]`` of a linear form.
    basis_axis
        Whether the form sees a basis axis, as facet forms do: the probes stand along it.

    Raises
    ------
    FormError
        If they differ: the form has a constant or a non-linear term in ``u`` or ``v``, or mixes
        the functions of the basis axis.
    """
    weights = [input_weights(form, side, dim, like) for side in _sides(form)]

    def values(here: Mapping[str, Tensor]) -> Tensor:
        return values_at(form, here, dim, like, weights, basis_axis=basis_axis)

    compare_at_points(form, data, like, coefficients, weights, values)


def compare_at_points(
    form: Form,
    data: Mapping[str, Tensor],
    like: Tensor,
    coefficients: Tensor,
    weights: Sequence[Tensor],
    values: Callable[[Mapping[str, Tensor]], Tensor],
) -> None:
    """Compare coefficients at a few points with `values` of the form, for weighted unit inputs.

    Parameters
    ----------
    form, data, like, coefficients
        As of `check_linear`.
    weights
        As of `values_at`.
    values
        From the data at points to values ``[N, P, ...]``.

    Raises
    ------
    FormError
        If they differ.
    """
    n = coefficients.shape[0]
    if n == 0:
        return
    picks = torch.tensor(
        sorted({i * (n - 1) // (_N_SAMPLES - 1) for i in range(_N_SAMPLES)}), device=like.device
    )
    with torch.no_grad():
        found = values({k: t if k.endswith("=") else t[picks] for k, t in data.items()})
        expected = _contract(coefficients[picks], weights)
        _compare(form, found, expected, coefficients[picks])


def values_at(
    form: Form,
    data: Mapping[str, Tensor],
    dim: int,
    like: Tensor,
    weights: Sequence[Tensor],
    *,
    basis_axis: bool = False,
) -> Tensor:
    """Values of the form at points, for weighted sums of the unit inputs.

    Parameters
    ----------
    form, data, dim, like
        As of `bilinear_coefficients`.
    weights
        For the test side, then for the trial side, those that the form has: ``[P, T]``.
    basis_axis
        Whether the form sees a basis axis: the ``P`` inputs stand along it.

    Returns
    -------
    Tensor
        ``[N, P, ...]``, ``N = 1`` where nothing varies.
    """
    sides = _sides(form)
    names, tensors, vary = split_data(data)
    basis = [x for s, w in zip(sides, weights, strict=True) for x in _as_inputs(form, s, dim, w)]
    keys = [name for side in sides for name in _NAMES[side]]

    def at_point(*inputs: Tensor) -> Any:
        of_basis, rest = inputs[: len(keys)], inputs[len(keys) :]
        return call_form(form, dict(zip(keys, of_basis, strict=True)), names, rest)

    if not basis_axis:
        at_point = vmap(at_point, in_dims=(*(0,) * len(keys), *(None,) * len(tensors)))
    return over_points(at_point, tuple(basis), tensors, vary)


def _sides(form: Form) -> list[Side]:
    return [side for side in ("test", "trial") if form.of_kind(side)]


def input_weights(form: Form, side: Side, dim: int, like: Tensor) -> Tensor:
    """Weights ``[2, T]`` of the unit inputs that make two inputs without a pattern."""
    return probe_weights(side, unit_inputs(form, side, dim, like)[0].shape[0], like)


def probe_weights(side: Side, n: int, like: Tensor) -> Tensor:
    """As `input_weights`, of a side with `n` unit inputs."""
    rows = [[base * (1 + ratio * k) for k in range(n)] for base, ratio in _PROBES[side]]
    return like.new_tensor(rows)


def _as_inputs(form: Form, side: Side, dim: int, w: Tensor) -> tuple[Tensor, Tensor]:
    value, gradient = (form.uses(name) for name in _NAMES[side])
    none = w.new_zeros(w.shape[0], dim)
    return (w[:, 0] if value else none[:, 0]), (w[:, int(value) :] if gradient else none)


def _contract(coefficients: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Values ``[N, P, ...]`` of the form with these coefficients at weighted inputs."""
    weights = [w.to(coefficients.dtype) for w in weights]
    if len(weights) == 1:
        return torch.einsum("pt,nt...->np...", weights[0], coefficients)
    return torch.einsum("pt,pa,nta...->np...", *weights, coefficients)


def _compare(form: Form, found: Tensor, expected: Tensor, coefficients: Tensor) -> None:
    if not found.numel():
        return
    scale = torch.maximum(coefficients.abs().amax(), found.abs().amax())
    tolerance = 1e4 * torch.finfo(coefficients.dtype).eps * scale
    if bool((found - expected).abs().amax() > tolerance):
        raise FormError(
            f"{_label(form)} is not linear in its basis arguments: a matrix cannot represent it; "
            "remove constant and non-linear terms in u, gradu, v, gradv"
        )
