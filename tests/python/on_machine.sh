#!/usr/bin/env bash
# on_machine.sh TEST PACKAGE BUILD [FILES]: runs test_PACKAGE*.py, or FILES, and the processes they start, on a
# simulated machine of two GPUs that exists as long as the test. Where the package is not installed it says so, which
# counts as skipped. Our own package is taken from the sources, its library and the broker from BUILD.
set -euo pipefail
test=$1 package=$2 build=$3
files=${4:-test_${package//-/_}*.py}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(realpath -m "$here/../../.cache/python")/bin/python
skip() { printf 'gpumem: skipped: %s: %s\n' "$test" "$1"; exit 77; }

[ -x "$python" ] || skip "there are no Python clients: reach a package index and run ./dev test"
"$python" -c 'import importlib.metadata, sys; importlib.metadata.version(sys.argv[1])' "$package" 2> /dev/null ||
  skip "the package $package is not installed: .cache/python/set-up.txt says why"

machine=$(mktemp -d /tmp/gpumem-python-XXXXXX)
trap '"$build/sim/gpumem-sim" remove "$machine" 2> /dev/null || true; rm -rf "$machine"' EXIT
"$build/sim/gpumem-sim" create "$machine" 2x1GiB
export LD_LIBRARY_PATH=$machine GPUMEM_SIM_MACHINE=$machine PYTHONDONTWRITEBYTECODE=1
export GPUMEM_BUILD=$build GPUMEM_LIBRARY=$build/client/libgpumem.so.0 PYTHONPATH=$here/../../client/python/src
unset CUDA_VISIBLE_DEVICES
cd "$here"
# shellcheck disable=SC2086  # a pattern
"$python" -m pytest -q -p no:cacheprovider $files
