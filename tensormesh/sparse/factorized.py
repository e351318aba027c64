"""One factorization for many right-hand sides."""

from torch import Tensor

from tensormesh.sparse.direct import Direct
from tensormesh.sparse.pattern import SparsityPattern
from tensormesh.sparse.solve import direct
from tensormesh.sparse.solve_info import SolveInfo


class Factorized:
    """Factors of a matrix.

    Parameters
    ----------
    pattern
        Positions of the entries of a square matrix.
    values
        Entries ``[nnz]``, not to be changed in place from now on.

    Raises
    ------
    SingularMatrixError
        If the matrix is singular to rounding.
    ValueError
        If it is not square.
    """

    def __init__(self, pattern: SparsityPattern, values: Tensor) -> None:
        self._pattern, self._values = pattern, values
        self._version = values._version
        self._direct = Direct.of(pattern, values)

    def solve(self, b: Tensor, return_info: bool = False) -> Tensor | tuple[Tensor, SolveInfo]:
        """Solve ``A x = b``.

        Parameters
        ----------
        b
            ``[n]`` or ``[n, k]``.
        return_info
            Whether to return the `SolveInfo` too.

        Returns
        -------
        x or (x, info)
            In the shape of `b`, differentiable in `b` and in the values to any order, without
            factoring again.

        Raises
        ------
        RuntimeError
            If the values were changed in place.
        ValueError
            If the shape of `b` does not fit.
        """
        if self._values._version != self._version:
            raise RuntimeError("the matrix was changed in place: call factorized() again")
        x, info = direct(self._direct, self._pattern, self._values, b)
        return (x, info) if return_info else x
