"""Assumptions that only hardware can confirm, compared with the results of the contract's probes."""
import dataclasses
import re
from collections.abc import Callable

MIB = 1 << 20
NOISE = 32 * MIB


@dataclasses.dataclass(frozen=True)
class Assumption:
    """`holds` judges one answer of the test to a question that `question` is part of (empty: to any)."""
    test: str
    question: str
    text: str
    holds: Callable[[str], bool]


def number(least: int, most: int) -> Callable[[str], bool]:
    return lambda answer: answer.isdigit() and least <= int(answer) <= most


def says(pattern: str) -> Callable[[str], bool]:
    return lambda answer: re.search(pattern, answer) is not None


REFUSED = says("CUDA_ERROR_")
CLEAN = says("^(0$|0 words of the pattern and 0 other)")
ALL = [
    Assumption("ContextProbe.CostInTheFirstAndInTheSecondProcess", "", "100 to 550 MiB", number(100 * MIB, 550 * MIB)),
    Assumption("ContextProbe.CostOfInitialisationAlone", "", "nothing: the broker costs no device memory", number(0, NOISE)),
    Assumption("ContextProbe.MappingWithoutAContext", "", "works, and makes no context",
               lambda answer: "CUDA_ERROR_" not in answer and "is not active" in answer),
    Assumption("ContextProbe.CostOfMappingWithoutAContext", "", "nothing", number(0, NOISE)),
    Assumption("ContextProbe.MemoryFiguresWithoutAContext", "", "refused: it takes a context", REFUSED),
    Assumption("ContentProbe.OfFreshMemory", "seen", "zeroes", CLEAN),
    Assumption("ContentProbe.AfterItsOwnerWasKilled", "seen", "zeroes", CLEAN),
    Assumption("ContentProbe.AfterItWasFreedInTheSameProcess", "seen", "zeroes", CLEAN),
    Assumption("ContentProbe.OfMemoryFromCuMemAllocAfterItsOwnerWasKilled", "seen", "zeroes", CLEAN),
    Assumption("MappingProbe.GranularityLeastAndRecommended", "shareable", "2 MiB", says(f"{2 * MIB}$")),
    Assumption("MappingProbe.MoreThanThereIs", "the total and one unit", "CUDA_ERROR_OUT_OF_MEMORY", says("OUT_OF_MEMORY")),
    Assumption("MappingProbe.FromAnOffset", "", "refused: offset 0 only", REFUSED),
    Assumption("MappingProbe.PartsOfAMapping", "", "refused: whole mappings only", REFUSED),
    Assumption("MappingProbe.UnmappedTwice", "", "no effect", says("CUDA_SUCCESS")),
    Assumption("SharingProbe.ADescriptorAloneKeepsTheMemory", "imported", "content is there, if the driver stays up",
               says("content is there")),
    Assumption("SharingProbe.ImportFromAHiddenDevice", "", "refused: a GPU must be visible", REFUSED),
    Assumption("SharingProbe.FabricHandlesOfExtents", "released it", "refused: a handle keeps nothing", REFUSED),
    Assumption("SharingProbe.FabricHandlesOfExtents", "bytes kept", "nothing: a handle keeps nothing", number(0, NOISE)),
    Assumption("SharingProbe.ForeignDescriptors", "", "refused", REFUSED),
]


def answers_of(recorded: str) -> list[tuple[str, str]]:
    """`question: answer; question: answer` as a probe records it, in parts."""
    parts: list[tuple[str, str]] = []
    for piece in recorded.split("; "):
        question, colon, answer = piece.partition(": ")
        if colon:
            parts.append((question, answer))
        elif parts:
            parts[-1] = (parts[-1][0], f"{parts[-1][1]}; {piece}")
        else:
            parts.append(("", piece))
    return parts


def find(test: str, question: str) -> Assumption | None:
    return next((a for a in ALL if a.test == test and a.question in question), None)
