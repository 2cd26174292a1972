# A broker over a simulated GPU, for the scripts beside this one, which source this. It ends with them.
# shellcheck shell=bash
broker=
work=$(mktemp -d /tmp/gpumem-package-XXXXXX)
cleanup() {
  [ -z "$broker" ] || { kill "$broker" 2> /dev/null || true; wait "$broker" 2> /dev/null || true; }
  rm -rf "$work"
}
trap cleanup EXIT

# start_broker BUILD: its sockets are in $work/run, what it says in $work/log.
start_broker() {
  "$1/daemon/gpumemd" --simulate 1x4GiB --runtime-dir "$work/run" 2> "$work/log" &
  broker=$!
  local tries
  for tries in $(seq 1200); do
    ! GPUMEM_RUNTIME_DIR=$work/run "$1/client/cli/gpumem" status > /dev/null 2>&1 || return 0
    kill -0 "$broker" 2> /dev/null || break
    sleep 0.05
  done
  printf 'no broker after %s tries\n' "$tries" >&2
  cat "$work/log" >&2
  return 1
}
