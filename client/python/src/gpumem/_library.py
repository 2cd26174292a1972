"""Finds and loads libgpumem.so.0, once, when it is first needed, and makes its calls."""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import threading
from collections.abc import Callable
from typing import Any

from . import _abi
from .errors import GpumemError, LibraryNotFound, error_of

NAME = "libgpumem.so.0"
VARIABLE = "GPUMEM_LIBRARY"
INSIDE = pathlib.Path(__file__).with_name(NAME)  # in a wheel of `./dev wheel`


def path() -> str:
    """How the library is opened: the environment's GPUMEM_LIBRARY, else the one inside the package, else its name, for
    the system's loader."""
    return os.environ.get(VARIABLE) or (str(INSIDE) if INSIDE.exists() else NAME)


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, its functions declared. Calls release the GIL. Raises LibraryNotFound."""
    try:
        library = ctypes.CDLL(path())
    except OSError as error:
        named = {NAME: f"{NAME} on the system's search path", str(INSIDE): str(INSIDE)}.get(path(), f"{VARIABLE}={path()}")
        raise LibraryNotFound(
            f"libgpumem cannot be loaded ({named}: {error}); install gpumem (cmake --install, then ldconfig), or set "
            f"{VARIABLE} to the file {NAME}") from error
    try:
        for name, (answer, takes) in _abi.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = answer, takes
        for name in _abi.NOT_CALLED:
            getattr(library, name)
    except AttributeError as error:
        raise LibraryNotFound(f"{path()} is older than this package: it has no function {name}; install the same "
                              "version of both") from error
    return library


def text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def failure(status: int, *, asks_for_memory: bool = False) -> GpumemError:
    """The exception for this thread's last call, which answered `status`."""
    return error_of(status, text(load().gpumem_last_error()), asks_for_memory=asks_for_memory)


def check(status: int) -> None:
    """Raises unless `status` is OK."""
    if status:
        raise failure(status)


def leave(close: Callable[[], None], error: object) -> None:
    """Closes at the end of a `with` statement. An error of `close` does not replace `error`, which ends the statement
    already: SystemExit in a forked child, for example."""
    try:
        close()
    except GpumemError:
        if error is None:
            raise


def visit(call: Callable[..., int], handle: int, visitor: Any, convert: Callable[[Any], Any]) -> list[Any]:
    """All values that `call` passes to a visitor of the type `visitor`, each converted."""
    found: list[Any] = []
    failed: list[BaseException] = []

    def each(shown: Any, _: Any) -> bool:
        try:
            found.append(convert(shown.contents))
        except BaseException as error:  # no exception passes through C
            failed.append(error)
        return not failed

    check(call(handle, visitor(each), None))
    if failed:
        raise failed[0]
    return found


def version() -> str:
    """The version of the library that is running: `0.1.0`."""
    return text(load().gpumem_version())


# Python runs the handlers of signals in the main thread, between its own steps, and a call of C is one step. So that Ctrl-C
# can cancel a call that waits, the main thread has another thread make the call, and waits in a way that signals interrupt.


class _Canceller:
    """Freed when neither the caller nor the thread refers to it."""

    def __init__(self) -> None:
        self.handle = _abi.Handle()
        check(load().gpumem_canceller_create(ctypes.byref(self.handle)))

    def cancel(self) -> None:
        load().gpumem_canceller_cancel(self.handle)

    def __del__(self) -> None:
        if self.handle.value:
            load().gpumem_canceller_free(self.handle)


def check_waiting(options: ctypes.Structure, call: Callable[[], int], *, asks_for_memory: bool = False) -> None:
    """Makes `call`, which passes `options` on, and raises unless the status that it answers is OK.

    If a signal's handler raises meanwhile, the call is cancelled and the exception is raised here. The call may have
    done its work by then.
    """
    failed: list[GpumemError] = []

    def make() -> None:
        status = call()
        if status:
            failed.append(failure(status, asks_for_memory=asks_for_memory))  # the words are the thread's

    waits = options.wait_ms > 0 or (asks_for_memory and options.wait_ms == 0 and "GPUMEM_WAIT" in os.environ)
    if not waits or threading.current_thread() is not threading.main_thread():
        make()
    else:
        _make_in_thread(options, make)
    if failed:
        raise failed[0]


def _make_in_thread(options: ctypes.Structure, make: Callable[[], None]) -> None:
    canceller = _Canceller()
    options.canceller = canceller.handle
    thread = threading.Thread(target=lambda kept: make(), args=(canceller,), name="gpumem wait", daemon=True)
    thread.start()
    try:
        thread.join()
    except BaseException:
        canceller.cancel()
        thread.join()
        raise
