"""When the broker asks for memory: from a thread of the library into Python."""
from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Union

from . import _abi
from ._library import check, load, text


@dataclasses.dataclass(frozen=True)
class Pressure:
    """The broker asks this session for memory: others have a right to it, or its tenant is in debt."""

    device: str  # UUID
    bytes: int
    deadline: float  # seconds from now; what has not come back by then may be taken by force


# Gives memory back, and answers how many bytes it expects to have given.
Handler = Callable[[Pressure], Union[int, None]]


class Listener:
    """The function that C calls for one session, whichever the handler is. Invariant: it lives as long as the process,
    since a handler may remove itself while C is within it."""

    _all: dict[int, Listener] = {}
    _guard = threading.Lock()

    def __init__(self, session: int):
        self._session = session
        self._owner = os.getpid()
        self._handler: Handler | None = None
        self._function = _abi.PressureHandler(self._answer)

    @classmethod
    def of(cls, session: int) -> Listener:
        """The one of the session with that handle."""
        with cls._guard:
            if session not in cls._all:
                cls._all[session] = cls(session)
            return cls._all[session]

    def use(self, handler: Handler | None) -> None:
        """As Session.on_pressure."""
        before, self._handler = self._handler, handler
        status = load().gpumem_session_on_pressure(self._session, self._function if handler else _NOBODY, None)
        if status:
            self._handler = before
        check(status)

    @classmethod
    def forget(cls, session: int) -> None:
        """The session is closed, and C calls no handler of it any more: the handler, and what it refers to, may go."""
        listener = cls._all.get(session)
        if listener:
            listener._handler = None

    def _answer(self, shown: Any, _: Any) -> int:
        handler = self._handler
        if handler is None:
            return 0
        try:
            asked = shown.contents
            return int(handler(Pressure(text(asked.device), asked.bytes, asked.deadline_ms / 1000)) or 0)
        except Exception:  # none passes through C
            print("gpumem: a pressure handler failed", file=sys.stderr)
            traceback.print_exc()
            return 0

    @classmethod
    def end(cls) -> None:
        """No handler is called once the interpreter ends: there is nothing left to call it in."""
        for listener in list(cls._all.values()):
            if listener._handler and listener._owner == os.getpid():
                load().gpumem_session_on_pressure(listener._session, _NOBODY, None)


_NOBODY = _abi.PressureHandler()
atexit.register(Listener.end)
