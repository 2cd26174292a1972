"""Runs each section as a process of its own, within its time, and leaves nothing of it behind."""
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time
import traceback
from types import ModuleType
from typing import Any, TextIO

from session import Outcome, Session

GRACE_SECONDS = 3
LAST_LINES = 40


def outcome_file(session: Session, name: str) -> pathlib.Path:
    return session.folder / f"{name}.json"


def play(section: ModuleType, session: Session) -> None:
    """Inside the section's process: runs it and saves its outcome, a broken one as failed."""
    try:
        outcome = section.run(session)
    except Exception as error:
        traceback.print_exc()
        outcome = Outcome("failed", f"{type(error).__name__}: {error}")
    outcome_file(session, section.NAME).write_text(json.dumps(dataclasses.asdict(outcome)))


def end_group(group: int, patience: float) -> None:
    """Ends every process of a group: asks, waits, kills."""
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 1.0)):
        deadline = time.monotonic() + wait
        try:
            os.killpg(group, number)
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                time.sleep(0.02)
        except ProcessLookupError:
            return


def run(section: ModuleType, session: Session, command: list[str], seconds: float, log: TextIO) -> dict[str, Any]:
    """One entry of the report's `sections`. What the section's processes print goes to `log`."""
    started = time.monotonic()
    print(f"==== {section.NAME}", file=log, flush=True)
    from_here = log.tell()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    ended = f"took longer than its {seconds:.0f} s"
    try:
        ended = f"its process ended with status {process.wait(seconds)}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    finally:
        end_group(process.pid, GRACE_SECONDS)
    file = outcome_file(session, section.NAME)
    outcome = json.loads(file.read_text()) if file.exists() else dataclasses.asdict(Outcome("failed", ended))
    return {"name": section.NAME, "title": section.TITLE, "required": section.REQUIRED, **outcome,
            "seconds": round(time.monotonic() - started, 2), "stderr": last_lines(pathlib.Path(log.name), from_here)}


def last_lines(log: pathlib.Path, start: int) -> list[str]:
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(start)
        return file.read().splitlines()[-LAST_LINES:]
