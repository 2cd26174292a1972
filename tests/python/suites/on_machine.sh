#!/usr/bin/env bash
# on_machine.sh TEST SUITE BUILD UNDER: runs the tests that SUITE.toml names, which set_up.sh took from the package of that name, on a
# simulated machine of two GPUs. UNDER is `driver`; `shim`: with `gpumem run` on memory of a broker; or `system`: likewise, without
# `gpumem run`, after `gpumem system enable`. Every outcome is held against SUITE.toml (expected.py). Where the tests could not be had it
# says so, which counts as skipped.
set -euo pipefail
test=$1 suite=$2 build=$3 under=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/python/client_python.sh
. "$here/../client_python.sh"
# shellcheck source=tests/python/broker_on_machine.sh
. "$here/../broker_on_machine.sh"
need_client "$test" pytest
skip() { skip_client "$test" "$1"; }
need_namespace "$under" "$@"
cache=$(realpath -m "$here/../../../.cache")
state=$(cat "$cache/python-suites/$suite.txt" 2> /dev/null || echo 'nobody took the tests: ./dev clients does')
[ "$state" = ok ] || skip_client "$test" "$state"

work=$(mktemp -d /tmp/gpumem-suite-XXXXXX)
trap 'drop_broker "$build" "$work"' EXIT
export GPUMEM_SUITE=$here/$suite.toml GPUMEM_SUITE_UNDER=${under/system/shim} GPUMEM_SUITE_CACHE=$cache PYTHONDONTWRITEBYTECODE=1
export GPUMEM_SIM_MACHINE=$work/machine GPUMEM_BUILD=$build PYTHONPATH=$here HOME=$work
unset CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH
if [ "$under" != driver ]; then
  borrow "$under" "$build" "$work" "$test" "$python" "$here/run.py" "${@:5}"
else
  mkdir "$work/machine"
  "$build/sim/gpumem-sim" create "$work/machine" 2x1GiB
  LD_LIBRARY_PATH=$work/machine "$python" "$here/run.py" "${@:5}"
fi
