"""The sections, in the order in which they run. Each module has NAME, TITLE, REQUIRED, LIMIT (seconds) and
run(session) -> Outcome; it runs as a process of its own."""
from types import ModuleType

from . import allocators, benchmarks, contract, demo, facts, footprint, frameworks, latencies

ALL: list[ModuleType] = [facts, contract, latencies, footprint, demo, benchmarks, frameworks, allocators]


def find(name: str) -> ModuleType:
    return next(section for section in ALL if section.NAME == name)
