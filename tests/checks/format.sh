#!/usr/bin/env bash
# Every C++ file is as .clang-format wants it. `tests/checks/format.sh --fix` makes it so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mode=(--dry-run --Werror)
[ "${1:-}" = --fix ] && mode=(-i)
git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.c' | xargs clang-format-14 "${mode[@]}"
