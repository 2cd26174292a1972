#!/usr/bin/env python3
"""gpumemd as if an older version had been here meanwhile: it takes over, and hands back at once.

Stands in the place of the program, beside the one that follows it, `gpumemd.newer`. An older broker passes over the records of the
journal that it does not know, and writes a journal of its own: so those are gone.
"""
import os
import struct
import sys

NEWEST_RECORD = 14  # of the broker that spoke version 6 of the lane; docs/journal.md has the format


def without_newer_records(journal: bytes) -> bytes:
    (devices,) = struct.unpack_from("<I", journal, 12)
    at = 56 + 56 * devices
    kept = [journal[:at]]
    while at + 16 <= len(journal):
        (size,) = struct.unpack_from("<I", journal, at)
        (kind,) = struct.unpack_from("<Q", journal, at + 8)
        if kind <= NEWEST_RECORD:
            kept.append(journal[at : at + 8 + size])
        at += 8 + size
    return b"".join(kept)


def main() -> None:
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    if "--check-config" not in sys.argv:
        path = os.path.join(sys.argv[sys.argv.index("--runtime-dir") + 1], "journal")
        with open(path, "rb") as file:
            journal = file.read()
        older = without_newer_records(journal)
        with open(path + ".older", "wb") as file:
            file.write(older)
        os.rename(path + ".older", path)
        with open(os.path.join(folder, "handed-back.new"), "w") as file:
            file.write(str(len(journal) - len(older)))
        os.rename(file.name, os.path.join(folder, "handed-back"))
    program = os.path.join(folder, "gpumemd.newer")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
