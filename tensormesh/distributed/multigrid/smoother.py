"""Chebyshev smoothing: a polynomial in the matrix, hence symmetric, and products only."""

from torch import Tensor

from tensormesh.sparse.krylov.solution import Operator

# Errors between these multiples of the largest eigenvalue are smoothed. The upper one allows for
# an estimate that is low; all below 1.4 are damped.
_LOWER, _UPPER = 0.3, 1.1


class Chebyshev:
    """Smoother of a matrix with unit diagonal.

    Parameters
    ----------
    product
        Product with the matrix.
    largest
        Its largest eigenvalue.
    degree
        Products that one smoothing takes from a zero guess, plus one.

    References
    ----------
    Saad, Iterative Methods for Sparse Linear Systems, 2nd ed. 2003, Algorithm 12.1.
    """

    def __init__(self, product: Operator, largest: float, degree: int) -> None:
        self._product = product
        self._middle = (_UPPER + _LOWER) / 2 * largest
        self._half_width = (_UPPER - _LOWER) / 2 * largest
        self._degree = degree

    def __call__(self, r: Tensor) -> Tensor:
        """``q(A) r``, approximately ``A^-1 r`` for what oscillates. **Collective.**

        Parameters
        ----------
        r
            Residual, ``[n_owned]`` or ``[n_owned, k]``.
        """
        sigma = self._middle / self._half_width
        rho = 1 / sigma
        d = r / self._middle
        x = d
        for _ in range(self._degree - 1):
            r = r - self._product @ d
            after = 1 / (2 * sigma - rho)
            d = (d * (after * rho)).add_(r, alpha=2 * after / self._half_width)
            x, rho = x + d, after
        return x
