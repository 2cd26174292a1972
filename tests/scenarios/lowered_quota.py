#!/usr/bin/env python3
"""A tenant's limit is lowered to less than it holds, while it and another one work.

The tenant is in debt: it is granted nothing more, and is asked for the difference, until it has given that back. The
other tenant notices nothing. The new limit outlasts the broker.
"""
import collections.abc
import contextlib
import sys
import threading

import history
import picture
from reused import Failure
from stage import GIB, MIB, Actor, Play, Stage, StageOptions, run

STEP = 512 * MIB
GUARANTEE, LIMIT, LOWERED = 2 * GIB, 16 * GIB, 8 * GIB
ANN_GUARANTEE, ANN_LIMIT = 4 * GIB, 8 * GIB
HELD = 14 * GIB
WORK_SECONDS = 0.004  # that ann keeps what she has, or does without
DEBT = HELD - LOWERED
TENANTS = {"ann": f"guarantee = {ANN_GUARANTEE}\nlimit = {ANN_LIMIT}", "bob": f"guarantee = {GUARANTEE}\nlimit = {LIMIT}"}


@contextlib.contextmanager
def at_work(actor: Actor) -> collections.abc.Iterator[list[dict]]:
    """The actor grows and shrinks all the while. Yields the answers, to be read afterwards."""
    answers: list[dict] = []
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.wait(WORK_SECONDS):
                answers.append(actor.ask(f"grow {2 * STEP} 0"))
                stop.wait(WORK_SECONDS)
                answers.append(actor.ask(f"shrink {2 * STEP}"))
        except Failure as failure:
            answers.append({"ok": False, "error": str(failure)})

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


def lowered(play: Play, stage: Stage, bob: Actor, second: Actor) -> None:
    """From the lower limit to the debt's end."""
    since = stage.event_count()
    stage.broker.ask("quota", "set", "bob", "--limit", f"{LOWERED // GIB}GiB")
    debt = stage.await_event("debt", "bob", since)
    play.hold(debt["bytes"] == DEBT, "bob is in debt by what he holds beyond the new limit", history.amount(debt["bytes"]))
    pressure = stage.await_event("pressure", "bob", since)
    play.hold(pressure["bytes"] == DEBT, "and is asked for that", history.amount(pressure["bytes"]))
    refused = second.ask(f"grow {STEP} 0")
    play.hold(not refused["ok"], "another process of his is granted nothing meanwhile", refused.get("error", "it was"))
    bob.must("stubborn off")
    stage.await_event("debt-paid", "bob", since)
    gave = bob.await_line("gave", lambda line: line["did"] == "gave")
    play.hold(gave["bytes"] == DEBT and stage.tenant("bob")["charged"] == LOWERED, "the debt is paid, to the byte",
              history.amount(gave["bytes"]))
    bob.must("stubborn on")
    since = stage.event_count()
    more = f"grow {STEP} 60000"
    told = second.tell(more)
    asked = stage.await_event("pressure", "bob", since)
    play.hold(stage.tenant("bob")["waiting"] == 1, "at the limit, his other process waits")
    play.hold(asked["bytes"] == STEP, "and the first is asked for what it needs", history.amount(asked["bytes"]))
    bob.must("stubborn off")
    play.hold(second.answer(more, told)["ok"], "which gives it")


def under_load(play: Play, stage: Stage) -> list[dict]:
    """Answers the events."""
    ann = stage.started("ann", tenant="ann")
    ann.fill(ANN_GUARANTEE, STEP)
    bob = stage.started("bob", tenant="bob")
    bob.fill(HELD, STEP)
    bob.must("stubborn on")
    second = stage.started("bob-2", tenant="bob")
    with at_work(ann) as answers:
        lowered(play, stage, bob, second)
    asked = any(line["did"] == "asked" for line in ann.said())
    play.hold(bool(answers) and all(answer["ok"] for answer in answers) and not asked, "ann works on, and is not asked",
              f"{len(answers)} growths and shrinks")
    stage.settle()
    events = stage.broker_events()
    play.hold(stage.leave([ann, bob, second]), "afterwards nothing is charged")
    return events


def after_restart(play: Play, stage: Stage) -> None:
    stage.restart()
    bob = stage.started("bob-3", tenant="bob")
    limit = stage.tenant("bob")["limit"]
    play.hold(limit == LOWERED, "a new broker knows the new limit", history.amount(limit))
    bob.fill(LOWERED, STEP)
    refused = bob.ask(f"grow {STEP} 0")
    play.hold(not refused["ok"], "and holds to it", refused.get("error", "it granted more"))
    stage.settle()


def draw(before: list[dict], after: list[dict]) -> str:
    changed, paid = history.time_of(before, "debt", "bob"), history.time_of(before, "debt-paid", "bob")
    granted = history.time_of(before, "granted", "bob", last=True)
    again, refused = history.time_of(after, "granted", "bob"), history.time_of(after, "denied", "bob")
    both = {"ann": (ANN_GUARANTEE, ANN_LIMIT), "bob": (GUARANTEE, [(0.0, LIMIT), (changed, LOWERED)])}
    return picture.timeline("A limit is lowered under load", [
        picture.panel("bob's limit is lowered while both work: he is in debt until he has given back what is over it", before,
                      both, changed - (paid - changed) / 4, paid + (paid - changed) / 4),
        picture.panel("At his limit, his other process waits until the first makes room", before, both,
                      paid + (granted - paid) / 20, granted + (granted - paid) / 10),
        picture.panel("A new broker holds to the new limit", after, {"bob": (GUARANTEE, LOWERED)}, again,
                      refused + (refused - again) / 10)])


def scenario(play: Play) -> None:
    with play.stage("lowered", StageOptions(tenants=TENANTS)) as stage:
        before = under_load(play, stage)
        after_restart(play, stage)
        after = stage.broker_events()
    if not play.failed:
        play.draw(draw(before, after))


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0], scenario))
