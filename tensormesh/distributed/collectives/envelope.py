"""Exceptions that travel between processes."""

import pickle
from typing import NoReturn


def pack(error: BaseException) -> tuple[bytes | None, str]:
    """Pickled exception, None if it does not pickle, and its ``repr``."""
    try:
        return pickle.dumps(error), repr(error)
    except Exception:  # whatever a user's class raises while it is pickled
        return None, repr(error)


def unpack(packed: tuple[bytes | None, str]) -> BaseException:
    """Exception of the same type and message, or a ``RuntimeError`` that shows its ``repr``."""
    pickled, text = packed
    if pickled is None:
        return RuntimeError(text)
    try:
        return pickle.loads(pickled)
    except Exception:  # a class that cannot be imported here, or made from its message
        return RuntimeError(text)


def raise_shared(
    packed: tuple[bytes | None, str], local: BaseException | None, note: str
) -> NoReturn:
    """Raise the exception that all ranks agreed on, with `note` on where it comes from.

    A rank whose own exception has that type and message raises it, its traceback being the useful
    one; otherwise its own, if any, is the cause.
    """
    shared = unpack(packed)
    if local is not None and (type(local), str(local)) == (type(shared), str(shared)):
        local.add_note(note)
        raise local
    shared.add_note(note)
    raise shared from local
