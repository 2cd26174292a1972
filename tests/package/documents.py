#!/usr/bin/env python3
"""Installs what the packages gpumemd and gpumem install into an empty folder, and follows each link of its documents.

Usage: documents.py CMAKE BUILD. A link leads to an installed file or folder, and its fragment to a heading. A man page
that another one names is installed, too, and so is each document that a text names by its path.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
HEADING = re.compile(r"^#+ +(.*)$", re.M)
MAN_PAGE = re.compile(r"^\.BR (gpumem[\w.\\-]*) \((\d)\)", re.M)
NAMED = re.compile(r"/usr(/share/doc/gpumem[\w./-]*\w)")


def fragments(page: str) -> set[str]:
    """The fragments that viewers of Markdown make of the headings."""
    headings = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in HEADING.findall(FENCED.sub("", page)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: pathlib.Path, root: pathlib.Path) -> list[str]:
    broken = []
    for link in LINK.findall(FENCED.sub("", path.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, fragment = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or not target.is_relative_to(root):
            broken.append(f"{path.relative_to(root)} links to {link}, which is not installed")
        elif fragment and fragment not in fragments(target.read_text()):
            broken.append(f"{path.relative_to(root)} links to {link}, where there is no such heading")
    return broken


def missing_pages(path: pathlib.Path, pages: pathlib.Path) -> list[str]:
    named = ((name.replace("\\", ""), section) for name, section in MAN_PAGE.findall(path.read_text()))
    return [f"{path.name} names {name}({section}), which is not installed" for name, section in named
            if not (pages / f"man{section}" / f"{name}.{section}").exists()]


def missing_documents(path: pathlib.Path, root: pathlib.Path) -> list[str]:
    return [f"{path.relative_to(root.parent)} names {named}, which is not installed"
            for named in NAMED.findall(path.read_text(errors="replace")) if not (root / named[1:]).exists()]


def check(root: pathlib.Path) -> list[str]:
    pages, documents = root / "share/man", root / "share/doc"
    texts = [one for one in [*pages.rglob("*"), *documents.rglob("*"), *root.parent.rglob("*.toml")] if one.is_file()]
    wrong = [words for one in documents.rglob("*.md") for words in broken_links(one, root)]
    wrong += [words for one in pages.rglob("*.?") if one.is_file() for words in missing_pages(one, pages)]
    wrong += [words for one in texts for words in missing_documents(one, root)]
    for document in ("README.md", "CHANGELOG.md", "docs/administration.md"):
        if not (documents / "gpumem" / document).exists():
            wrong.append(f"{document} is not installed")
    return wrong


def main() -> int:
    cmake, build = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve() / "usr"
        for component in ("gpumemd", "gpumemd-packaged", "gpumem", "gpumem-dra", "gpumem-history"):
            subprocess.run([cmake, "--install", build, "--prefix", "/usr", "--component", component], check=True,
                           env={**os.environ, "DESTDIR": folder}, stdout=subprocess.DEVNULL)
        wrong = check(root)
        count = len(list(root.rglob("*.md")))
    print("\n".join(wrong) or f"the links of {count} documents lead somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
