#!/usr/bin/env python3
"""docs/lane.md has every kind of frame that proto/lane/header.h has, with its name, its number and its side, and the
version that this is."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIRST_OF_BROKER = 129
SIDES = ("From the client", "From the broker")


def kinds_of_header(header: str) -> set[tuple[str, str, int]]:
    found = re.findall(r"^  k(\w+) = (\d+),", header, re.MULTILINE)
    return {(SIDES[int(number) >= FIRST_OF_BROKER], name, int(number)) for name, number in found}


def kinds_of_page(page: str) -> set[tuple[str, str, int]]:
    found = set()
    for section in re.split(r"^## ", page, flags=re.MULTILINE):
        title = section.partition("\n")[0]
        if title in SIDES:
            rows = re.findall(r"^\| (\d+) \| (\w+) \|", section, re.MULTILINE)
            found |= {(title, name, int(number)) for number, name in rows}
    return found


def main() -> int:
    header = (ROOT / "proto/lane/header.h").read_text()
    page = (ROOT / "docs/lane.md").read_text()
    code_kinds, page_kinds = kinds_of_header(header), kinds_of_page(page)
    wrong = [f"{title}: {number} {name} stands only in {'header.h' if (title, name, number) in code_kinds else 'the page'}"
             for title, name, number in sorted(code_kinds ^ page_kinds)]
    version = re.search(r"kVersion = (\d+);", header)
    if not version or f"This is version {version[1]}." not in page:
        wrong.append(f"it is not of version {version[1] if version else '?'}")
    for one in wrong:
        print(f"docs/lane.md: {one}")
    print(f"{len(code_kinds)} kinds of frames, {len(wrong)} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
