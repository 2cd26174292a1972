#!/usr/bin/env python3
"""Holds what a library exports in the driver's place against the header that declares it.

exports.py HEADER PREFIX LIBRARY [NAME...]   NAME: exported besides
"""
import pathlib
import re
import subprocess
import sys

header, prefix, library, *besides = sys.argv[1:]
text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", pathlib.Path(header).read_text(errors="replace"), flags=re.DOTALL)
declared = set(re.findall(rf"\b(?:CUresult\s+CUDAAPI|DECLDIR)\s+({prefix}\w+)\s*\(", text))
# Names stand for their newest version: what a program built with this header binds.
for base, newest in re.findall(rf"^\s*#\s*define\s+({prefix}[A-Z]\w*)\s+({prefix}[A-Z]\w*)\s*$", text, re.MULTILINE):
    if re.search(r"_v\d+$", newest):  # others are types and constants
        declared.add(newest)
for base, newest in re.findall(rf"^\s*#\s*define\s+({prefix}[A-Z]\w*)\s+__CUDA_API_PT[SD][ZS]\((\w+)\)", text, re.MULTILINE):
    declared.add(newest)
declared -= set(re.findall(rf"\bstatic\s+inline\s+\w+\s+({prefix}\w+)\s*\(", text))
symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
exported = {line.split()[2] for line in symbols.splitlines() if line.split()[1] in "TW"}
foreign = {name for name in exported if not name.startswith(prefix) and name not in besides}
missing = (declared | set(besides)) - exported
if len(declared) < 100 or missing or foreign:
    sys.exit(f"{len(declared)} names declared; missing: {sorted(missing)}; foreign: {sorted(foreign)}")
print(f"{len(declared)} names declared, {len(exported)} exported")
