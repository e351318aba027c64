"""Smoothing of the tentative prolongator, which needs its rows at the ghosts."""

from tensormesh.distributed.multigrid.level import Csr, Ints, Level
from tensormesh.distributed.multigrid.rows import with_ghost_rows

# Damping that halves the spectrum best (Vanek, Mandel, Brezina 1996, section 4).
_DAMPING = 4 / 3


def smoothed(level: Level, T: Csr, columns: Ints, largest: float) -> tuple[Csr, Ints]:
    """``P = (I - 4/3 A / largest) T`` on the owned rows. **Collective.**

    Parameters
    ----------
    level
        The matrix ``A``, its diagonal one.
    T
        Tentative prolongator, ``[n_owned, m]``.
    columns
        Global number of each of its columns, int64 ``[m]``.
    largest
        Largest eigenvalue of ``A``.

    Returns
    -------
    P, columns
        ``[n_owned, m + new]``, and numbers of the columns; the new ones belong to other ranks.

    References
    ----------
    P. Vanek, J. Mandel, M. Brezina, Algebraic multigrid by smoothed aggregation for second and
    fourth order elliptic problems, Computing 56 (1996), equation 4.1.
    """
    local, columns = with_ghost_rows(T, columns, level.layout.halo, level.layout.h)
    smooth = level.matrix @ local
    smooth.data *= -_DAMPING / largest
    return local[: level.n_owned] + smooth, columns
