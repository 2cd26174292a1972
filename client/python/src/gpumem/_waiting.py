"""Calls of C that may wait, and that a signal calls off: Ctrl-C, for example.

Python runs handlers of signals in the main thread, between its own steps, and a call of C is one step. So the main thread has
such a call made by another one, and waits for that in a way that signals interrupt.
"""
from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from . import _abi
from ._library import check, failure, load
from .errors import GpumemError


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

    if options.wait_ms == 0 or threading.current_thread() is not threading.main_thread():
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
