#!/usr/bin/env python3
"""Tries tests/checks/shim_calls.py on a header that is newer than this one: newer_header.py BUILD_FOLDER.

A header with one more call that allocates must be found wanting, by that call's name, whatever else holds.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).with_name("shim_calls.py")
NEW_CALL = "cuMemAllocFromTheFuture"


def main() -> None:
    cache = (pathlib.Path(sys.argv[1]) / "CMakeCache.txt").read_text()
    header = re.search(r"^GPUMEM_CUDA_H:\w+=(.*)$", cache, re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        newer = pathlib.Path(folder)
        (newer / "cuda.h").write_text(f'#include "{header}/cuda.h"\n'
                                      f'extern "C" CUresult CUDAAPI {NEW_CALL}(CUdeviceptr *dptr, size_t bytesize);\n')
        (newer / "CMakeCache.txt").write_text(cache.replace(f"={header}\n", f"={newer}\n", 1))
        found = subprocess.run([sys.executable, "-B", CHECK, newer, "--rows"], capture_output=True, text=True, check=False)
    wanted = f"{NEW_CALL} is about memory, and neither calls.def nor forwarded.txt has a row for it"
    if found.returncode == 0 or wanted not in found.stderr:
        sys.exit(f"a call of a newer header is not missed: {found.stdout}{found.stderr}")


if __name__ == "__main__":
    main()
