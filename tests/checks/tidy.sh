#!/usr/bin/env bash
# clang-tidy over the product's own sources, as the build folder compiles them: where that is many files together, their
# headers are read once. The rules: .clang-tidy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:?usage: tidy.sh BUILD_FOLDER}
database=$(mktemp -d)
trap 'rm -rf "$database"' EXIT
# Lists the sources, and writes how each is compiled, without g++'s precompiled headers, which clang cannot read.
sources() {
  python3 - "$build" "$database" <<'EOF'
import json, pathlib, re, sys
build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path.cwd()
entries = json.loads((build / "compile_commands.json").read_text())
for entry in entries:
    entry["command"] = re.sub(r"-include \S+/cmake_pch\.hxx ", "", entry["command"])
    file = pathlib.Path(entry["directory"], entry["file"]).resolve()
    generated = build in file.parents and "Unity" not in file.parts
    place = file.relative_to(build if build in file.parents else root)
    if not generated and file.suffix != ".S" and place.parts[0] in ("base", "shm", "cuda", "daemon", "client", "sim"):
        print(file)
pathlib.Path(sys.argv[2], "compile_commands.json").write_text(json.dumps(entries))
EOF
}
sources | sort -u | xargs -P "$(nproc)" -n 1 clang-tidy-14 -p "$database" --quiet --checks=-bugprone-suspicious-include --warnings-as-errors='*' \
  2> >(grep -v 'warnings generated\|warnings treated' >&2)
