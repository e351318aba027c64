"""Derivatives of a form by one of its fields, by automatic differentiation at points.

A residual is linear in its test function: at a point it is a tensor of coefficients ``c``, one for
each test input (value, directions) and component, that depends on the value and the gradient of the
unknown field. Of an energy density ``W``, ``c`` is the derivative ``dW/d(u, grad u)``. The tangent
has the coefficients ``dc/d(u, grad u)``, and is assembled as any bilinear form.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

from tensormesh.assemble.contract import basis_inputs
from tensormesh.assemble.form import Argument, Form, FormData
from tensormesh.assemble.integrand import (
    FormError,
    call_form,
    check_number,
    facet_units,
    over_points,
    split_data,
    unit_inputs,
)

# The coefficients [T, H] at a point, of the field's inputs, then of the other arguments.
PointCoefficients = Callable[..., Tensor]
# From the names of these other arguments to that function.
MakeCoefficients = Callable[[list[str]], PointCoefficients]


class Differentiated(Protocol):
    """What a form is differentiated by: some of its arguments, whose entries are ``A`` inputs."""

    @property
    def names(self) -> list[str]:
        """These arguments."""

    def by_input(self, derivatives: tuple[Tensor, ...], lead: int = 0) -> Tensor:
        """Derivatives by these arguments, one after the other, as ``[..., A, H]``."""


class Unknown:
    """The field that a form is differentiated by, as the form sees it at a point.

    Parameters
    ----------
    form
        The form.
    data
        Data of the call.
    name
        Name of the field; None: the only one that the form names.

    Raises
    ------
    ValueError
        If the form does not name the field, or several and `name` is None, or the field is neither
        ``[n]`` nor ``[n, H]``.
    """

    def __init__(self, form: Form, data: FormData, name: str | None) -> None:
        fields = sorted({a.key for a in form.of_kind("field", "gradient")})
        if name is None and len(fields) == 1:
            (name,) = fields
        if name not in fields:
            raise FormError(
                f"unknown = {name!r}: name the field that the form is differentiated by; the form "
                f"has {', '.join(fields) or 'none'}"
            )
        self.shape = data.point_data[name].shape[1:]
        if len(self.shape) > 1:
            raise ValueError(
                f"point_data[{name!r}] has shape {tuple(data.point_data[name].shape)}; the unknown "
                "field must be [n] or [n, H]"
            )
        of_field = {a.kind: a.name for a in form.arguments if a.key == name}
        self.value, self.gradient = of_field.get("field"), of_field.get("gradient")

    @property
    def names(self) -> list[str]:
        """Arguments of the form that are the field's inputs: its value, its gradient."""
        return [name for name in (self.value, self.gradient) if name is not None]

    def by_input(self, derivatives: tuple[Tensor, ...], lead: int = 0) -> Tensor:
        """Derivatives by the inputs, ``[..., (H)]`` and ``[..., (H), D]``, as ``[..., A, H]``.

        Parameters
        ----------
        derivatives
            One an input, with `lead` leading axes.
        lead
            Number of leading axes.
        """
        h = self.shape.numel()
        rows = []
        for name, x in zip(self.names, derivatives, strict=True):
            flat = x.reshape(*x.shape[:lead], h, 1 if name == self.value else x.shape[-1])
            rows.append(flat.transpose(-1, -2))
        return torch.cat(rows, dim=-2)


def variation(form: Form, unknown: Differentiated, names: list[str]) -> PointCoefficients:
    """Coefficients ``[T, H]`` of the first variation of a density; the test inputs are `unknown`'s.

    `names` are those of the other arguments.
    """
    n = len(unknown.names)

    def at_point(*inputs: Tensor) -> Tensor:
        def density(*of_field: Tensor) -> Tensor:
            basis = dict(zip(unknown.names, of_field, strict=True))
            value: Tensor = call_form(form, basis, names, inputs[n:])
            check_number(form, value)
            return value

        return unknown.by_input(grad(density, argnums=tuple(range(n)))(*inputs[:n]))

    return at_point


def residual(form: Form, unknown: Unknown, names: list[str], like: Tensor) -> PointCoefficients:
    """Coefficients ``[T, H]`` of a linear form on cells; `names` as of `variation`."""
    test = unit_inputs(form, "test", like.shape[1], like)

    def at_point(*inputs: Tensor) -> Tensor:
        def on_test(v: Tensor, gradv: Tensor) -> Any:
            return call_form(form, {"v": v, "gradv": gradv}, [*unknown.names, *names], inputs)

        result: Tensor = vmap(on_test)(*test)
        return result.reshape(result.shape[0], -1)

    return at_point


def facet_residual(
    form: Form, unknown: Unknown, names: list[str], like: Tensor
) -> PointCoefficients:
    """Coefficients ``[T, H]`` of a linear form on facets; `names` as of `variation`."""
    v, gradv = facet_units(form, like.shape[1], like)

    def at_point(*inputs: Tensor) -> Tensor:
        basis = {"v": v, "gradv": gradv, "u": v, "gradu": gradv}
        result: Tensor = call_form(form, basis, [*unknown.names, *names], inputs)
        return result.reshape(result.shape[0], -1)

    return at_point


def coefficients(
    make: MakeCoefficients,
    unknown: Differentiated,
    arguments: Mapping[str, Tensor],
) -> Tensor:
    """Coefficients ``[N, T, H]`` at points.

    Parameters
    ----------
    make
        From the names of the arguments that are not the field's inputs to the function at a point.
    unknown
        The field.
    arguments
        ``[N, ...]``, or constants under ``name + "="``.
    """
    names, tensors, vary = _field_first(unknown, arguments)
    return over_points(make(names), (), tensors, vary)


def derivatives(
    make: MakeCoefficients,
    unknown: Differentiated,
    arguments: Mapping[str, Tensor],
) -> Tensor:
    """Derivatives ``[N, T, A, H, H]`` of the coefficients by the field's ``A`` inputs.

    Parameters as of `coefficients`.

    Raises
    ------
    FormError
        If the form has not as many components as the field.
    """
    names, tensors, vary = _field_first(unknown, arguments)
    at_point = make(names)
    inputs = tuple(range(len(unknown.names)))

    def tangent(*given: Tensor) -> Tensor:
        # In reverse: the forward derivative of a batch of determinants is wrong in torch 2.13.
        by_input = unknown.by_input(jacrev(at_point, argnums=inputs)(*given), lead=2)
        return by_input.transpose(1, 2)  # [T, H, A, H] -> [T, A, H, H]

    found = over_points(tangent, (), tensors, vary)
    if found.shape[-2] != found.shape[-1]:
        raise FormError(
            f"the form has {found.shape[-2]} components and its unknown {found.shape[-1]}: a "
            "tangent needs as many equations as unknowns"
        )
    return found


def linearized(form: Form, unknown: Unknown, *, energy: bool = False) -> Form:
    """Form whose arguments are the basis of the tangent, for the contraction with the cells."""
    inputs = (unknown.value is not None, unknown.gradient is not None)
    test = inputs if energy else basis_inputs(form)
    basis = [Argument(n, "test", n) for n, used in zip(("v", "gradv"), test, strict=True) if used]
    trial = zip(("u", "gradu"), inputs, strict=True)
    return Form(form.function, (*basis, *(Argument(n, "trial", n) for n, used in trial if used)))


def tested(form: Form) -> Form:
    """`form` without its trial arguments."""
    return Form(form.function, tuple(form.of_kind("test")))


def _field_first(
    unknown: Differentiated, arguments: Mapping[str, Tensor]
) -> tuple[list[str], list[Tensor], list[int | None]]:
    """Names of the other arguments; tensors and axes of all, the field's inputs first."""
    of_field = [arguments[name] for name in unknown.names]
    names, tensors, vary = split_data(
        {name: x for name, x in arguments.items() if name not in unknown.names}
    )
    return names, [*of_field, *tensors], [*(0,) * len(of_field), *vary]
