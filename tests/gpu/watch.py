"""Samples of the management library's and the broker's figures while several programs run."""
import dataclasses
import pathlib
import threading
from typing import Any

from broker import Broker
from nvml import Device

LOOK_SECONDS = 0.05


def parent(pid: int) -> int:
    """0 where it has none, or is gone."""
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except OSError:
        return 0


def descendants(pid: int) -> list[int]:
    """The processes that `pid` and its children have started, as far as they are there."""
    everybody = [int(path.name) for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]
    parents = {one: parent(one) for one in everybody}
    found = [pid]
    for one in found:
        found += [child for child, of in parents.items() if of == one]
    return found[1:]


@dataclasses.dataclass
class Seen:
    """The most that was said of any one process of a program, in bytes. `charged`: by the broker, declared memory
    included, without what the process has given back. `outside`: by the driver, without what the process declared."""
    charged: int = 0
    outside: int = 0


class Watch:
    """Looks from start() to end(). `before` is of the moment when it is made. `peak`: by how much the device's used bytes
    have grown at most, without what the driver says of processes that have come since. `told`: whether it says that."""

    def __init__(self, device: Device, broker: Broker):
        self._device, self._broker = device, broker
        self._before = device.memory().used
        self._strangers = {user.pid for user in device.processes()} | {broker.pid}
        self._roots: dict[int, str] = {}
        self._owners: dict[int, str] = {}
        self._ended = threading.Event()
        self._looks = threading.Thread(target=self._watch, daemon=True)
        self.peak = 0
        self.told = False
        self.seen: dict[str, Seen] = {}

    def start(self, programs: dict[str, int]) -> None:
        """`programs`: the process that was started for each, by the name that its sessions have."""
        self.seen = {name: Seen() for name in programs}
        self._roots = {pid: name for name, pid in programs.items()}
        self._looks.start()

    def end(self) -> None:
        self._ended.set()
        self._looks.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            grown = self._device.memory().used - self._before
            own = {u.pid: u.used or 0 for u in self._device.processes() if u.pid not in self._strangers}
            self.told |= any(own.values())
            self.peak = max(self.peak, grown - sum(own.values()))
            self._compare(own, (self._broker.ask("ps") or {"sessions": []})["sessions"])

    def _compare(self, own: dict[int, int], sessions: list[dict[str, Any]]) -> None:
        declared: dict[int, int] = {}
        for session in sessions:
            mine = sum(part["declared"] for part in session["shared"])
            declared[session["pid"]] = declared.get(session["pid"], 0) + mine
            if seen := self.seen.get(session["label"]):
                held = sum(part["charged"] - part["returning"] for part in session["slices"])
                seen.charged = max(seen.charged, mine + held)
        for pid, used in own.items():
            if seen := self.seen.get(self._owner(pid)):
                seen.outside = max(seen.outside, used - declared.get(pid, 0))

    def _owner(self, pid: int) -> str:
        """The program that a process is of: by the first ancestor that was started for one. Empty: of none."""
        if pid not in self._owners:
            at = pid
            while at > 1 and at not in self._roots:
                at = parent(at)
            self._owners[pid] = self._roots.get(at, "")
        return self._owners[pid]
