#!/usr/bin/env bash
# wheel.sh WHEEL BUILD: installs the wheel into a fresh virtual environment, and allocates by the library inside it
# from a broker of BUILD.
set -euo pipefail
wheel=$(realpath "$1") build=$(realpath "$2")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/package/broker.sh
. "$source/tests/package/broker.sh"
/usr/bin/python3 -c 'import ensurepip, venv' 2> /dev/null ||
  { printf 'gpumem: skipped: package.wheel: Python has no venv (Debian: python3-venv)\n'; exit 77; }
start_broker "$build"

/usr/bin/python3 -m venv "$work/environment"
python=$work/environment/bin/python
"$python" -m pip install -q --disable-pip-version-check --no-index --no-deps "$wheel"
cd "$work"  # away from the sources
env -u GPUMEM_LIBRARY -u PYTHONPATH -u LD_LIBRARY_PATH GPUMEM_RUNTIME_DIR="$work/run" "$python" - "$work/environment" <<'PY'
import importlib.metadata
import sys
import gpumem
from gpumem import _library
assert importlib.metadata.version("gpumemd") == gpumem.__version__
assert _library.path().startswith(sys.argv[1]), _library.path()
with gpumem.Session.connect() as session, session.open_allocator() as allocator, allocator.allocate(1 << 20) as block:
    assert block.size == 1 << 20
print(f"gpumem {gpumem.version()} of {_library.path()} allocates")
PY
