"""Derivatives of a form by all fields of a layout, by automatic differentiation at points.

As `linearize` for one field: what differs is how the values and gradients of the fields at a point
follow each other.
"""

import torch
from torch import Tensor
from torch.func import vmap

from tensormesh.assemble.field import BlockLayout
from tensormesh.assemble.form import Form, FormData
from tensormesh.assemble.integrand import FormError
from tensormesh.assemble.linearize import PointCoefficients
from tensormesh.assemble.mixed import MixedSide, at_point


class State:
    """The fields of a layout that a form is differentiated by, as the form sees them at a point.

    Parameters
    ----------
    form
        The form.
    data
        Data of the call; the fields that the form names are in ``point_data``.
    layout, dim
        Their layout, and the dimension of space.

    Raises
    ------
    ValueError
        If the form names no field, or one is not in ``point_data`` or has another shape.
    """

    def __init__(self, form: Form, data: FormData, layout: BlockLayout, dim: int) -> None:
        self.side = MixedSide.of(form, layout, "trial", dim)
        used = [f for f in self.side.functions if any(f.uses)]
        if not used:
            raise FormError(f"the form names none of its fields, {', '.join(layout.fields)}")
        for function in used:
            if function.name not in data.point_data:
                raise FormError(
                    f"the field {function.name!r} is not in point_data, by which the form is "
                    "differentiated; at_nodes(x) gives all fields of a vector"
                )
            shape = data.point_data[function.name].shape
            if shape[1:] != function.shape:
                raise ValueError(
                    f"point_data[{function.name!r}] has shape {tuple(shape)}; its field has "
                    f"[n{''.join(f', {k}' for k in function.shape)}]"
                )

    @property
    def names(self) -> list[str]:
        """Arguments of the form that are values and gradients of the fields."""
        return [name for function in self.side.functions for name in function.names]

    def by_input(self, derivatives: tuple[Tensor, ...], lead: int = 0) -> Tensor:
        """Derivatives by these arguments as ``[..., A, 1]``, in the order of the side's inputs.

        Parameters
        ----------
        derivatives
            One an argument, with `lead` leading axes.
        lead
            Number of leading axes.
        """
        by_name = dict(zip(self.names, derivatives, strict=True))
        return torch.cat([f.inputs(by_name, lead) for f in self.side.functions], -1).unsqueeze(-1)


def residual(
    form: Form, test: MixedSide, state: State, names: list[str], like: Tensor
) -> PointCoefficients:
    """Coefficients ``[T, 1]`` of a linear form, of the state's arguments and those in `names`."""
    units = test.arguments(torch.eye(sum(test.sizes), dtype=like.dtype, device=like.device))
    function = at_point(form, list(units), [*state.names, *names])

    def coefficients(*inputs: Tensor) -> Tensor:
        in_dims = (*(0,) * len(units), *(None,) * len(inputs))
        found: Tensor = vmap(function, in_dims=in_dims)(*units.values(), *inputs)
        return found.unsqueeze(-1)

    return coefficients
