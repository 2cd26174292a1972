# shellcheck shell=bash
# To be sourced. start_broker BUILD FOLDER: a broker that lends two simulated GPUs, in FOLDER/run and FOLDER/machine. end_broker: ends it,
# and fails with what it said if it does not end well. drop_broker: the same in haste, from a trap.
broker=
start_broker() {
  local build=$1 folder=$2 line
  mkdir "$folder/machine"
  "$build/sim/gpumem-sim" create "$folder/machine" 2x1GiB
  # Contexts and the driver's own pools want the rest of each device.
  printf '[broker]\nreserve = "all-but 384MiB"\n' > "$folder/gpumemd.toml"
  mkfifo "$folder/said"
  "$build/daemon/gpumemd" --config "$folder/gpumemd.toml" --runtime-dir "$folder/run" --driver-dir "$folder/machine" \
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
  rm -rf "$folder"
}
