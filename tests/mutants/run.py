#!/usr/bin/env python3
"""Changes one line at a time of a copy of the tree, and shows whether the tests notice.

Exit status: 0 if every mutant is killed or has a reason to survive; 1 if one survives without; 2 if the list is not
true any more (a text that is not found, or found twice) or the tests fail without a mutant.
"""
import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
# Short forms of the random tests, with one seed: a mutant is killed every time or never.
SETTINGS = {"GPUMEM_MODEL_STEPS": "20000", "GPUMEM_MODEL_SEED": "1", "GTEST_FAIL_FAST": "1", "GTEST_BRIEF": "1"}

# Unused names in a mutant must not fail the build, because the tests are to find it.
QUIET = "-Wno-unused-parameter -Wno-unused-variable -Wno-unused-but-set-variable -Wno-unused-function"


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    reason: str = ""

    def name(self):
        return f"{self.file}: {' '.join(self.before.split())} -> {' '.join(self.after.split()) or 'nothing'}"


def fail(text):
    print(f"mutants: {text}", file=sys.stderr)
    sys.exit(2)


def read_list(path):
    return [Mutant(group["file"], before, after, tuple(group["tests"]), *reason)
            for group in tomllib.loads(path.read_text())["group"] for before, after, *reason in group["mutants"]]


def count(mutant):
    path = TREE / mutant.file
    return path.read_text().count(mutant.before) if path.is_file() else 0


def check_list(mutants):
    wrong = [f"{mutant.name()}: the text is there {count(mutant)} times" for mutant in mutants if count(mutant) != 1]
    if wrong:
        fail("\n".join(["the list is not true any more:", *wrong]))


def copy_tree(to):
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=TREE, check=True,
                           capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (TREE / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TREE / name, to / name)
    if (TREE / ".cache").exists():
        (to / ".cache").symlink_to(TREE / ".cache")


class Copy:
    """A copy of the tree with its own build folder."""

    def __init__(self, root, limit):
        self.root = root
        self.build = root / "build" / "mutants"
        self.limit = limit
        self.environment = {**os.environ, **SETTINGS, "CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"}

    def configure(self):
        copy_tree(self.root)
        done = self.run(["cmake", "--preset", "dev", "-B", str(self.build), "-DGPUMEM_BENCH=OFF",
                         f"-DCMAKE_CXX_FLAGS={QUIET}"], 600)
        if done != "":
            fail(f"the copy cannot be configured:\n{done}")

    def run(self, command, limit):
        """The output of the command if it failed or took too long; else nothing."""
        try:
            done = subprocess.run(command, cwd=self.root, env=self.environment, timeout=limit, text=True,
                                  errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except subprocess.TimeoutExpired:
            return "took too long"
        return "" if done.returncode == 0 else done.stdout or "failed"

    def compile(self, tests):
        return self.run(["ninja", "-C", str(self.build), *tests], 1800)

    def test(self, test):
        program = next((self.build / "tests").glob(f"**/{test}"))
        return self.run([str(program), "--gtest_filter=-Long*:*.Long*:*/Long*"], self.limit)

    def verdict(self, mutant):
        """The name of the step that finds the mutant: the build or a test program; empty if none does."""
        path = self.root / mutant.file
        text = path.read_text()
        try:
            path.write_text(text.replace(mutant.before, mutant.after))
            for test in mutant.tests:  # the quick ones first; the others are not even linked
                if self.compile([test]):
                    return "the build"
                if self.test(test):
                    return test
            return ""
        finally:
            path.write_text(text)


def check_unchanged(copy, mutants):
    for test in sorted({test for mutant in mutants for test in mutant.tests}):
        problem = copy.compile([test]) or copy.test(test)
        if problem:
            told = "\n".join(line for line in problem.splitlines() if line and "Skipped" not in line)
            fail(f"{test} fails without a mutant:\n{told[-4000:]}")


def judge(copy, mutants):
    killed = unbuilt = excused = 0
    survived = []
    for number, mutant in enumerate(mutants, 1):
        start = time.monotonic()
        by = copy.verdict(mutant)
        took = f"{time.monotonic() - start:4.0f} s"
        print(f"{number:3}/{len(mutants)} {took}  {'killed by ' + by if by else 'SURVIVED'}: {mutant.name()}", flush=True)
        unbuilt += by == "the build"
        killed += bool(by)
        excused += not by and bool(mutant.reason)
        if not by and not mutant.reason:
            survived.append(mutant)
        if by and mutant.reason:
            print(f"         is killed although the list says: {mutant.reason}")
    print(f"{killed} killed, {len(survived) + excused} survived"
          f" ({unbuilt} of the killed do not build, {excused} of the survivors have a reason)")
    return 1 if survived else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="mutants whose file or text contains this; may be repeated")
    parser.add_argument("--check", action="store_true", help="only whether every text is found once")
    parser.add_argument("--limit", type=float, default=60, help="seconds that one test program may take")
    parser.add_argument("--folder", type=pathlib.Path, help="for the copy; default: a temporary one")
    arguments = parser.parse_args()
    mutants = read_list(HERE / "mutants.toml")
    check_list(mutants)
    mutants = [mutant for mutant in mutants if any(text in mutant.name() for text in arguments.only or [""])]
    if arguments.check:
        print(f"{len(mutants)} mutants, each text found once")
        return 0
    with tempfile.TemporaryDirectory(prefix="gpumem-mutants-", dir=arguments.folder) as folder:
        copy = Copy(pathlib.Path(folder), arguments.limit)
        copy.configure()
        check_unchanged(copy, mutants)
        return judge(copy, mutants)


if __name__ == "__main__":
    sys.exit(main())
