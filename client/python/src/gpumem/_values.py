"""Checks of arguments before ctypes, which would truncate numbers silently."""
from __future__ import annotations

import math
import operator
from typing import SupportsIndex

from .errors import InvalidArgument

_MOST_BYTES = 2**64 - 1
_MOST_MILLISECONDS = 2**63 - 1


def size_of(value: SupportsIndex, what: str) -> int:
    """A number of bytes. Raises InvalidArgument, and TypeError for what is no whole number."""
    if type(value) is int and 0 <= value <= _MOST_BYTES:  # first, since it is asked for every block
        return value
    number = operator.index(value)
    if not 0 <= number <= _MOST_BYTES:
        raise InvalidArgument(f"{what} is {number}; it is a number of bytes, from 0 to 2^64 - 1")
    return number


def milliseconds_of(seconds: float, what: str) -> int:
    """Of a time in seconds, rounded up, so that a little is not nothing. Raises InvalidArgument."""
    if not 0 <= seconds * 1000 < _MOST_MILLISECONDS:  # refuses not-a-number, too
        raise InvalidArgument(f"{what} is {seconds}; it is a time in seconds, from 0 on")
    return math.ceil(seconds * 1000)


def encoded(value: str | None, what: str) -> bytes | None:
    """For C. Raises InvalidArgument."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is {ascii(value)[:40]}; it is text")
    if "\0" in value:
        raise InvalidArgument(f"{what} has a zero byte within")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what} is {ascii(value)[:40]}, which cannot be written as UTF-8") from None
