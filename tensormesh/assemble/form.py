"""From the signature of a weak form to what each argument means."""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tensormesh.assemble.blocks import BLOCK_NUMBERS, Blocks
from tensormesh.assemble.per_point import PerQuadraturePoint

CellValues = Tensor | PerQuadraturePoint
Kind = Literal["trial", "test", "x", "gradx", "normal", "field", "gradient", "cell", "scalar"]

_BASIS: Mapping[str, Kind] = {"u": "trial", "gradu": "trial", "v": "test", "gradv": "test"}


@dataclass(frozen=True)
class Argument:
    """One argument of a weak form.

    Parameters
    ----------
    name
        As written in the signature.
    kind
        Where its value comes from.
    key
        Name of the data behind it: ``"T"`` for the argument ``gradT``.
    """

    name: str
    kind: Kind
    key: str


@dataclass(frozen=True)
class FormData:
    """Data of one call: fields, values per cell, constants.

    Parameters
    ----------
    point_data
        Name -> ``[n_points, ...]``.
    element_data
        Name -> ``{cell type: [n_cells, ...]}``, or a `PerQuadraturePoint` for a type.
    scalar_data
        Name -> number or tensor, the same everywhere.
    batch_size
        Quadrature points that are worked on at once; None or -1: as many as fit into the cache.
    """

    point_data: Mapping[str, Tensor] = field(default_factory=dict)
    element_data: Mapping[str, Mapping[str, CellValues]] = field(default_factory=dict)
    scalar_data: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int | None = None
    _blocks: dict[tuple[str, str], Blocks] = field(default_factory=dict, compare=False)

    def values_of(self, name: str, kind: str, block: slice | Tensor) -> Tensor:
        """Values ``[E, ...]`` on a block of the cells of a type."""
        given = self.element_data[name][kind]
        values = given.values if isinstance(given, PerQuadraturePoint) else given
        if not values.requires_grad:
            return values[block]
        return self._blocks.setdefault((name, kind), Blocks(values)).of(block)

    def cells_a_block(self, points_a_cell: int, numbers_a_cell: int) -> int:
        """How many cells are worked on at once, if each takes that many numbers."""
        if self.batch_size is None or self.batch_size < 0:
            return max(1, BLOCK_NUMBERS // numbers_a_cell)
        return max(1, self.batch_size // points_a_cell)

    def __post_init__(self) -> None:
        seen: dict[str, str] = {}
        for group in ("point_data", "element_data", "scalar_data"):
            for name in getattr(self, group):
                if name in seen:
                    raise ValueError(f"{name!r} is in {seen[name]} and in {group}; rename one")
                seen[name] = group


@dataclass(frozen=True)
class Form:
    """A weak form and its arguments in order."""

    function: Callable[..., Any]
    arguments: tuple[Argument, ...]

    def uses(self, name: str) -> bool:
        """Whether the form has an argument called `name`."""
        return any(a.name == name for a in self.arguments)

    def of_kind(self, *kinds: Kind) -> list[Argument]:
        """Arguments of the given kinds, in order."""
        return [a for a in self.arguments if a.kind in kinds]


def bind(
    function: Callable[..., Any],
    data: FormData,
    basis: Collection[str],
    *,
    normal: bool = False,
    sides: Mapping[str, Kind] = _BASIS,
) -> Form:
    """Match the arguments of `function` with the basis and the data, by name.

    Parameters
    ----------
    function
        The weak form at one point.
    data
        Data of this call.
    basis
        Basis arguments that the form may have, of those in `sides`.
    normal
        Whether ``n`` is the outward facet normal.
    sides
        ``"trial"`` or ``"test"`` for each basis argument.

    Raises
    ------
    ValueError
        If an argument is unknown, or is not a plain positional one, or data have the name of a
        basis argument.
    """
    for group in (data.point_data, data.element_data, data.scalar_data):
        for name in {*basis, "x", "gradx"} & set(group):
            raise ValueError(f"{name!r} is a basis argument of this form; rename the data")
    arguments = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ValueError(f"{_name(function)}: argument {parameter} is not allowed: name each")
        if name in basis:
            arguments.append(Argument(name, sides[name], name))
        else:
            arguments.append(_argument(function, name, data, basis, normal))
    return Form(function, tuple(arguments))


def _argument(
    function: Callable[..., Any], name: str, data: FormData, basis: Collection[str], normal: bool
) -> Argument:
    if name in ("x", "gradx"):
        return Argument(name, name, name)  # type: ignore[arg-type]
    if name in data.point_data:
        return Argument(name, "field", name)
    if name in data.element_data:
        return Argument(name, "cell", name)
    if name in data.scalar_data:
        return Argument(name, "scalar", name)
    if name.startswith("grad") and name[4:] in data.point_data:
        return Argument(name, "gradient", name[4:])
    if normal and name == "n":
        return Argument(name, "normal", name)
    known = [*basis, "x", "gradx", *(["n"] if normal else [])]
    known += [*data.point_data, *(f"grad{k}" for k in data.point_data)]
    known += [*data.element_data, *data.scalar_data]
    raise ValueError(
        f"{_name(function)}: nothing is called {name!r}; the form can name {', '.join(known)}; "
        "give fields in point_data, values per cell in element_data, constants in scalar_data"
    )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def promote(name: str, value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Tensor on `device` in a dtype that meets `dtype` without loss.

    Integers, bools and narrower floats widen to `dtype`; complex data stay complex. Python numbers,
    and lists of them, have no dtype of their own and take that of the mesh.

    Raises
    ------
    TypeError
        If the data are no numbers, or are wider than the mesh, so that a cast would lose digits.
    """
    if not isinstance(value, Tensor | np.ndarray):
        return _from_numbers(name, value, dtype, device)
    try:
        tensor = torch.as_tensor(value, device=device)
    except TypeError as error:
        raise TypeError(f"{name} must hold numbers, got an array of {value.dtype}") from error
    common = torch.promote_types(tensor.dtype, dtype)
    real = torch.promote_types(dtype, torch.complex32) if common.is_complex else dtype
    if common != real:
        raise TypeError(
            f"{name} is {tensor.dtype} on a {dtype} mesh: converting would lose digits; "
            f"use mesh.double() or {name}.to({dtype})"
        )
    return tensor.to(common)


def _from_numbers(name: str, value: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        array = np.empty(0, dtype=object)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{name} must be a tensor or a number, got {type(value).__name__}")
    wanted = dtype.to_complex() if array.dtype.kind == "c" else dtype
    return torch.tensor(array, dtype=wanted, device=device)
