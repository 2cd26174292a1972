#!/usr/bin/env bash
# clang-tidy over the product's own sources, as the build folder compiles them: where that is many files together, their
# headers are read once. The rules: .clang-tidy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:?usage: tidy.sh BUILD_FOLDER}
sources() {
  python3 - "$build" <<'EOF'
import json, pathlib, sys
build = pathlib.Path(sys.argv[1]).resolve()
root = pathlib.Path.cwd()
for entry in json.loads((build / "compile_commands.json").read_text()):
    file = pathlib.Path(entry["directory"], entry["file"]).resolve()
    generated = build in file.parents and "Unity" not in file.parts
    place = file.relative_to(build if build in file.parents else root)
    if not generated and place.parts[0] in ("base", "shm", "cuda", "daemon", "client", "sim"):
        print(file)
EOF
}
sources | sort -u | xargs -P "$(nproc)" -n 1 clang-tidy-14 -p "$build" --quiet --checks=-bugprone-suspicious-include --warnings-as-errors='*' \
  2> >(grep -v 'warnings generated\|warnings treated' >&2)
