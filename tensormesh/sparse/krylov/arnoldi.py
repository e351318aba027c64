"""What GMRES is made of: an orthonormal basis, and least squares in its coordinates."""

import numpy as np
import torch
from scipy.linalg import solve_triangular
from torch import Tensor

from tensormesh.sparse.krylov.solution import Array, Total, numbers_beside

# Roundings of the product's norm below which nothing of it is new.
_SLACK = 16.0


class ArnoldiBasis:
    """Orthonormal vectors for each column, made of products with the last of them.

    Parameters
    ----------
    columns
        First vectors ``[k, n_owned]``, of any length.
    norms
        Their norms ``[k]``.
    steps
        Largest number of further vectors.
    total
        Sum over the ranks.
    """

    def __init__(self, columns: Tensor, norms: Array, steps: int, total: Total) -> None:
        k, n = columns.shape
        self._vectors = columns.new_empty(k, steps + 1, n)
        self._total, self._used = total, 0
        self._append(columns, norms)

    @property
    def last(self) -> Tensor:
        """Newest vectors, ``[k, n_owned]``."""
        return self._vectors[:, self._used - 1]

    def extend(self, product: Tensor) -> tuple[Array, Array]:
        """Make `product` ``[k, n_owned]`` orthogonal to the basis, and its direction a part of it.

        Returns
        -------
        h, beta
            Coordinates ``[k, j]`` in the basis as it was, and the norm ``[k]`` of the rest; zero,
            with a vector of zeros in the basis, where nothing is left but rounding.
        """
        h, size2, rest = self._project(product)
        correction, rest2, rest = self._project(rest)
        # The second correction is small, so that this difference does not cancel.
        left2 = rest2 - (np.abs(correction) ** 2).sum(1)
        slack = _SLACK * torch.finfo(product.dtype).eps
        beta = np.where(left2 > slack**2 * size2, np.sqrt(np.abs(left2)), 0.0)
        beta = np.where(np.isfinite(left2), beta, np.nan)
        self._append(rest, beta)
        return h + correction, beta

    def combine(self, coefficients: Array) -> Tensor:
        """Linear combination ``[k, n_owned]`` with coefficients ``[k, j]``."""
        y = numbers_beside(self._vectors, coefficients).unsqueeze(1)
        return (y @ self._vectors[:, : y.shape[2]]).squeeze(1)

    def _project(self, w: Tensor) -> tuple[Array, Array, Tensor]:
        """Coordinates of `w`, the square of its norm, and `w` without its part in the basis."""
        basis = self._vectors[:, : self._used]
        local = (basis @ w.conj().unsqueeze(2)).squeeze(2).conj()
        ww = torch.linalg.vecdot(w, w).unsqueeze(1)
        sums = self._total(torch.cat([local, ww], dim=1))
        h = numbers_beside(w, sums[:, :-1]).unsqueeze(1)
        rest = torch.baddbmm(w.unsqueeze(1), h, basis, alpha=-1).squeeze(1)
        return sums[:, :-1], sums[:, -1].real, rest

    def _append(self, w: Tensor, norms: Array) -> None:
        inverse = np.where(norms != 0, 1 / norms, 0.0)
        factor = numbers_beside(w.real, inverse).unsqueeze(1)
        torch.mul(w, factor, out=self._vectors[:, self._used])
        self._used += 1


class HessenbergLeastSquares:
    """Least squares ``min |norm e_1 - H y|`` for a growing Hessenberg matrix, in each column.

    Parameters
    ----------
    norms
        Norms of the residuals to begin with, ``[k]``.
    steps
        Largest number of columns of ``H``.
    dtype
        Double precision, real or complex.
    """

    def __init__(self, norms: Array, steps: int, dtype: np.dtype) -> None:
        k = len(norms)
        self._q = np.zeros((k, steps + 1, steps + 1), dtype)
        self._q[:, 0, 0] = 1
        self._r = np.zeros((k, steps, steps), dtype)
        self._g = np.zeros((k, steps + 1), dtype)
        self._g[:, 0] = norms
        self._used = 0
        self._columns = np.zeros(k, dtype=np.int64)

    def add(self, h: Array, beta: Array, going: Array) -> tuple[Array, Array]:
        """Add a column ``(h, beta)`` of ``H``; those that are not `going` have no use for it.

        Returns
        -------
        norms, singular
            Norm of the residual, and whether the new column depends on the others.
        """
        j = self._used
        column = (self._q[:, : j + 1, : j + 1] @ h[:, :, None])[:, :, 0]
        pivot = np.hypot(np.abs(column[:, j]), beta)
        scale = np.sqrt((np.abs(h) ** 2).sum(1) + beta**2)
        singular = ~(pivot > _SLACK * np.finfo(float).eps * scale)
        used = going & ~singular
        self._columns[used] = j + 1
        c = np.where(used, column[:, j] / pivot, 1.0)
        s = np.where(used, beta / pivot, 0.0)
        self._r[:, :j, j], self._r[:, j, j] = column[:, :j], pivot
        self._rotate(c, s)
        self._used += 1
        return np.abs(self._g[:, j + 1]), singular

    def _rotate(self, c: Array, s: Array) -> None:
        """Rotate the last row of ``H`` into the diagonal."""
        j = self._used
        row, new = self._q[:, j].copy(), np.zeros_like(self._q[:, j])
        new[:, j + 1] = 1
        self._q[:, j] = c.conj()[:, None] * row + s[:, None] * new
        self._q[:, j + 1] = c[:, None] * new - s[:, None] * row
        g = self._g[:, j].copy()
        self._g[:, j], self._g[:, j + 1] = c.conj() * g, -s * g

    def coefficients(self) -> Array:
        """``y``, ``[k, j]``; zero beyond the columns that each used."""
        y = np.zeros_like(self._g[:, : self._used])
        for i, n in enumerate(self._columns):
            y[i, :n] = solve_triangular(self._r[i, :n, :n], self._g[i, :n])
        return y
