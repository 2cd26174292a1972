#!/usr/bin/env bash
# on_machine.sh TEST PACKAGE BUILD [FILES]: runs clients/test_PACKAGE*.py, or FILES, and the processes they start, on a
# simulated machine of two GPUs that exists as long as the test. Where the package is not installed it says so, which
# counts as skipped. Our own package is taken from the sources, its library and the broker from BUILD.
set -euo pipefail
test=$1 package=$2 build=$3
files=${4:-clients/test_${package//-/_}*.py}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/python/client_python.sh
. "$here/client_python.sh"
need_client "$test" "$package"

machine=$(mktemp -d /tmp/gpumem-python-XXXXXX)
trap '"$build/sim/gpumem-sim" remove "$machine" 2> /dev/null || true; rm -rf "$machine"' EXIT
"$build/sim/gpumem-sim" create "$machine" 2x1GiB
export LD_LIBRARY_PATH=$machine GPUMEM_SIM_MACHINE=$machine PYTHONDONTWRITEBYTECODE=1
export GPUMEM_BUILD=$build GPUMEM_LIBRARY=$build/client/libgpumem.so.0 PYTHONPATH=$here/../../client/python/src
unset CUDA_VISIBLE_DEVICES
cd "$here"
# shellcheck disable=SC2086  # a pattern
"$python" -m pytest -q -p no:cacheprovider $files
