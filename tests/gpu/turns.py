"""Programs that know nothing of gpumem, under way at once, that take turns: one trains while the others stand still."""
import concurrent.futures
import contextlib
import dataclasses
import os
import signal
import statistics
from typing import Any

from broker import Broker
from framework import Framework
from nvml import Device
from session import MIB, Session, amount
from watch import descendants

# Of turns, and how often as many are given again if a step takes too long.
ROUNDS, SHORT_ROUNDS, MORE = 12, 3, 1
TURN_STEPS, SHORT_TURN_STEPS = 25, 10
SLOWEST = 1.01
# Of the device: what a framework takes ahead without gpumem. The broker charges it to the user, whose programs in slices then have
# less room for code and contexts.
AHEAD = 0.05


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a program is. `size` is its slice's; 0 without gpumem. `again`: the same as another, for what two such differ by."""
    framework: str
    way: str
    size: int
    again: bool = False

    @property
    def waits_for_device(self) -> bool:
        """Whether its steps say how long the device takes. `driver` computes on the host."""
        return self.framework != "driver"

    @property
    def label(self) -> str:
        return f"{self.framework}-{self.way}-{self.size // MIB}M{'-again' if self.again else ''}"

    @property
    def memory(self) -> str:
        """The memory that the program uses, for people."""
        return (amount(self.size) if self.size else "without gpumem") + (", again" if self.again else "")

    def __str__(self) -> str:
        return f"{self.framework}, {self.way}, {self.memory}"


class Program(Framework):
    """A program under way. Once go_on() has returned it stands still, or has ended. `at`: what it said at each stage, the
    last of a name; `times`: nanoseconds of every step after the warm-up."""

    def __init__(self, session: Session, device: Device, broker: Broker, kind: Kind, seconds: float):
        self.kind, self.stage, self.last = kind, "", "nothing"
        self.at: dict[str, dict[str, Any]] = {}
        self.times: list[int] = []
        variables = {"GPUMEM_ACCEPTANCE_WAY": kind.way, "GPUMEM_SHIM_FOLDER": str(session.layout.shim()),
                     "GPUMEM_ACCEPTANCE_STEPS": str(SHORT_TURN_STEPS if session.short else TURN_STEPS),
                     "GPUMEM_ACCEPTANCE_AHEAD": "0" if kind.size else str(AHEAD)}
        if session.driver_folder:
            variables["LD_LIBRARY_PATH"] = session.driver_folder
        prefix = [str(session.layout.program("gpumem")), "--runtime-dir", str(broker.runtime), "run", "--limit",
                  str(kind.size), "--name", kind.label, "--no-framework-settings", "--"] if kind.size else []
        super().__init__(session, device, f"plain_{kind.framework}", session.lendable, seconds, variables, prefix)

    def go_on(self, until: str, word: str = "") -> None:
        """Answers the stage at which it stands with `word`, and lets it go on to the stage `until`, or to its end."""
        if self.stage:
            self.answer(word)
        self.stage = ""
        while (said := self.next_stage()) is not None:
            self.last = said["stage"]
            self.at[self.last] = said
            self.times += said.pop("times", [])
            if self.last == until:
                self.stage = until
                return
            self.answer()

    def kill(self) -> None:
        for pid in descendants(self.pid):  # they outlive a `gpumem run` that is killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()

    def step_ns(self) -> int:
        return round(statistics.median(self.times)) if self.times else 0


def ratios(group: list[Program]) -> list[tuple[Kind, float]]:
    """For each program but the first: the ratio of its step time to the first one's, if both have trained."""
    first, *others = group
    return [(other.kind, other.step_ns() / first.step_ns()) for other in others if other.times and first.times]


def noise(compared: list[tuple[Kind, float]]) -> float:
    """By how much two programs without gpumem were seen to differ at most."""
    return max((abs(ratio - 1) for kind, ratio in compared if not kind.size), default=0.0)


def slower(compared: list[tuple[Kind, float]]) -> list[tuple[Kind, float]]:
    """Those in a slice whose steps take too long, by more than two programs without gpumem differ by."""
    most = SLOWEST + noise(compared)
    return [(kind, ratio) for kind, ratio in compared if kind.size and kind.waits_for_device and ratio > most]


def train(session: Session, group: list[Program]) -> int:
    """Lets them take turns. Answers how many rounds."""
    rounds = SHORT_ROUNDS if session.short else ROUNDS
    for tried in range(1 + MORE):
        for number in range(rounds):
            for program in reversed(group) if number % 2 else group:
                if program.stage == "turn":
                    program.go_on("turn", "train")
        if session.simulated or not slower(ratios(group)):
            break
    return rounds * (1 + tried)


def play(session: Session, group: list[Program]) -> int:
    """From the start to the last stage. Answers how many rounds."""
    with concurrent.futures.ThreadPoolExecutor(len(group)) as together:
        list(together.map(lambda program: program.go_on("turn"), group))
        rounds = train(session, group)
        # Those without gpumem last: what they take of the device, the broker may charge to all. Some frameworks ask for too much
        # for ten seconds before they give up.
        for has_slice in (True, False):
            of_these = [program for program in group if (program.kind.size != 0) == has_slice]
            list(together.map(lambda program: program.go_on("end", "stop"), of_these))
    return rounds
