#!/usr/bin/env bash
# on_gpu.sh NAME COMMAND...: runs it where the machine has a GPU; elsewhere says so, which counts as skipped.
set -euo pipefail
name=$1
shift
if [ ! -e /dev/nvidiactl ]; then
  printf 'gpumem: skipped: %s: there is no GPU on this machine (/dev/nvidiactl is missing)\n' "$name"
  exit 77
fi
exec env GPUMEM_DRIVER_DIR= "$@"
