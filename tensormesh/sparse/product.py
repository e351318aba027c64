"""Products of a sparse matrix with dense vectors, differentiable in both to any order."""

import warnings
from typing import Any

import torch
from torch import Tensor

from tensormesh.sparse.pattern import SparsityPattern


def csr_tensor(pattern: SparsityPattern, values: Tensor) -> Tensor:
    """Compressed-row torch tensor of `values` (detached) on `pattern`.

    Parameters
    ----------
    pattern
        Positions of the entries.
    values
        ``[nnz]`` in the pattern's storage order.
    """
    crow, col = pattern.csr_indices
    ordered = values.detach() if pattern.order is None else values.detach()[pattern.order]
    return torch.sparse_csr_tensor(
        crow, col, ordered, pattern.shape, device=ordered.device, check_invariants=False
    )


def multiply(pattern: SparsityPattern, values: Tensor, x: Tensor) -> Tensor:
    """Compute ``A x``.

    Parameters
    ----------
    pattern
        Positions of the entries of ``A``.
    values
        Entries ``[nnz]`` in the pattern's storage order.
    x
        ``[n_cols]`` or ``[n_cols, k]``; mixed dtypes promote.

    Returns
    -------
    Tensor
        ``[n_rows]`` or ``[n_rows, k]``.

    Raises
    ------
    ValueError
        If `x` has another number of rows or more than two dimensions.
    """
    if x.dim() not in (1, 2) or x.shape[0] != pattern.shape[1]:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; a matrix of shape {pattern.shape} multiplies "
            f"[{pattern.shape[1]}] or [{pattern.shape[1]}, k]"
        )
    dtype = torch.promote_types(values.dtype, x.dtype)
    result: Tensor = _Product.apply(values.to(dtype), x.to(dtype), pattern)
    return result


class _Product(torch.autograd.Function):
    """``A x`` by compressed rows; both gradients are products and gathers again."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, x: Tensor, pattern: SparsityPattern) -> Tensor:
        ctx.save_for_backward(values, x)
        ctx.pattern = pattern
        return csr_tensor(pattern, values) @ x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (grad,) = grads
        values, x = ctx.saved_tensors
        pattern: SparsityPattern = ctx.pattern
        grad_values = grad_x = None
        if ctx.needs_input_grad[0]:
            terms = grad[pattern.row] * x[pattern.col].conj()
            grad_values = terms if terms.dim() == 1 else terms.sum(1)
        if ctx.needs_input_grad[1]:
            grad_x = _Product.apply(values.conj(), grad, pattern.transpose)
        return grad_values, grad_x, None


def _consume_beta_warning() -> None:
    """Let torch say once, unheard, that compressed rows are in beta: the user did not ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zero = torch.zeros(1, dtype=torch.int32, device="cpu")
        torch.sparse_csr_tensor(torch.tensor([0, 0], dtype=torch.int32), zero[:0], zero[:0].float())


_consume_beta_warning()
