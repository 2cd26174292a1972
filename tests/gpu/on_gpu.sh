#!/usr/bin/env bash
# Runs a command where the machine has a GPU and its driver; elsewhere says so, which counts as skipped.
set -euo pipefail
if [ ! -e /dev/nvidiactl ]; then
  printf 'gpumem: skipped: %s: there is no GPU on this machine (/dev/nvidiactl is missing)\n' "$(basename "$1")"
  exit 77
fi
exec env GPUMEM_DRIVER_DIR= "$@"
