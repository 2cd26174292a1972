"""The session that all sections of an acceptance share, and the outcome of a section."""
import dataclasses
import json
import os
import pathlib
import sys
from typing import Any

from layout import Layout

MIB = 1 << 20
GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Session:
    """One acceptance. `driver_folder` is empty for the system's driver. `device` is the UUID of the GPU that
    everything runs on; `visible` is what CUDA_VISIBLE_DEVICES says: that GPU and one more (empty: not set).
    `budget` is in bytes, of that GPU. `programs` names the unmodified programs to run; empty: all. `limit` is how many
    seconds the section under way has. `work` goes away at the end."""
    root: str
    is_bundle: bool
    simulated: bool
    driver_folder: str
    device: str
    visible: str
    budget: int
    short: bool
    host_python: str
    work: str
    programs: str = ""
    limit: float = 0.0

    @property
    def layout(self) -> Layout:
        return Layout(pathlib.Path(self.root), self.is_bundle)

    @property
    def folder(self) -> pathlib.Path:
        return pathlib.Path(self.work)

    @property
    def lendable(self) -> int:
        """Bytes that one part may allocate: the budget less what contexts of several processes take of it."""
        return (self.budget - min(3 * GIB, self.budget // 4)) // (2 * MIB) * 2 * MIB

    @property
    def python(self) -> list[str]:
        """This interpreter, as it was started: nothing of the user's, nothing written beside the sources."""
        return [sys.executable, "-E", "-s", "-B", "-X", "utf8"]

    def environment(self, only_device: bool = True) -> dict[str, str]:
        """Of every process: one GPU (or all that are visible), the budget, the folder for what is temporary."""
        kept = {name: value for name, value in os.environ.items()
                if name not in ("GPUMEM_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES")}
        visible = self.visible.split(",")[0] if only_device else self.visible
        if visible:
            kept |= {"CUDA_VISIBLE_DEVICES": visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        return kept | {"TMPDIR": self.work, "GPUMEM_DRIVER_DIR": self.driver_folder,
                       "GPUMEM_ACCEPTANCE_BUDGET": str(self.budget)}

    def save(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def load(cls, path: pathlib.Path) -> "Session":
        return cls(**json.loads(path.read_text()))


NO_TIME = "no time was left"


def table(title: str, columns: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    """A table of the readable page."""
    return {"title": title, "columns": columns, "rows": rows}


@dataclasses.dataclass
class Outcome:
    """What a section found. `verdict` is passed, failed or skipped; `why` says so in a line. `data` is the section's
    own; `differences` are {what, assumed, seen} where the machine is not as the project's texts assume."""
    verdict: str = "passed"
    why: str = ""
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    tables: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    differences: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def differs(self, what: str, assumed: str, seen: str) -> None:
        self.differences.append({"what": what, "assumed": assumed, "seen": seen})

    def fail(self, why: str) -> None:
        self.verdict = "failed"
        self.why = f"{self.why}; {why}" if self.why else why

    def judge_time(self, session: Session, found: list[dict[str, Any]]) -> None:
        """On a real GPU everything must have had its time. `found` has what programs came to."""
        late = sum(one["why"] == NO_TIME for one in found)
        if late and not session.simulated:
            self.fail(f"{NO_TIME} for {late} of {len(found)} programs")


def amount(count: float) -> str:
    """Bytes, for people."""
    sign, count = ("-", -count) if count < 0 else ("", count)
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{sign}{count:.4g} {unit}"
        count /= 1024
    return f"{sign}{count:.4g} GiB"


def duration(nanoseconds: float) -> str:
    """Nanoseconds, for people."""
    for unit in ("ns", "us", "ms"):
        if nanoseconds < 1000:
            return f"{nanoseconds:.3g} {unit}"
        nanoseconds /= 1000
    return f"{nanoseconds:.3g} s"
