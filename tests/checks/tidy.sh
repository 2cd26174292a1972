#!/usr/bin/env bash
# clang-tidy over the product's own sources, with the build folder's compile commands. The rules: .clang-tidy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:?usage: tidy.sh BUILD_FOLDER}
git ls-files -- 'base/*.cc' 'shm/*.cc' 'cuda/*.cc' 'daemon/*.cc' 'client/*.cc' 'sim/*.cc' |
  xargs -P "$(nproc)" -n 4 clang-tidy-14 -p "$build" --quiet --warnings-as-errors='*' 2> >(grep -v 'warnings generated\|warnings treated' >&2)
