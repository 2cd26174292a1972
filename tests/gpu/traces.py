"""Allocation traces in the format of bench/allocator/traces/trace.h: `a ID BYTES STREAM` and `f ID STREAM`, a line each."""
import re
from collections.abc import Iterable
from typing import Any

# Log lines of XLA's allocator with TF_CPP_VMODULE=bfc_allocator=3.
_XLA = re.compile(r"\b(?P<call>Allocate|Deallocate)Raw GPU_\d+_bfc +(?P<bytes>\d+)")


class Trace:
    """Calls in their order. A block that was allocated before the first call is none of it, and so is its end."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._blocks = 0
        self._streams: dict[int, int] = {0: 0}

    def allocated(self, size: int, stream: int = 0) -> int:
        """Answers the block's ID."""
        self._blocks += 1
        self.lines.append(f"a {self._blocks} {size} {self._stream(stream)}")
        return self._blocks

    def freed(self, block: int, stream: int = 0) -> None:
        self.lines.append(f"f {block} {self._stream(stream)}")

    def _stream(self, handle: int) -> int:
        return self._streams.setdefault(handle, len(self._streams))

    def text(self, of: str) -> str:
        return "\n".join([f"# {of}", *self.lines, ""])


def of_pytorch(events: Iterable[dict[str, Any]]) -> Trace:
    """A trace of the events of PyTorch's recorder: {op, size, stream, address}."""
    trace = Trace()
    there: dict[int, int] = {}
    for event in events:
        if event["op"] == "alloc" and event["size"]:
            there[event["address"]] = trace.allocated(event["size"], event["stream"] or 0)
        elif event["op"] == "free_requested" and event["address"] in there:
            trace.freed(there.pop(event["address"]), event["stream"] or 0)
    return trace


def of_xla(log: Iterable[str]) -> Trace:
    """A trace of the log of XLA's allocator. The log has only the size of a freed block, so the newest block of that
    size is taken."""
    trace = Trace()
    there: dict[int, list[int]] = {}
    for found in filter(None, map(_XLA.search, log)):
        size = int(found["bytes"])
        if found["call"] == "Allocate" and size:
            there.setdefault(size, []).append(trace.allocated(size))
        elif found["call"] == "Deallocate" and there.get(size):
            trace.freed(there[size].pop())
    return trace
