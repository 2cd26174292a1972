#!/usr/bin/env bash
# set_up.sh FOLDER [REQUIREMENTS]: makes FOLDER a virtual environment with the packages of that file. Without one they
# are the clients that requirements.txt names, and PyCUDA, which is published as source only. Packages of
# NAME-from-source.txt beside NAME.txt are built by what that names. What is done already is not done again. What fails
# is said in one line.
set -euo pipefail
folder=$(realpath -m "$1")
requirements=${2:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/requirements.txt}
from_source=${requirements%.txt}-from-source.txt
log=$folder/set-up.txt
readonly pycuda=pycuda==2026.1

give_up() { printf '%s (see %s); the tests that need it are skipped\n' "$1" "$log" >&2; exit 1; }
pip() {
  "$folder/bin/python" -m pip "$@" --quiet --disable-pip-version-check --retries 1 --timeout 30 >> "$log" 2>&1
}

wanted() { cat "$requirements"; [ ! -f "$from_source" ] || cat "$from_source"; }

install_clients() {
  printf 'installing Python packages into %s\n' "$folder"
  rm -rf "$folder"
  mkdir -p "$folder"
  /usr/bin/python3 -m venv "$folder" > "$log" 2>&1 ||
    give_up "no virtual environment could be made: install python3-venv"
  pip install --no-deps --only-binary :all: -r "$requirements" ||
    give_up "the Python packages could not be had: reach a Python package index and run ./dev test again"
  [ ! -f "$from_source" ] ||
    pip install --no-deps --no-build-isolation --no-cache-dir --no-binary :all: -r "$from_source" ||
    give_up "the Python packages that are published as source only could not be built"
  wanted > "$folder/clients.txt"
}

# PyCUDA's own set-up links it to libcuda, for which an empty library of that name is enough, and wants the
# library of random numbers unless told not to.
build_pycuda() {
  local work=$1 include
  include=$(echo "$folder"/lib/python3*/site-packages/nvidia/cu13/include)
  pip download --no-deps --no-build-isolation --no-binary :all: -d "$work" "$pycuda" &&
    tar -xzf "$work"/pycuda-*.tar.gz -C "$work" --strip-components=1 &&
    cc -shared -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so" -xc /dev/null >> "$log" 2>&1 &&
    (cd "$work" && "$folder/bin/python" configure.py --no-cuda-enable-curand --cudadrv-lib-dir="$work" \
       --cuda-inc-dir="$include" --cxxflags=-w >> "$log" 2>&1) &&
    LDFLAGS=-Wl,--no-as-needed pip install --no-deps --no-build-isolation --no-cache-dir "$work"
}

install_pycuda() {
  local work built=true
  work=$(mktemp -d)
  build_pycuda "$work" || built=false
  rm -rf "$work"
  $built || give_up "PyCUDA could not be built: reach a Python package index; install a C++ compiler and python3-dev"
  printf '%s\n' "$pycuda" > "$folder/pycuda.txt"
}

wanted | cmp -s - "$folder/clients.txt" || install_clients
[ $# = 1 ] || exit 0
[ "$(cat "$folder/pycuda.txt" 2> /dev/null)" = "$pycuda" ] || install_pycuda
