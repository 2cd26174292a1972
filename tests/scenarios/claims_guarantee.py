#!/usr/bin/env python3
"""Two tenants burst until the device is full; a third claims its guarantee while they run.

Where guarantees are kept free it is granted at once. Where idle guarantees are lent, the broker asks for the memory back:
of whoever has taken most beyond its promise for its weight, and only what the claim needs.
"""
import sys

import history
import picture
from stage import GIB, MIB, Play, Stage, StageOptions, run

STEP = 512 * MIB
DEADLINE_MS = 5000
QUOTAS = {"ann": (2, 14, 1), "bob": (2, 14, 3), "carol": (8, 12, 1), "dave": (2, 4, 1)}  # GiB, GiB, weight
TRIMS = {"ann": ("--trim",)}  # the library gives back what she does not use; the others do it themselves
CLAIMS = (4 * GIB, 4 * GIB)
KEPT = {"ann": 6, "bob": 8, "dave": 2}  # GiB that each holds where carol's 8 GiB are kept free
LENT = {"ann": 10, "bob": 12, "dave": 2}  # ... and where they are lent: the whole pool
# The bytes that each claim takes back. ann's burst is 8 GiB of weight 1, bob's 10 GiB of weight 3. The first claim
# brings ann down to 4 GiB for her weight, still above bob's 3.33; the second brings both down to 2.5.
TAKEN = ({"ann": 4 * GIB}, {"ann": 3 * GIB // 2, "bob": 5 * GIB // 2})


def tenants() -> dict[str, str]:
    return {name: f'guarantee = "{guarantee}GiB"\nlimit = "{limit}GiB"\nweight = {weight}'
            for name, (guarantee, limit, weight) in QUOTAS.items()}


def quotas() -> dict[str, tuple[int, int]]:
    return {name: (guarantee * GIB, limit * GIB) for name, (guarantee, limit, _) in QUOTAS.items()}


def whole(title: str, events: list[dict]) -> picture.Panel:
    start, end = history.time_of(events, "granted", "ann"), history.time_of(events, "granted", "carol", last=True)
    return picture.panel(title, events, quotas(), start, end + (end - start) / 15)


def around_claim(title: str, events: list[dict], number: int) -> picture.Panel:
    """From a little before a claim to a little after its grant."""
    of_carol = [history.seconds(e) for e in events if e["tenant"] == "carol" and e["kind"] in ("waiting", "granted")]
    start, end = of_carol[2 * number:2 * number + 2]
    return picture.panel(title, events, quotas(), start - (end - start) / 5, end + (end - start) / 2.5)


def held_to(play: Play, stage: Stage, since: int, taken: dict[str, int]) -> None:
    """Checks the tenants that were asked between a claim and its grant, and the bytes that they returned."""
    events = stage.broker_events()[since:]
    asked = sorted(e["tenant"] for e in events if e["kind"] == "pressure")
    play.hold(asked == sorted(taken), "asked, once, are those with the largest shares", ", ".join(asked) or "nobody")
    for name in QUOTAS:
        gave = history.total(events, "returned", name)
        play.hold(gave == taken.get(name, 0), f"{name} gives back only what is needed", history.amount(gave))
    if taken:
        order = [next((history.seconds(e) for e in events if e["kind"] == kind), 0.0)
                 for kind in ("waiting", "pressure", "returned", "granted")]
        play.hold(all(order) and order == sorted(order), "in this order: it waits, they are asked, they give back, it is granted")
    else:
        play.hold(all(e["kind"] != "waiting" for e in events), "it does not wait")


def act(play: Play, name: str, lend: bool, holdings: dict[str, int], taken: tuple[dict[str, int], ...]) -> list[dict]:
    """Two claims; answers the events."""
    play.say(f"{name}:")
    broker = f"lend_guarantees = {str(lend).lower()}\nreclaim_deadline_ms = {DEADLINE_MS}"
    with play.stage(name.replace(" ", "-"), StageOptions(broker=broker, tenants=tenants())) as stage:
        actors = [stage.started(tenant, *TRIMS.get(tenant, ()), tenant=tenant) for tenant in holdings]
        for actor, gibibytes in zip(actors, holdings.values()):
            actor.fill(gibibytes * GIB, STEP)
        more = actors[0].ask(f"grow {STEP} 0")
        play.hold(not more["ok"], "the device is full for those who burst", more.get("code", "it was granted more"))
        carol = stage.started("carol", tenant="carol")
        for claim, expected in zip(CLAIMS, taken):
            stage.settle()
            since = stage.event_count()
            carol.must(f"grow {claim} {DEADLINE_MS}")
            granted = stage.await_event("granted", "carol", since)
            play.hold(granted["bytes"] == claim and granted.get("waited_ms", 0) <= DEADLINE_MS,
                      f"a claim of {history.amount(claim)} is granted", f"after {granted.get('waited_ms', 0)} ms")
            stage.settle()
            held_to(play, stage, since, expected)
        events = stage.events()
        play.hold(stage.leave([*actors, carol]), "afterwards nothing is charged")
    return events


def scenario(play: Play) -> None:
    kept = act(play, "guarantees are kept free", False, KEPT, ({}, {}))
    lent = act(play, "idle guarantees are lent", True, LENT, TAKEN)
    if play.failed:
        return
    play.draw(picture.timeline("A guarantee is claimed while others burst", [
        whole("Guarantees are kept free: carol's claims are granted at once", kept),
        around_claim("Idle guarantees are lent: carol's first claim is ann's to meet, who has the larger share", lent, 0),
        around_claim("Her second claim brings the shares of ann and bob down to one level", lent, 1)]))


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0], scenario))
