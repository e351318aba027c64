"""Forms of several fields at points, and their element tensors.

As for one field, the form is called on the unit inputs of both sides; here these are the values
and derivatives of all components of all fields. The coefficients of each pair of fields are then
contracted with the basis of either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from tensormesh.assemble.contract import (
    Inputs,
    matrices_of_rows,
    pull_back_inputs,
    vectors_of_rows,
)
from tensormesh.assemble.field import BlockLayout
from tensormesh.assemble.form import Form
from tensormesh.assemble.geometry import CellGeometry
from tensormesh.assemble.integrand import (
    Side,
    call_form,
    check_number,
    compare_at_points,
    over_points,
    probe_weights,
    split_data,
)


@dataclass(frozen=True)
class Function:
    """Trial or test function of a field, and the inputs of it that a form uses.

    Parameters
    ----------
    name
        Its name in the form.
    components, order
        Of the field.
    uses
        Whether the form uses its value, and its gradient.
    """

    name: str
    components: int
    order: int
    uses: Inputs

    def n_directions(self, dim: int) -> int:
        """Inputs of a component: value and derivatives, as far as they are used."""
        return int(self.uses[0]) + dim * int(self.uses[1])

    @property
    def shape(self) -> torch.Size:
        """Of its value: ``[components]``, or empty of a scalar."""
        return torch.Size([self.components] if self.components > 1 else [])

    @property
    def names(self) -> list[str]:
        """Arguments of the form that are its value and its gradient, as far as they are used."""
        both = zip((self.name, f"grad{self.name}"), self.uses, strict=True)
        return [name for name, used in both if used]

    def inputs(self, by_name: Mapping[str, Tensor], lead: int) -> Tensor:
        """The inverse of `arguments`: ``[..., components * n_directions]``, `lead` leading axes."""
        rows = []
        for name, x in ((name, by_name[name]) for name in self.names):
            last = 1 if name == self.name else x.shape[-1]
            rows.append(x.reshape(*x.shape[:lead], self.components, last))
        if not rows:
            like = next(iter(by_name.values()))
            return like.new_zeros(*like.shape[:lead], 0)
        return torch.cat(rows, dim=-1).flatten(-2)

    def arguments(self, weights: Tensor, dim: int) -> dict[str, Tensor]:
        """Arguments of the form for inputs ``[P, components * n_directions]``."""
        by_component = weights.unflatten(1, (self.components, self.n_directions(dim)))
        by_component = by_component.squeeze(1) if self.components == 1 else by_component
        value, gradient = self.uses
        found = {self.name: by_component[..., 0]} if value else {}
        if gradient:
            found[f"grad{self.name}"] = by_component[..., int(value) :]
        return found


@dataclass(frozen=True)
class MixedSide:
    """The functions of one side of a form, trial or test, whose inputs follow each other."""

    side: Side
    functions: tuple[Function, ...]
    dim: int

    @classmethod
    def of(cls, form: Form, layout: BlockLayout, side: Side, dim: int) -> "MixedSide":
        """Side of a form whose functions are those of `layout`."""
        functions = []
        for field_name, field in layout.fields.items():
            name = field_name if side == "trial" else field.test
            uses = form.uses(name), form.uses(f"grad{name}")
            functions.append(Function(name, field.components, field.order, uses))
        return cls(side, tuple(functions), dim)

    @property
    def sizes(self) -> list[int]:
        """Number of inputs of each function."""
        return [f.components * f.n_directions(self.dim) for f in self.functions]

    def arguments(self, weights: Tensor) -> dict[str, Tensor]:
        """Arguments of the form for inputs ``[P, T]``: ``[P, ...]`` each."""
        found: dict[str, Tensor] = {}
        for function, inputs in zip(self.functions, weights.split(self.sizes, 1), strict=True):
            if inputs.shape[1]:
                found |= function.arguments(inputs, self.dim)
        return found

    def blocks(self, coefficients: Tensor, axis: int) -> list[Tensor]:
        """Coefficients ``[..., T, ...]`` function by function, ``[..., component, input, ...]``."""
        parts = coefficients.split(self.sizes, axis)
        return [
            x.unflatten(axis, (f.components, f.n_directions(self.dim)))
            for f, x in zip(self.functions, parts, strict=True)
        ]


Sides = Sequence[MixedSide]


def mixed_coefficients(
    form: Form, sides: Sides, data: Mapping[str, Tensor], like: Tensor
) -> Tensor:
    """Coefficients of a form at points.

    Parameters
    ----------
    form
        The form, which returns a number.
    sides
        Test side, then trial side where the form is bilinear.
    data
        As of `bilinear_coefficients`.
    like
        Gives dtype and device of the unit inputs.

    Returns
    -------
    Tensor
        ``[N, T]`` or ``[N, T, A]``; ``N = 1`` where nothing varies.
    """
    units = [
        s.arguments(torch.eye(sum(s.sizes), dtype=like.dtype, device=like.device)) for s in sides
    ]
    keys = [name for of_side in units for name in of_side]
    names, tensors, vary = split_data(data)
    function = at_point(form, keys, names)
    for of_side in reversed(units):
        in_dims = (*(0 if key in of_side else None for key in keys), *(None,) * len(tensors))
        function = vmap(function, in_dims=in_dims)
    return over_points(function, _tensors(units), tensors, vary)


def check_mixed_linear(
    form: Form, sides: Sides, data: Mapping[str, Tensor], like: Tensor, coefficients: Tensor
) -> None:
    """As `check_linear`; parameters as of `mixed_coefficients`, whose result is `coefficients`.

    Raises
    ------
    FormError
        If the form is not linear on one of its sides.
    """
    weights = [probe_weights(s.side, sum(s.sizes), like) for s in sides]
    probes = [s.arguments(w) for s, w in zip(sides, weights, strict=True)]
    keys = [name for of_side in probes for name in of_side]

    def values(here: Mapping[str, Tensor]) -> Tensor:
        names, tensors, vary = split_data(here)
        in_dims = (*(0,) * len(keys), *(None,) * len(tensors))
        at_probes = vmap(at_point(form, keys, names), in_dims=in_dims)
        return over_points(at_probes, _tensors(probes), tensors, vary)

    compare_at_points(form, data, like, coefficients, weights, values)


def at_point(form: Form, keys: list[str], names: list[str]) -> Any:
    """Function of the arguments `keys`, then `names`, at a point, whose value is a number."""

    def value_of(*inputs: Tensor) -> Any:
        basis = dict(zip(keys, inputs[: len(keys)], strict=True))
        value: Tensor = call_form(form, basis, names, inputs[len(keys) :])
        check_number(form, value)
        return value

    return value_of


def _tensors(arguments: list[dict[str, Tensor]]) -> tuple[Tensor, ...]:
    return tuple(x for of_side in arguments for x in of_side.values())


# -- contraction -------------------------------------------------------------------------------

Rows = Sequence[Tensor]


def mixed_matrices(
    coefficients: Tensor,
    sides: Sides,
    rows: Sequence[Rows],
    geometry: CellGeometry,
    weights: Tensor,
) -> Tensor:
    """Element matrices ``[B * B, H * H, E]`` of a bilinear form.

    Parameters
    ----------
    coefficients
        ``[Q or 1, T, A, E or 1]``.
    sides
        Test side and trial side.
    rows
        For each side and function, its `Tabulation.rows` ``[Q, inputs, B]``.
    geometry
        Geometry of the ``E`` cells.
    weights
        Of the ``Q`` points.
    """
    test, trial = sides
    lines = []
    for a, c_test, rows_test in zip(
        test.functions, test.blocks(coefficients, 1), rows[0], strict=True
    ):
        line = []
        for b, c, rows_trial in zip(trial.functions, trial.blocks(c_test, 3), rows[1], strict=True):
            # [Q, components, inputs, components, inputs, E], inputs first
            c = c.permute(0, 2, 4, 1, 3, 5).flatten(3, 4)
            if c.requires_grad or bool(c.any()):
                pulled = pull_back_inputs(c, geometry, a.uses, b.uses)
                block = matrices_of_rows(pulled, rows_test, rows_trial, weights)
            else:
                n_pairs = rows_test.shape[2] * rows_trial.shape[2]
                block = c.new_zeros(n_pairs, c.shape[3], geometry.measure.shape[1])
            line.append(block.unflatten(1, (a.components, b.components)))
        lines.append(torch.cat(line, dim=2))
    return torch.cat(lines, dim=1).flatten(1, 2)


def mixed_vectors(
    coefficients: Tensor,
    sides: Sides,
    rows: Sequence[Rows],
    geometry: CellGeometry,
    weights: Tensor,
) -> Tensor:
    """Element vectors ``[B, H, E]`` of a linear form; parameters as of `mixed_matrices`."""
    (test,) = sides
    blocks = []
    for a, c, of_a in zip(test.functions, test.blocks(coefficients, 1), rows[0], strict=True):
        blocks.append(vectors_of_rows(c.transpose(1, 2), geometry, a.uses, of_a, weights))
    return torch.cat(blocks, dim=1)
