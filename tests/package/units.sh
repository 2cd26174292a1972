#!/usr/bin/env bash
# units.sh BUILD GPUMEMD GPUMEM HISTORY: the units of the build say nothing that systemd does not know, and leave little open.
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
sed "s|^ExecStart=[^ ]*|ExecStart=$(realpath "$4")|" "$1/deploy/debian/gpumem-history.service" > "$work/gpumem-history.service"
# systemd-analyze exits with 0 for unknown directives.
said=$(systemd-analyze verify --man=no "$work"/gpumem* 2>&1 || true)
[ -z "$said" ] || { printf '%s\n' "$said" >&2; exit 1; }
for unit in gpumemd gpumem-history; do
  systemd-analyze security --offline=true --threshold=20 --no-pager "$work/$unit.service" | tail -n 1
done
