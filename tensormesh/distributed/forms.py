"""In which form a user gives data: told apart by length, and agreed upon by the ranks."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from torch import Tensor

from tensormesh.distributed.collectives import all_gather_ints, raise_together
from tensormesh.distributed.device_mesh import DeviceMesh

FormName = Literal["global", "part", "owned"]
_FORMS: tuple[FormName, ...] = ("global", "part", "owned")


@dataclass(frozen=True)
class Item:
    """One piece of data: its name, its length here, and the length of each form it may have.

    The rest of its shape, and its dtype, are the same on all ranks. Forms of one length mean the
    same, except where part and owned nodes are as many but different: then `part_differs`.
    """

    name: str
    length: int
    lengths: Mapping[FormName, int]
    rest: str = ""
    part_differs: bool = False

    @classmethod
    def of(
        cls, x: Tensor, name: str, lengths: Mapping[FormName, int], part_differs: bool = False
    ) -> Self:
        """Facts about `x`."""
        length = x.shape[0] if x.dim() else -1
        rest = f"trailing {list(x.shape[1:])}, {x.dtype}"
        return cls(name, length, lengths, rest, part_differs)

    def fits(self, form: FormName) -> bool:
        """Whether the data can be of this form."""
        return self.lengths.get(form) == self.length

    def misfit(self) -> ValueError | None:
        """What is wrong if no form fits."""
        if any(self.fits(form) for form in _FORMS):
            return None
        expected = ", ".join(f"{n} ({form})" for form, n in self.lengths.items())
        return ValueError(f"{self.name} has length {self.length}; expected {expected}")


def agree_on_forms(items: Sequence[Item], device_mesh: DeviceMesh) -> list[FormName]:
    """Form of each item, the same on every rank. **Collective over `device_mesh`.**

    Where several forms fit, the first common to all ranks is taken: they mean the same.

    Raises
    ------
    ValueError
        On every rank, if a length fits no form on one of them, the ranks give data of different
        names, trailing sizes or dtypes, no form is common to all, or two that differ are.
    """
    raise_together(next(filter(None, (item.misfit() for item in items)), None), device_mesh)
    given = [f"{item.name} ({item.rest})" for item in items]
    digest = zlib.crc32("\n".join(given).encode())
    headers = all_gather_ints([len(items), digest], device_mesh)
    if bool((headers != headers[0]).any()):
        raise ValueError(f"the ranks give different data; this one gives {given}")
    if not items:
        return []
    # The last column: 1 where forms of one length mean the same.
    facts = [
        [*(int(item.fits(form)) for form in _FORMS), int(not item.part_differs)] for item in items
    ]
    table = all_gather_ints([fact for row in facts for fact in row], device_mesh)
    common = table.amin(0).view(len(items), len(_FORMS) + 1)
    for item, (*forms, same) in zip(items, common.tolist(), strict=True):
        if not any(forms):
            raise ValueError(
                f"{item.name} has different forms on different ranks (length {item.length} here): "
                "give it for the global mesh, for the part, or as the owned slice, on all alike"
            )
        _, part, owned = forms
        if part and owned and not same:
            raise ValueError(
                f"{item.name} has an ambiguous length, {item.length}: this rank's part has as many "
                "nodes as the rank owns, but other ones; give it for the global mesh"
            )
    return [_FORMS[forms.index(1)] for *forms, _ in common.tolist()]
