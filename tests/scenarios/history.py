"""From the broker's events to what a picture shows: each tenant's charged bytes over time, and what happened to it."""
import dataclasses
import datetime
from typing import Any

from reused import size

Event = dict[str, Any]
Steps = list[tuple[float, int]]


@dataclasses.dataclass(frozen=True)
class Mark:
    at: float
    kind: str
    words: str = ""


@dataclasses.dataclass
class Track:
    """Of one tenant; times are seconds from the panel's start."""
    tenant: str
    guarantee: int
    limit: Steps
    charged: Steps
    marks: list[Mark]


def seconds(event: Event) -> float:
    """The event's time, of the wall clock."""
    return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


def time_of(events: list[Event], kind: str, tenant: str, last: bool = False) -> float:
    """Of the first, or last, such event."""
    times = [seconds(e) for e in events if e["kind"] == kind and e.get("tenant") == tenant]
    return times[-1 if last else 0]


def amount(count: int) -> str:
    return size(count)


def duration(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def total(events: list[Event], kind: str, tenant: str) -> int:
    return sum(e.get("bytes", 0) for e in events if e["kind"] == kind and e.get("tenant") == tenant)


def charged(events: list[Event], tenant: str) -> int:
    """What the events leave the tenant charged with."""
    return total(events, "granted", tenant) - total(events, "freed", tenant)


def _words(event: Event, asked: bool) -> str | None:
    """The text of an event's mark. None: the event needs no mark, such as memory that was given back voluntarily."""
    kind, count = event["kind"], event.get("bytes", 0)
    if kind == "granted":
        waited = event.get("waited_ms", 0)
        return f"granted after {duration(waited)}" if waited else None
    return {"waiting": f"asks for {amount(count)}", "denied": f"{amount(count)} refused", "pressure": f"give back {amount(count)}",
            "returned": "" if asked else None, "debt": f"{amount(count)} of debt", "debt-paid": "paid",
            "terminating": "SIGTERM", "killing": "SIGKILL"}.get(kind)


def track(events: list[Event], tenant: str, start: float, guarantee: int, limit: int | Steps) -> Track:
    """The tenant's part of the events, from `start` (of the wall clock) on. Earlier events count towards the level, but
    are not shown."""
    limits = limit if isinstance(limit, list) else [(start, limit)]
    made = Track(tenant, guarantee, [(max(at - start, 0.0), count) for at, count in limits], [(0.0, 0)], [])
    now = 0
    asked: set[int | None] = set()
    for event in events:
        if event.get("tenant") != tenant:
            continue
        if event["kind"] == "pressure":
            asked.add(event.get("session"))
        at = seconds(event) - start
        change = {"granted": 1, "freed": -1}.get(event["kind"], 0) * event.get("bytes", 0)
        if change:
            now += change
            made.charged.append((max(at, 0.0), now))
        words = _words(event, event.get("session") in asked)
        if event["kind"] == "relieved":
            asked.discard(event.get("session"))
        if at >= 0 and words is not None:
            made.marks.append(Mark(at, event["kind"], words))
    return made
