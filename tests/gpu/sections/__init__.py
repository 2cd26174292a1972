"""The sections, in the order in which they run. Each module has NAME, TITLE, REQUIRED, LIMIT (seconds) and
run(session) -> Outcome; it runs as a process of its own."""
from types import ModuleType

from . import allocators, benchmarks, contract, demo, drop_in, facts, footprint, frameworks, latencies, unmodified

ALL: list[ModuleType] = [facts, contract, latencies, footprint, demo, benchmarks, frameworks, allocators, drop_in, unmodified]

PROGRAMS = list(unmodified.WAYS)


def programs(names: str) -> str:
    """`names`, of PROGRAMS, with commas; empty: all. Raises ValueError."""
    if unknown := [name for name in names.split(",") if name and name not in PROGRAMS]:
        raise ValueError(f"no program {unknown[0]}")
    return names


def named(names: str) -> list[ModuleType]:
    """The sections of a list with commas, in its order. Raises ValueError."""
    known = {section.NAME: section for section in ALL}
    if unknown := [name for name in names.split(",") if name not in known]:
        raise ValueError(f"no section {unknown[0]}")
    return [known[name] for name in names.split(",")]


def find(name: str) -> ModuleType:
    return next(section for section in ALL if section.NAME == name)
