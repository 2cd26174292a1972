#!/usr/bin/env python3
"""A borrower ignores that memory is asked back for a claim: what comes of it under each escalation.

Under `wait` the claim waits on, until the borrower gives back after all. Under `deny` the claim is refused. Under
`end-session` the borrower gets SIGTERM and, if that does not help, SIGKILL. Nobody else loses anything.
"""
import sys
import time

import history
import picture
from stage import GIB, MIB, Actor, Play, Stage, StageOptions, run, until

STEP = 512 * MIB
DEADLINE_MS = 1000
GRACE_SECONDS = 1
QUOTAS = {"bob": (2, 18), "dave": (8, 8), "carol": (8, 12)}  # GiB
BIG, SMALL, DAVE, CLAIM = 12 * GIB, 4 * GIB, 8 * GIB, 4 * GIB  # together the whole pool
ALARMS = ("terminating", "killing")


class Act:
    """One escalation: bob's big session is stubborn, his small one is not, and dave is inside his guarantee."""

    def __init__(self, play: Play, stage: Stage):
        self.play = play
        self.stage = stage

    def begin(self, *deaf: str) -> None:
        self.big = self.stage.started("bob-big", *deaf, tenant="bob")
        self.small = self.stage.started("bob-small", tenant="bob")
        self.dave = self.stage.started("dave", tenant="dave")
        for actor, target in ((self.big, BIG), (self.small, SMALL), (self.dave, DAVE)):
            actor.fill(target, STEP)
        self.big.must("stubborn on")
        self.carol = self.stage.started("carol", tenant="carol")
        self.stage.settle()
        self.since = self.stage.event_count()
        self.claim = f"grow {CLAIM} 30000"
        self.told = self.carol.tell(self.claim)
        self.pressure = self.stage.await_event("pressure", "bob", self.since)
        self.big.await_line("asked", lambda line: line["did"] == "asked")

    def events(self) -> list[dict]:
        return self.stage.broker_events()[self.since:]

    def outcome(self, granted: bool) -> None:
        answer = self.carol.answer(self.claim, self.told)
        self.play.hold(answer["ok"] == granted, f"the claim is {'granted' if granted else 'refused'}",
                       answer.get("code", history.amount(answer.get("committed", 0))))

    def alarms(self, expected: tuple[str, ...]) -> None:
        self.stage.settle()  # the claim's answer may be here before the events that led to it
        seen = tuple(e["kind"] for e in self.events() if e["kind"] in ALARMS and e["pid"] == self.big.process.pid)
        others = [e for e in self.events() if e["kind"] in ALARMS and e["pid"] != self.big.process.pid]
        self.play.hold(seen == expected and not others, "who was ended, and how", f"the borrower: {', '.join(seen) or 'not at all'}")

    def unharmed(self, *actors: tuple[Actor, int]) -> None:
        asked = {e["tenant"] for e in self.events() if e["kind"] == "pressure"}
        self.play.hold(asked == {"bob"}, "asked was the tenant with a burst, and nobody else", ", ".join(sorted(asked)))
        for actor, held in actors:
            still = actor.ask("shrink 0")
            asked_of_it = any(line["did"] == "asked" for line in actor.said())
            self.play.hold(still["ok"] and still["committed"] == held and not asked_of_it,
                           f"{actor.label} has what it had, and was not asked", history.amount(still.get("committed", 0)))

    def end(self, title: str, *actors: Actor) -> picture.Panel:
        self.stage.settle()
        events = self.stage.events()
        start, end = history.seconds(events[self.since]), history.seconds(events[-1])
        quotas = {name: (guarantee * GIB, limit * GIB) for name, (guarantee, limit) in QUOTAS.items()}
        self.play.hold(self.stage.leave(list(actors)), "afterwards nothing is charged")
        return picture.panel(title, events, quotas, start - 0.03, max(end, start + DEADLINE_MS / 1000) + 0.2)

    def deadline(self) -> float:
        """Of the wall clock, in seconds."""
        return history.seconds(self.pressure) + self.pressure["within_ms"] / 1000


def waits(act: Act) -> picture.Panel:
    act.begin()
    until("the deadline has passed", lambda: time.time() > act.deadline() + 0.5)
    act.play.hold(act.stage.tenant("carol")["waiting"] == 1, "after the deadline the claim waits still")
    act.big.must("stubborn off")
    act.big.await_line("gave", lambda line: line["did"] == "gave")
    act.outcome(granted=True)
    act.alarms(())
    act.unharmed((act.small, SMALL), (act.dave, DAVE))
    left = act.big.must("shrink 0")["committed"]
    act.play.hold(left == BIG - CLAIM, "the borrower has given back what was asked", history.amount(BIG - left))
    return act.end("Escalation wait: the claim waits until the borrower gives back", act.big, act.small, act.dave, act.carol)


def denies(act: Act) -> picture.Panel:
    act.begin()
    act.outcome(granted=False)
    denied = act.stage.await_event("denied", "carol", act.since)
    act.play.hold(history.seconds(denied) >= act.deadline() - 0.001, "not before the deadline", denied["words"] or "")
    act.alarms(())
    act.unharmed((act.small, SMALL), (act.dave, DAVE))
    return act.end("Escalation deny: the claim is refused", act.big, act.small, act.dave, act.carol)


def ends(act: Act) -> picture.Panel:
    act.begin()
    act.outcome(granted=True)
    act.alarms(("terminating",))
    act.unharmed((act.small, SMALL), (act.dave, DAVE))
    return act.end("Escalation end-session: the borrower ends when told to", act.small, act.dave, act.carol)


def kills(act: Act) -> picture.Panel:
    act.begin("--ignore-term")
    act.outcome(granted=True)
    act.alarms(("terminating", "killing"))
    act.unharmed((act.small, SMALL), (act.dave, DAVE))
    return act.end("Escalation end-session: the borrower ignores that, too", act.small, act.dave, act.carol)


ACTS = (("wait", waits), ("deny", denies), ("end-session", ends), ("end-session", kills))


def scenario(play: Play) -> None:
    panels = []
    tenants = {name: f'guarantee = "{g}GiB"\nlimit = "{limit}GiB"' for name, (g, limit) in QUOTAS.items()}
    for escalation, act in ACTS:
        play.say(f"{escalation}{', SIGTERM is ignored' if act is kills else ''}:")
        broker = (f'lend_guarantees = true\nreclaim_deadline_ms = {DEADLINE_MS}\nescalation = "{escalation}"\n'
                  f"grace_seconds = {GRACE_SECONDS}")
        with play.stage(act.__name__, StageOptions(broker=broker, tenants=tenants)) as stage:
            panels.append(act(Act(play, stage)))
    if not play.failed:
        play.draw(picture.timeline("A borrower ignores that memory is asked back", panels))


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0], scenario))
