"""One integer for each row of integers, so that equal rows are found by sorting numbers."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_INT64_MAX = torch.iinfo(torch.int64).max


def row_keys(rows: Tensor, bound: int) -> Tensor:
    """Give each row a key: two keys are equal exactly if the rows are.

    The columns are the digits of a number. Where it would overflow, the digits so far are replaced
    by their rank, of which there are no more than rows.

    Parameters
    ----------
    rows
        (n, k), int64, k at least 1, entries in 0 .. bound - 1.
    bound
        One more than the largest entry that may occur.

    Returns
    -------
    Tensor
        (n,), int64.
    """
    return column_keys(rows.unbind(dim=1), bound)


def column_keys(columns: Sequence[Tensor], bound: int) -> Tensor:
    """Give `row_keys` of rows that are stored by columns, each (n,) int64."""
    (keys, *others), n_keys = columns, max(bound, 1)
    for column in others:
        if n_keys > _INT64_MAX // max(bound, 1):
            distinct, keys = torch.unique(keys, return_inverse=True)
            n_keys = len(distinct)
        keys = keys * bound + column
        n_keys = n_keys * bound
    return keys


def sorted_values(keys: Tensor) -> Tensor:
    """Values of an integer tensor (n,) in increasing order, without their places.

    On the CPU by numpy, whose sort of plain integers is vectorised and several times as fast.
    """
    if keys.device.type != "cpu":
        return keys.sort().values
    return torch.from_numpy(np.sort(keys.numpy()))
