"""`Field` and `BlockLayout`: several unknown fields, and where each of them is in a vector."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tensormesh.arguments import check_integer
from tensormesh.assemble.form import Kind
from tensormesh.assemble.lower_order import points_of_field

if TYPE_CHECKING:
    from tensormesh.mesh.mesh import Mesh


@dataclass(frozen=True)
class Field:
    """One unknown field of a mixed form.

    Parameters
    ----------
    test
        Name of its test function in the form.
    components
        1: a scalar. More: a vector ``[components]``, with the gradient ``[components, D]``.
    order
        From 1 to the order of the cells of the mesh, which ``mesh.raised(order)`` chooses.
    """

    test: str
    components: int = 1
    order: int = 1

    def __post_init__(self) -> None:
        check_integer("components", self.components)
        check_integer("order", self.order)


class BlockLayout:
    """Unknowns of several fields, node by node: ``node * h + component``, field after field.

    A field of a lower order than the cells has fewer unknowns: one of order 1 those at vertices.
    Its other unknowns have a place in vectors, where they are zero, and no equation: matrices store
    nothing for them, and `Condenser` leaves them out. An unknown that is at no node of the cells
    stands at one of the same edge, face or cell, see `points`.

    Parameters
    ----------
    fields
        Name -> `Field`, in the order of their components.

    Raises
    ------
    ValueError
        If there is no field, a number is below 1, or two functions have the same name.

    Examples
    --------
    >>> import torch, tensormesh as tm
    >>> layout = tm.BlockLayout({"u": tm.Field("v", 2, order=2), "p": tm.Field("q")})
    >>> layout.h, layout.columns
    (3, {'u': slice(0, 2, None), 'p': slice(2, 3, None)})
    >>> layout.split(torch.arange(6))["p"]
    tensor([2, 5])
    """

    def __init__(self, fields: Mapping[str, Field]) -> None:
        self.fields = dict(fields)
        _check(self.fields)
        self.columns: dict[str, slice] = {}
        self.h = 0
        for name, field in self.fields.items():
            self.columns[name] = slice(self.h, self.h + field.components)
            self.h += field.components

    @property
    def orders(self) -> tuple[int, ...]:
        """For each component the order of its field."""
        return tuple(f.order for f in self.fields.values() for _ in range(f.components))

    def points(self, mesh: "Mesh") -> dict[str, Tensor]:
        """Where the unknowns of each field are values of it, for functions that are prescribed.

        Parameters
        ----------
        mesh
            The mesh, or a part of one.

        Returns
        -------
        dict
            Name -> ``[n, D]``: the points of the mesh, but where a node of the cells carries an
            unknown of a lower order than theirs, which has a place of its own.
        """
        cells = mesh.top_cells()
        return {
            name: points_of_field(mesh.points, cells, field.order)
            for name, field in self.fields.items()
        }

    @property
    def sides(self) -> dict[str, Kind]:
        """Arguments of a form that are functions of this layout: trial or test."""
        found: dict[str, Kind] = {}
        for name, field in self.fields.items():
            found |= {name: "trial", f"grad{name}": "trial"}
            found |= {field.test: "test", f"grad{field.test}": "test"}
        return found

    def split(self, x: Tensor) -> dict[str, Tensor]:
        """Fields of a vector ``[n * h]``, as views: ``[n]``, or ``[n, components]``.

        The vector may be one of all nodes, of a part, or an owned slice.

        Raises
        ------
        ValueError
            If the length is no multiple of ``h``.
        """
        if x.dim() != 1 or x.shape[0] % self.h:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected [n * {self.h}]")
        by_node = x.view(-1, self.h)
        return {
            name: by_node[:, columns]
            if self.fields[name].components > 1
            else by_node[:, columns.start]
            for name, columns in self.columns.items()
        }

    def join(self, values: Mapping[str, Tensor]) -> Tensor:
        """Vector ``[n * h]`` of fields, the inverse of `split`: values, or masks.

        Parameters
        ----------
        values
            Name -> ``[n, components]``, or ``[n]`` for a scalar or the same in all components.
            Fields that are not named are zero (False).

        Raises
        ------
        ValueError
            If a field is unknown, or a shape does not fit.
        """
        unknown = set(values) - set(self.fields)
        if unknown or not values:
            raise ValueError(f"fields {sorted(unknown)}: name some of {list(self.fields)}")
        first = next(iter(values.values()))
        blocks = []
        for name, field in self.fields.items():
            x = values.get(name, first.new_zeros(first.shape[0]))
            shape = (first.shape[0], field.components)
            if x.shape not in (shape, shape[:1]):
                raise ValueError(f"{name!r} has shape {tuple(x.shape)}; expected {list(shape)}")
            blocks.append(x.reshape(shape[0], -1).expand(shape))
        return torch.cat(blocks, dim=1).flatten()


def _check(fields: Mapping[str, Field]) -> None:
    if not fields:
        raise ValueError("fields is empty: give {name: Field(test, components, order)}")
    for name, field in fields.items():
        if min(field.components, field.order) < 1:
            raise ValueError(f"fields[{name!r}] = {field!r}: components and order start at 1")
    functions = [*fields, *(field.test for field in fields.values())]
    names = ["x", "gradx", *functions, *(f"grad{name}" for name in functions)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"fields: {twice} would mean two things in a form; rename a function")
