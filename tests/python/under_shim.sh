#!/usr/bin/env bash
# under_shim.sh TEST PACKAGE BUILD [ENVIRONMENT FILES]: runs test_PACKAGE*.py, or FILES, with `gpumem run`: clients that
# nobody here wrote, on memory of a broker, by the drop-in driver. under_shim.txt says which tests see a difference, and which.
# Skips as on_machine.sh does.
set -euo pipefail
test=$1 package=$2 build=$3 environment=${4:-python}
files=${5:-test_${package//-/_}*.py}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/python/client_python.sh
. "$here/client_python.sh"
need_client "$test" "$package" "$environment"

work=$(mktemp -d /tmp/gpumem-python-XXXXXX)
broker=
finish() {
  [ -z "$broker" ] || { kill "$broker"; wait "$broker" || true; }
  "$build/sim/gpumem-sim" remove "$work/machine" 2> /dev/null || true
  rm -rf "$work"
}
trap finish EXIT
mkdir "$work/machine"
"$build/sim/gpumem-sim" create "$work/machine" 2x1GiB
# Contexts and the driver's own pools want the rest of each device.
printf '[broker]\nreserve = "all-but 384MiB"\n' > "$work/gpumemd.toml"
mkfifo "$work/said"
"$build/daemon/gpumemd" --config "$work/gpumemd.toml" --runtime-dir "$work/run" --driver-dir "$work/machine" 2> "$work/said" & broker=$!
exec 9< "$work/said"
while read -r line <&9; do case $line in *'serving on'*) served=1; break ;; *) echo "$line" ;; esac; done
[ -n "${served:-}" ] || { echo 'the broker does not serve'; exit 1; }
cat <&9 > "$work/log" &

deselected=()
while read -r id _; do
  case $id in "test_${package//-/_}"*) deselected+=(--deselect "$id") ;; esac
done < "$here/under_shim.txt"
export GPUMEM_SHIM_FOLDER=$build/client/shim/lib GPUMEM_RUNTIME_DIR=$work/run GPUMEM_SIM_MACHINE=$work/machine GPUMEM_BUILD=$build
export PYTHONDONTWRITEBYTECODE=1
unset CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH
cd "$here"
# shellcheck disable=SC2086  # a pattern
"$build/client/cli/gpumem" run --wait 2s --name "$test" -- \
  "$python" -m pytest -q -p no:cacheprovider "${deselected[@]}" $files
ended=$broker broker=
kill "$ended"
wait "$ended" || { echo 'the broker did not end well'; cat "$work/log"; exit 1; }
