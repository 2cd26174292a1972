#!/usr/bin/env bash
# on_machine.sh TEST PACKAGE ENVIRONMENT BUILD [FILES]: runs test_coexistence.py, or FILES, whose processes use PACKAGE of
# .cache/ENVIRONMENT.
# Where the package is not installed it says so, which counts as skipped.
set -euo pipefail
test=$1 package=$2 environment=$3 build=$4
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(realpath -m "$here/../../../.cache/$environment")/bin/python

{ [ -x "$python" ] &&
  "$python" -c 'import importlib.metadata, sys; importlib.metadata.version(sys.argv[1])' "$package" 2> /dev/null; } || {
  command='./dev test'
  [ "$environment" = python-coexistence ] || command+=" -C coexistence -R $package"
  printf 'gpumem: skipped: %s: %s is not installed: reach a package index and run %s; .cache/%s/set-up.txt says more\n' \
    "$test" "$package" "$command" "$environment"
  exit 77
}
export COEXISTENCE_PACKAGE=$package COEXISTENCE_PYTHON=$python
exec "$here/../on_machine.sh" "$test" pytest "$build" "${5:-test_coexistence.py}"
