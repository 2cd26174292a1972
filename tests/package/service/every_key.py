"""Fails if a configuration lacks a key that gpumemd knows. Usage: every_key.py FILE

gpumemd itself tells the keys of each table, when it refuses one that it does not know.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

HEADER = re.compile(r"\[+([\w.]*)\]+$")


def known_keys(lines: list[str], place: int) -> tuple[str, set[str]]:
    """The table at `place` as gpumemd names it, and its keys."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write("\n".join([*lines[:place], "nonesuch = 1", *lines[place:]]))
        file.flush()
        said = subprocess.run(["gpumemd", "--check-config", "--config", file.name], capture_output=True, text=True).stderr
    found = re.search(r"unknown key 'nonesuch' in (.*?);.* known are: (.*)", said)
    if not found:
        sys.exit(f"gpumemd does not tell the keys of the table at line {place}: {said}")
    return found[1], set(found[2].strip().split(", "))


def main() -> int:
    lines = pathlib.Path(sys.argv[1]).read_text().splitlines()
    headers = [("", 0)] + [(found[1], at + 1) for at, line in enumerate(lines) if (found := HEADER.match(line))]
    missing: dict[str, set[str]] = {}
    for (name, start), end in zip(headers, [at for _, at in headers[1:]] + [len(lines)]):
        given = {line.split(" = ")[0] for line in lines[start:end] if " = " in line}
        given |= {other.removeprefix(f"{name}.").lstrip(".").split(".")[0] for other, _ in headers
                  if other.startswith(f"{name}." if name else "")}
        table, known = known_keys(lines, start)
        missing[table] = missing.get(table, known) - given
    wrong = [f"{table} lacks {', '.join(sorted(keys))}" for table, keys in missing.items() if keys]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
