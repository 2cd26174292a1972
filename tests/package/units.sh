#!/usr/bin/env bash
# units.sh BUILD GPUMEMD GPUMEM: the units of the build say nothing that systemd does not know, and leave little open.
set -euo pipefail
command -v systemd-analyze > /dev/null || {
  printf 'gpumem: skipped: package.units_are_good: systemd-analyze is not installed (Debian: systemd)\n'
  exit 77
}
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$source"/deploy/systemd/*.socket "$work"
sed "s|^ExecStart=[^ ]*|ExecStart=$(realpath "$2")|; s|^ExecReload=+[^ ]*|ExecReload=+$(realpath "$3")|" "$1/deploy/debian/gpumemd.service" > "$work/gpumemd.service"
# systemd-analyze exits with 0 for unknown directives.
said=$(systemd-analyze verify --man=no "$work"/gpumemd* 2>&1 || true)
[ -z "$said" ] || { printf '%s\n' "$said" >&2; exit 1; }
systemd-analyze security --offline=true --threshold=20 --no-pager "$work/gpumemd.service" | tail -n 1
