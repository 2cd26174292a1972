#!/usr/bin/env bash
# under_shim.sh TEST PACKAGE BUILD [ENVIRONMENT FILES UNDER]: runs clients/test_PACKAGE*.py, or FILES, with `gpumem run`: clients that
# nobody here wrote, on memory of a broker, by the drop-in driver. UNDER: as broker_on_machine.sh.
# under_shim.txt says which tests see a difference, and which. Skips as on_machine.sh does.
set -euo pipefail
test=$1 package=$2 build=$3 environment=${4:-python}
files=${5:-clients/test_${package//-/_}*.py} under=${6:-shim}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/python/client_python.sh
. "$here/client_python.sh"
need_client "$test" "$package" "$environment"

# shellcheck source=tests/python/broker_on_machine.sh
. "$here/broker_on_machine.sh"
skip() { skip_client "$test" "$1"; }
need_namespace "$under" "$@"
work=$(mktemp -d /tmp/gpumem-python-XXXXXX)
trap 'drop_broker "$build" "$work"' EXIT

deselected=()
while read -r id _; do
  case $id in "clients/test_${package//-/_}"*) deselected+=(--deselect "$id") ;; esac
done < "$here/under_shim.txt"
export GPUMEM_SIM_MACHINE=$work/machine GPUMEM_BUILD=$build PYTHONDONTWRITEBYTECODE=1
unset CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH
cd "$here"
# shellcheck disable=SC2086  # a pattern
borrow "$under" "$build" "$work" "$test" "$python" -m pytest -q -p no:cacheprovider "${deselected[@]}" $files
