#!/usr/bin/env bash
# on_machine.sh TEST BUILD: runs clients/test_grpc_session.py with the grpcio of .cache/python-coexistence and .cache/grpcurl.
# Where grpcio is not installed it says so, which counts as skipped.
set -euo pipefail
test=$1 build=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$(realpath -m "$here/../../../.cache")
export GRPC_PYTHON=$cache/python-coexistence/bin/python GRPCURL=$cache/grpcurl/grpcurl

{ [ -x "$GRPC_PYTHON" ] && "$GRPC_PYTHON" -c 'import grpc, grpc_tools' 2> /dev/null; } || {
  printf 'gpumem: skipped: %s: grpcio is not installed: reach a package index and run ./dev test; %s says more\n' \
    "$test" .cache/python-coexistence/set-up.txt
  exit 77
}
[ -x "$GRPCURL" ] || printf 'gpumem: %s: without grpcurl: see .cache/grpcurl/set-up.txt\n' "$test"
exec "$here/../on_machine.sh" "$test" pytest "$build" clients/test_grpc_session.py
