"""What calls raise. Each exception has `code`, one of Code, and words that say what to do."""
from __future__ import annotations

import enum


class Code(enum.IntEnum):
    """gRPC's codes, as far as gpumem answers them."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class GpumemError(Exception):
    """A call did not do what was asked. Nothing has changed then, unless the call says otherwise."""

    _usual = Code.INTERNAL

    def __init__(self, message: str, code: Code | None = None):
        super().__init__(message)
        self.code = self._usual if code is None else code
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[type[GpumemError], tuple[str, Code]]:
        return type(self), (self.message, self.code)


class OutOfMemory(GpumemError, MemoryError):
    """A limit stands against it, or others hold the memory: RESOURCE_EXHAUSTED, or DEADLINE_EXCEEDED after waiting.
    The words are the broker's explanation."""

    _usual = Code.RESOURCE_EXHAUSTED


class InvalidArgument(GpumemError, ValueError):
    """An argument is wrong; repeating the call fails again."""

    _usual = Code.INVALID_ARGUMENT


class FailedPrecondition(GpumemError, RuntimeError):
    """Not in this state: closed, in a forked child, blocks still in use, too late."""

    _usual = Code.FAILED_PRECONDITION


class StaleLayout(FailedPrecondition):
    """A region has other arrays than its reader was made for."""


class Unavailable(GpumemError, ConnectionError):
    """The broker is not there, or does not answer; trying later may succeed."""

    _usual = Code.UNAVAILABLE


class PermissionDenied(GpumemError, PermissionError):
    """The broker is there, and not for this user."""

    _usual = Code.PERMISSION_DENIED


class NotFound(GpumemError, LookupError):
    """No such device, or no driver."""

    _usual = Code.NOT_FOUND


class LibraryNotFound(GpumemError, ImportError):
    """libgpumem.so.0 is not there, or is not the version that this package is made for."""

    _usual = Code.NOT_FOUND


_BY_CODE: dict[Code, type[GpumemError]] = {
    Code.RESOURCE_EXHAUSTED: OutOfMemory,
    Code.INVALID_ARGUMENT: InvalidArgument,
    Code.FAILED_PRECONDITION: FailedPrecondition,
    Code.UNAVAILABLE: Unavailable,
    Code.PERMISSION_DENIED: PermissionDenied,
    Code.NOT_FOUND: NotFound,
}


def error_of(status: int, message: str, *, asks_for_memory: bool = False) -> GpumemError:
    """The exception for a status that is not OK. `asks_for_memory`: DEADLINE_EXCEEDED means that there was none."""
    try:
        code = Code(status)
    except ValueError:  # a newer library's
        return GpumemError(f"status {status}: {message}", Code.INTERNAL)
    if code is Code.DEADLINE_EXCEEDED:
        return (OutOfMemory if asks_for_memory else Unavailable)(message, code)
    return _BY_CODE.get(code, GpumemError)(message, code)
