"""Programs that know nothing of gpumem, by `gpumem run` in slices of several sizes and without it: whether they compute
the same, at what speed, whether the device that they see is the slice, and whether they ever hold more than that.

A group is a program twice without gpumem, and the same program in each slice. All of a group start at once, by one
broker. Then they take turns: each trains a few steps while the others stand still. So no two compute at the same time,
and their times are comparable. The two programs without gpumem differ by chance; any two programs of the framework may
differ by as much. If a step in a slice takes too long, by more than that, the group is given more rounds. The median is
of all rounds.

Memory is looked at all the while:
- What the broker charges to a process, but for what is on its way back, does not pass its slice.
- The driver says of a process at most what it declared, and a context. It does not name what a process maps of the pool.
- The device's used bytes, without what the driver says of the group's processes, do not grow by more than the slices of
  the group. The broker has its pool before the first group starts, so they are expected not to grow at all.

A framework that takes memory ahead would leave nothing for the others of its group: without gpumem it takes a share of
the device.

data: {programs: [{framework, way, slice, again, verdict, why, outside, charged, steps, step_ns}],
groups: [{framework, way, rounds, peak}], ratios: [{framework, way, slice, again, ratio}]}: `slice` 0 is without gpumem, `again`
the second of those; `outside` is what the driver said at most of one process of the program, without what that process
declared: its context; `charged` is what the broker said at most of one, declared memory included, without what it had given back; `step_ns` is the median
of `steps` steps after the warm-up; `peak` is by how much the device's used bytes grew at most, without what the driver
said of the group's processes; `ratio` is the time of a step by that of the first.
"""
import dataclasses
import sys
import time
from typing import Any

from broker import Broker
from nvml import Device, Nvml
from session import GIB, MIB, NO_TIME, Outcome, Session, amount, duration, table
from turns import AHEAD, SLOWEST, Kind, Program, noise, play, ratios, slower
from watch import Seen, Watch

NAME = "unmodified"
TITLE = "Unmodified programs"
REQUIRED = False
LIMIT = 400
EACH_SECONDS = 60  # a group
WAYS = {"driver": ("blocks", "async"), "cupy": ("pool", "async"), "jax": ("preallocate", "growing", "platform"),
        "pytorch": ("caching", "expandable", "async", "graphs", "processes", "expandable-processes"),
        "tensorflow": ("whole", "growing")}
SLICES = (2 * GIB, 4 * GIB, 8 * GIB)
SAME_LOSS = 1e-3  # relative: kernels may be chosen by what memory they are given
# A context grows when kernels are loaded, and each process of a program has one: what is not the slice's.
CONTEXTS = GIB
# The broker's stock for the next request, and the difference between two looks at one moment.
STOCK = 256 * MIB


def complaints(program: Program, status: int, seen: Seen) -> list[str]:
    """The faults of a program that has ended with `status`."""
    at = program.at
    if status != 0 or "end" not in at:
        return [at["failed"]["why"] if "failed" in at else f"status {status}, or took too long, after: {program.last}"]
    wrong = [] if at["trained"]["correct"] else ["what it computed is wrong"]
    if at["refused"]["wrong"]:
        wrong.append(f"asked for too much: {at['refused']['wrong']}")
    return wrong + (beyond_slice(program.kind.size, at["context"], seen) if program.kind.size else [])


def beyond_slice(size: int, context: dict[str, Any], seen: Seen) -> list[str]:
    wrong = []
    # Frameworks may report a rounded share of the total.
    for total in (context["total"], context["seen"]):
        if total is not None and abs(total - size) > size // 1000:
            wrong.append(f"it sees a device of {amount(total)}, not of {amount(size)}")
    if seen.charged > size:
        wrong.append(f"charged {amount(seen.charged)}")
    if seen.outside > CONTEXTS:
        wrong.append(f"the context of a process took {amount(seen.outside)}")
    return wrong


def entry(kind: Kind, verdict: str, why: str) -> dict[str, Any]:
    return {"framework": kind.framework, "way": kind.way, "slice": kind.size, "again": kind.again, "verdict": verdict,
            "why": why, "outside": 0, "charged": 0, "steps": 0, "step_ns": 0}


def judged(program: Program, status: int, seen: Seen) -> dict[str, Any]:
    """Of one program, for `programs`."""
    if "missing" in program.at:
        return entry(program.kind, "skipped", program.at["missing"]["why"])
    wrong = complaints(program, status, seen)
    return entry(program.kind, "failed" if wrong else "passed", "; ".join(wrong)) | {
        "outside": seen.outside, "charged": seen.charged, "steps": len(program.times), "step_ns": program.step_ns()}


@dataclasses.dataclass
class Found:
    """As `data` has it."""
    programs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    groups: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    ratios: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def measure(session: Session, device: Device, broker: Broker, kinds: list[Kind], seconds: float, outcome: Outcome,
            found: Found) -> None:
    """One group; `kinds` begins with the programs without gpumem."""
    if seconds < 5:
        found.programs += [entry(kind, "skipped", NO_TIME) for kind in kinds]
        return
    watch = Watch(device, broker)
    group = [Program(session, device, broker, kind, seconds) for kind in kinds]
    watch.start({program.kind.label: program.pid for program in group})
    rounds = play(session, group)
    watch.end()  # before they end: the driver forgets a process before its memory is free
    for program in group:
        program.answer()
    ended = [judged(program, program.end(), watch.seen[program.kind.label]) for program in group]
    broker.look()  # what went past it is not charged to the next group
    if ended[0]["verdict"] == "skipped":
        found.programs.append(ended[0])
        return
    for one in ended[1:]:
        if one["verdict"] == "skipped":
            one["verdict"] = "failed"  # it is there without gpumem
    found.programs += ended
    found.groups.append({"framework": kinds[0].framework, "way": kinds[0].way, "rounds": rounds, "peak": watch.peak})
    judge_growth(session, kinds, watch, outcome)
    passed = [program for program, one in zip(group, ended) if one["verdict"] == "passed"]
    if group[0] in passed:
        found.ratios += compare(passed, outcome)


def judge_growth(session: Session, kinds: list[Kind], watch: Watch, outcome: Outcome) -> None:
    """Where the driver does not tell what processes hold, all that they hold themselves is in the peak."""
    untold = len(kinds) * CONTEXTS + sum(int(AHEAD * session.lendable) for kind in kinds if not kind.size)
    if watch.peak > sum(kind.size for kind in kinds) + (STOCK if watch.told else untold):
        outcome.fail(f"{kinds[0].framework}, {kinds[0].way}: the device's used memory grew by {amount(watch.peak)}")


def compare(group: list[Program], outcome: Outcome) -> list[dict[str, Any]]:
    """Compares the programs in slices with the first one, which runs without gpumem. For `ratios`."""
    losses = group[0].at["trained"]["losses"]
    for other in group[1:]:
        pairs = list(zip(losses, other.at["trained"]["losses"]))
        if not pairs or any(abs(a - b) > SAME_LOSS * abs(a) for a, b in pairs):
            outcome.fail(f"{other.kind}: the losses are not those without gpumem")
    return [{"framework": kind.framework, "way": kind.way, "slice": kind.size, "again": kind.again, "ratio": round(ratio, 3)}
            for kind, ratio in ratios(group)]


def judge_speed(session: Session, found: Found, outcome: Outcome) -> None:
    """The chance difference of two programs without gpumem is taken over all groups of the framework."""
    for framework in WAYS:
        compared = [(kind_of(said), said["ratio"]) for said in found.ratios if said["framework"] == framework]
        for kind, ratio in slower(compared):
            outcome.differs(f"{kind}: a step", f"at most {SLOWEST} times as long as without gpumem, and {noise(compared):.3f} by chance",
                            f"{ratio} times")
            if not session.simulated:  # there, steps are short, and the machine has other work
                outcome.fail(f"{kind}: a step takes {ratio} times as long as without gpumem")


def slices(session: Session, pool: int) -> list[int]:
    """Of a group: as many as are in the pool at once."""
    if session.short:
        return [256 * MIB, 2 * GIB]
    return [size for number, size in enumerate(SLICES) if sum(SLICES[: number + 1]) <= pool]


def run(session: Session) -> Outcome:
    if session.simulated and not session.host_python:  # any interpreter can run what needs no framework
        session = dataclasses.replace(session, host_python=sys.executable)
    if not session.host_python:
        return Outcome("skipped", "this machine has no python3 of its own", dataclasses.asdict(Found()))
    device = Nvml(session.driver_folder).device(session.device)
    deadline = time.monotonic() + session.limit - 15
    chosen = session.programs.split(",") if session.programs else list(WAYS)
    ways = {framework: WAYS[framework] for framework in chosen if framework == "driver" or not session.simulated}
    pool = session.lendable // 2 // (2 * MIB) * 2 * MIB
    outcome, found = Outcome(), Found()
    with Broker(session, pool) as broker:
        for framework, way in ((framework, way) for framework, all_ways in ways.items() for way in all_ways):
            without = [Kind(framework, way, 0), Kind(framework, way, 0, again=True)]
            kinds = without + [Kind(framework, way, size) for size in slices(session, pool)]
            measure(session, device, broker, kinds, min(EACH_SECONDS, deadline - time.monotonic()), outcome, found)
    judge_speed(session, found, outcome)
    outcome.data = dataclasses.asdict(found)
    outcome.tables += tables(found)
    outcome.judge_time(session, found.programs)
    for program in found.programs:
        if program["verdict"] == "failed":
            outcome.fail(f"{kind_of(program)}: {program['why']}")
    return outcome


def kind_of(said: dict[str, Any]) -> Kind:
    return Kind(said["framework"], said["way"], said["slice"], said["again"])


def tables(found: Found) -> list[dict[str, Any]]:
    ratio = {kind_of(said): said["ratio"] for said in found.ratios}
    rows = [[p["framework"], p["way"], kind_of(p).memory, p["verdict"], p["why"], amount(p["outside"]), amount(p["charged"]),
             p["steps"] or "", duration(p["step_ns"]) if p["step_ns"] else "", ratio.get(kind_of(p), "")] for p in found.programs]
    groups = [[g["framework"], g["way"], g["rounds"], amount(g["peak"])] for g in found.groups]
    return [table("By `gpumem run`, and without", ["program", "allocates by", "slice", "", "why", "context", "charged",
                                                   "steps", "a step", "times the first"], rows),
            table("Those of a program together", ["program", "allocates by", "rounds", "device grew by"], groups)]
