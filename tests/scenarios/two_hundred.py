#!/usr/bin/env python3
"""Two hundred clients start at once; each connects, opens a slice, grows by 8 MiB and says that it is ready.

How long may the last one take? A lone client takes `lone`. Two hundred of them have to do `work` besides: what they and
the broker compute, which is how long two hundred take one after the other, spread over the machine's processors. The bound
is `2 x lone + work`; the ratio that is printed is the last one's time by the bound.
"""
import dataclasses
import os
import statistics
import sys
import time

import curves
from stage import GIB, MIB, Actor, Play, Stage, StageOptions, run

CLIENTS = 200
LONE = 5  # lone clients; the one in the middle counts
STEP = 8 * MIB
STRICT_ROUNDS = 5
STRICT = "fail, too, if the last client takes longer than the bound, in the middle one of 5 runs"
ON_STAGE = StageOptions(simulate="1x80GiB", reserve="16GiB")  # the rest is room for the clients' contexts


def complaints(actors: list[Actor]) -> set[str]:
    return {line["error"] for actor in actors for line in actor.said() if not line.get("ok", True)}


def ready(actors: list[Actor], begun: float) -> list[dict[str, float]]:
    """Awaits them all: when each was connected, had a slice, had memory; in seconds from `begun`."""
    times = []
    for actor in actors:
        lines = {did: actor.await_line(did, lambda line: line["did"] == did) for did in ("connected", "start", "grow")}
        times.append({did: line["at"] / 1e9 - begun for did, line in lines.items() if line.get("ok", True)})
    return times


def go(actor: Actor) -> None:
    actor.tell(f"start\ngrow {STEP} 60000")


def one_after_the_other(stage: Stage, count: int) -> tuple[list[dict[str, float]], list[Actor]]:
    actors = [stage.actor(f"one-{i}") for i in range(count)]
    times = []
    for actor in actors:
        begun = time.monotonic()
        go(actor)
        times += ready([actor], begun)
    return times, actors


def all_at_once(stage: Stage) -> tuple[list[dict[str, float]], list[Actor]]:
    actors = [stage.actor(f"all-{i}") for i in range(CLIENTS)]
    begun = time.monotonic()
    for actor in actors:
        go(actor)
    return ready(actors, begun), actors


def took(times: list[dict[str, float]]) -> list[float]:
    return sorted(one["grow"] for one in times if "grow" in one)


@dataclasses.dataclass
class Race:
    """Of one run, in seconds: see the top."""
    lone: float
    work: float
    together: list[dict[str, float]]

    @property
    def bound(self) -> float:
        return 2 * self.lone + self.work

    @property
    def last(self) -> float:
        return took(self.together)[-1]

    @property
    def ratio(self) -> float:
        return self.last / self.bound


def race(play: Play, stage: Stage) -> Race:
    processors = len(os.sched_getaffinity(0))
    first, actors = one_after_the_other(stage, LONE)
    stage.leave(actors)
    sequence, actors = one_after_the_other(stage, CLIENTS)
    stage.leave(actors)
    together, actors = all_at_once(stage)
    play.hold(len(took(together)) == CLIENTS, "clients that are ready", f"{len(took(together))} of {CLIENTS}")
    for words in complaints(actors):
        play.say(f"       {words}")
    charged = sum(t["charged"] for t in stage.broker.tenants())
    play.hold(charged == CLIENTS * STEP, "all that they asked for is charged", f"{charged / GIB:.4g} GiB")
    play.hold(stage.leave(actors), "afterwards nothing is charged, and no session is left")
    made = Race(statistics.median(took(first)), sum(took(sequence)) / processors, together)
    play.say(f"  lone {made.lone * 1e3:.1f} ms; work {made.work * 1e3:.0f} ms ({CLIENTS} clients on {processors} processors); bound "
             f"{made.bound * 1e3:.0f} ms; last of {CLIENTS} at once {made.last * 1e3:.0f} ms; ratio {made.ratio:.2f}")
    return made


def scenario(play: Play) -> None:
    races = []
    with play.stage("two-hundred", ON_STAGE) as stage:
        for _ in range(STRICT_ROUNDS if play.options.strict else 1):
            races.append(race(play, stage))
    races.sort(key=lambda each: each.ratio)
    middle = races[len(races) // 2]
    if play.options.strict:
        play.hold(middle.ratio <= 1, f"the last one is ready within the bound, in the middle one of {len(races)} runs",
                  f"ratio {middle.ratio:.2f}")
    play.draw(curves.race(middle.together, middle.lone, middle.bound))


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0], scenario, users=False, strict=STRICT))
