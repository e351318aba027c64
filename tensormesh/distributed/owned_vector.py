"""Owned slices as `DTensor`, for programs that work with these."""

from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard

from tensormesh.distributed.layout import MatrixLayout


class OwnedVector(DTensor):
    """`DTensor` over the owned slices of all ranks, whose results know who owns what.

    A plain ``DTensor[Shard(0)]`` takes the ranks' slices for equal chunks, in order. Here
    ``full_tensor()`` is the vector in the input's numbering, the mean counts every entry once, and
    results of the same length are vectors of this kind again. Inside it is sharded as `DTensor`
    wants it.
    """

    _layout: MatrixLayout

    @classmethod
    def of(cls, owned: Tensor, layout: MatrixLayout) -> Self:
        """Vector from this rank's slice ``[n_owned]`` or ``[n_owned, k]``."""
        shape = torch.Size([layout.global_shape[0], *owned.shape[1:]])
        plain = DTensor.from_local(
            owned.contiguous(),
            layout.torch_mesh,
            [Shard(0)],
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )
        return cls._tagged(plain, layout)

    @classmethod
    def _tagged(cls, plain: DTensor, layout: MatrixLayout) -> Self:
        plain.__class__ = cls
        plain._layout = layout  # type: ignore[attr-defined]
        return plain  # type: ignore[return-value]

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        layout = next(x._layout for x in args if isinstance(x, OwnedVector))
        name = getattr(func, "__name__", "")
        if name in _REFUSED:
            raise NotImplementedError(
                f"{name} of a sharded vector: take full_tensor() first, or work on to_local()"
            )
        with torch._C.DisableTorchFunctionSubclass():
            if name == "mean":
                total = args[0].sum(*args[1:], **(kwargs or {}))
                return total / (args[0].numel() // max(total.numel(), 1))
            result = func(*args, **(kwargs or {}))
        if type(result) is DTensor and _same_rows(result, layout):
            return cls._tagged(result, layout)
        return result

    def full_tensor(self, *, grad_placements: Any = None) -> Tensor:
        """The whole vector on every rank, in the input's numbering. **Collective.**"""
        return self._layout.vectors.gather(self.to_local())

    def redistribute(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: slices of uneven length cannot be moved as `DTensor` moves chunks."""
        raise NotImplementedError(
            "the slices of a sharded vector are uneven, which redistribute does not know: take "
            "full_tensor() for the whole vector"
        )


# These gather chunks, as if the slices were even.
_REFUSED = frozenset(
    ["var", "std", "median", "sort", "argsort", "topk", "quantile", "cumsum", "__getitem__"]
)


def _same_rows(x: DTensor, layout: MatrixLayout) -> bool:
    return (
        x.placements == (Shard(0),)
        and x.dim() > 0
        and x.shape[0] == layout.global_shape[0]
        and x.to_local().shape[0] == layout.n_owned
    )


def like(x: DTensor, owned: Tensor, layout: MatrixLayout) -> DTensor:
    """`owned` as a `DTensor` of the kind of `x`: plain, or one that knows who owns what."""
    if isinstance(x, OwnedVector) or hasattr(x, "_owned_nodes"):
        return OwnedVector.of(owned, layout)
    return DTensor.from_local(
        owned, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=x.stride()
    )
