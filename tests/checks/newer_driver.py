#!/usr/bin/env python3
"""Tries client/shim/generate_entries.py with an installed driver that is newer than the header: newer_driver.py BUILD_FOLDER.

A function of the driver that the header does not have is forwarded. Its data, and what is not the driver's, are not.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHIM = ROOT / "client/shim"
DRIVER = """
int cuMemAllocFromTheFuture(void) { return 0; }
int cuInit(unsigned flags) { return (int)flags; }
int cuDataOfADebugger = 1;
int somebodyElse(void) { return 0; }
"""


def main() -> None:
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (pathlib.Path(sys.argv[1]) / "CMakeCache.txt").read_text(), re.M))
    compiler = cache["CMAKE_CXX_COMPILER"]
    with tempfile.TemporaryDirectory() as folder:
        source, library = pathlib.Path(folder) / "driver.c", pathlib.Path(folder) / "libcuda.so.1"
        source.write_text(DRIVER)
        subprocess.run([compiler, "-x", "c", "-shared", "-fPIC", "-o", library, source], check=True)
        subprocess.run([sys.executable, "-B", SHIM / "generate_entries.py", "cuda", compiler, folder, cache["GPUMEM_CUDA_H"],
                        cache["GPUMEM_NVML_H"], "--names", SHIM / "more_names.txt", "--also", library], check=True)
        text = (pathlib.Path(folder) / "forwarded.inc").read_text()
        replaced = (pathlib.Path(folder) / "replaced.cc").read_text()
    names = re.findall(r"^GPUMEM_SHIM_FORWARD\(\d+, (\w+)\)$", text, re.M)
    wrong = [name for name in ("cuDataOfADebugger", "somebodyElse", "cuInit") if name in names]
    if names.count("cuMemAllocFromTheFuture") != 1 or wrong or "cuInit(" not in replaced:
        sys.exit(f"of {len(names)} names, {names.count('cuMemAllocFromTheFuture')} are the new one, and there are {wrong}")


if __name__ == "__main__":
    main()
