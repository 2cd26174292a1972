# shellcheck shell=bash
# To be sourced. Programs on memory of a broker that lends two simulated GPUs. FOLDER is the caller's own, with the machine.
# need_namespace UNDER ARGUMENT...: what `system` takes; the script starts again with the arguments, or skips by skip().
# borrow UNDER BUILD FOLDER NAME COMMAND...: UNDER is `shim`: by `gpumem run`; `beside`: without that, as a monitor that finds the drop-in
# libraries; or `system`: after `gpumem system enable`. Fails with what the broker said if it does not end well. drop_broker BUILD FOLDER: ends it in haste, from a trap.
# shellcheck source=tests/package/system_mode/machine.sh
. "$(dirname "${BASH_SOURCE[0]}")/../package/system_mode/machine.sh"
need_namespace() { [ "$1" != system ] || own_namespace "${@:2}"; }
borrow() {
  local under=$1 build=$2 folder=$3 name=$4 got
  shift 4
  if [ "$under" = system ]; then
    own_machine "$build" "$folder" "$folder/machine"
    echo 'UID_MIN 0' > /etc/login.defs  # the caller is root
    start_broker "$build" "$folder" /run/gpumemd
    gpumem system enable
    got=$(/usr/bin/python3 "$(dirname "${BASH_SOURCE[0]}")/../package/system_mode/program.py")
    [[ $got = 'init=0 total=640 sockets='[1-9]* ]] || { echo "it does not borrow: $got"; return 1; }
    GPUMEM_WAIT=2s "$@"
  elif [ "$under" = beside ]; then
    start_broker "$build" "$folder" "$folder/run"
    LD_LIBRARY_PATH=$build/client/shim/lib GPUMEM_REAL_LIBCUDA=$folder/machine GPUMEM_RUNTIME_DIR=$folder/run "$@"
  else
    start_broker "$build" "$folder" "$folder/run"
    GPUMEM_SHIM_FOLDER=$build/client/shim/lib GPUMEM_RUNTIME_DIR=$folder/run \
      "$build/client/cli/gpumem" run --device all --wait 2s --name "$name" -- "$@"
  fi
  end_broker "$folder"
}

broker=
start_broker() {
  local build=$1 folder=$2 runtime=$3 line
  mkdir "$folder/machine"
  "$build/sim/gpumem-sim" create "$folder/machine" 2x1GiB
  # Contexts and the driver's own pools want the rest of each device.
  printf '[broker]\nreserve = "all-but 384MiB"\n' > "$folder/gpumemd.toml"
  mkfifo "$folder/said"
  "$build/daemon/gpumemd" --config "$folder/gpumemd.toml" --runtime-dir "$runtime" --driver-dir "$folder/machine" \
    2> "$folder/said" & broker=$!
  exec 9< "$folder/said"
  while read -r line <&9; do case $line in *'serving on'*) cat <&9 > "$folder/log" & return ;; *) echo "$line" ;; esac; done
  echo 'the broker does not serve'
  return 1
}
end_broker() {
  local ended=$broker
  broker=
  kill "$ended"
  wait "$ended" || { echo 'the broker did not end well'; cat "$1/log"; return 1; }
}
drop_broker() {
  local build=$1 folder=$2
  [ -z "$broker" ] || { kill "$broker"; wait "$broker" || true; }
  "$build/sim/gpumem-sim" remove "$folder/machine" 2> /dev/null || true
  leave_machine "$folder"
  rm -rf "$folder"
}
