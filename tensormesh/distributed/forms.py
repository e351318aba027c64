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

    The rest of its shape, and its dtype, are the same on all ranks.
    """

    name: str
    length: int
    lengths: Mapping[FormName, int]
    rest: str = ""

    @classmethod
    def of(cls, x: Tensor, name: str, lengths: Mapping[FormName, int]) -> Self:
        """Facts about `x`."""
        length = x.shape[0] if x.dim() else -1
        return cls(name, length, lengths, f"trailing {list(x.shape[1:])}, {x.dtype}")

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

    Where several forms fit, which happens only where they mean the same, the first common to all
    ranks is taken.

    Raises
    ------
    ValueError
        On every rank, if a length fits no form on one of them, the ranks give data of different
        names, trailing sizes or dtypes, or no form is common to all.
    """
    raise_together(next(filter(None, (item.misfit() for item in items)), None), device_mesh)
    given = [f"{item.name} ({item.rest})" for item in items]
    digest = zlib.crc32("\n".join(given).encode())
    headers = all_gather_ints([len(items), digest], device_mesh)
    if bool((headers != headers[0]).any()):
        raise ValueError(f"the ranks give different data; this one gives {given}")
    if not items:
        return []
    fits = [int(item.fits(form)) for item in items for form in _FORMS]
    common = all_gather_ints(fits, device_mesh).amin(0).view(len(items), len(_FORMS))
    for item, forms in zip(items, common, strict=True):
        if not bool(forms.any()):
            raise ValueError(
                f"{item.name} has different forms on different ranks (length {item.length} here): "
                "give it for the global mesh, for the part, or as the owned slice, on all alike"
            )
    return [_FORMS[int(forms.argmax())] for forms in common]
