# shellcheck shell=bash
# To be sourced. need_client TEST PACKAGE [ENVIRONMENT]: sets `python` to that of .cache/ENVIRONMENT, the clients' own if
# none is named. Where there is none, or the package is not installed, it says so and ends the test, which counts as skipped.
need_client() {
  local folder command='./dev test'
  [ "${3:-}" != python-tensorflow ] || command='./dev test long'
  folder=$(realpath -m "$(dirname "${BASH_SOURCE[0]}")/../../.cache/${3:-python}")
  python=$folder/bin/python
  [ -x "$python" ] || skip_client "$1" "there are no Python clients in .cache/${3:-python}: reach a package index and run $command"
  "$python" -c 'import importlib.metadata, sys; importlib.metadata.version(sys.argv[1])' "$2" 2> /dev/null ||
    skip_client "$1" "the package $2 is not installed: .cache/${3:-python}/set-up.txt says why; $command tries again"
}
skip_client() { printf 'gpumem: skipped: %s: %s\n' "$1" "$2"; exit 77; }
