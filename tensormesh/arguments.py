"""Checks of numbers that a user gives: errors that name the argument and show the value."""

from math import inf
from numbers import Integral, Real
from typing import Any


def check_integer(
    name: str, value: Any, least: int | None = None, *, optional: bool = False
) -> None:
    """Refuse what is no integer, or too small.

    Parameters
    ----------
    name
        Of the argument.
    value
        What was given.
    least
        The smallest that is allowed.
    optional
        Whether None is allowed.

    Raises
    ------
    TypeError
        If it is no integer: numbers with a fraction and bools are none.
    ValueError
        If it is below `least`.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer{' or None' * optional}, got {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}")


def check_number(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what is no real number.

    Raises
    ------
    TypeError
        If it is no number, or a bool or complex.
    ValueError
        If it is NaN.
    """
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number{' or None' * optional}, got {value!r}")
    if value != value:
        raise ValueError(f"{name} must be a number, got {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no positive, finite number.

    Raises
    ------
    TypeError
        If it is no number, or a bool or complex.
    ValueError
        If it is not positive, or not finite.
    """
    check_number(name, value)
    if not 0 < value < inf:
        raise ValueError(f"{name} must be positive, got {value!r}")


def check_order(order: Any) -> None:
    """Refuse what is no order of cells.

    Raises
    ------
    ValueError
        If it is not 1, 2, 3 or 4.
    """
    if isinstance(order, bool) or not isinstance(order, Integral) or order not in (1, 2, 3, 4):
        raise ValueError(f"order must be 1, 2, 3 or 4, got {order!r}.")


def check_tolerances(rtol: Any, atol: Any, names: tuple[str, str] = ("rtol", "atol")) -> None:
    """Refuse tolerances that nothing can meet; `rtol` may be None, for one that fits the dtype.

    Raises
    ------
    TypeError
        If one is no number.
    ValueError
        If one is negative or NaN, or both are zero.
    """
    check_number(names[0], rtol, optional=True)
    check_number(names[1], atol)
    for name, value in zip(names, (rtol, atol), strict=True):
        if value is not None and value < 0:
            raise ValueError(f"{name} must not be negative, got {value!r}")
    if rtol == 0 and atol == 0:
        raise ValueError(f"{names[0]} = {rtol}, {names[1]} = {atol}: give one positive")
