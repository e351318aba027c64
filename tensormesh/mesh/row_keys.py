"""One integer for each row of integers, so that equal rows are found by sorting numbers."""

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
    keys, n_keys = rows[:, 0], max(bound, 1)
    for column in rows[:, 1:].unbind(dim=1):
        if n_keys > _INT64_MAX // max(bound, 1):
            distinct, keys = torch.unique(keys, return_inverse=True)
            n_keys = len(distinct)
        keys = keys * bound + column
        n_keys = n_keys * bound
    return keys
