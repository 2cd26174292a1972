#!/usr/bin/env bash
# set_up.sh FOLDER CLIENTS [SUITE...]: takes the tests that other projects publish with their packages into FOLDER, each
# at one version. CLIENTS is the environment of ../set_up.sh. Without names it takes all but CuPy, whose wheel is large.
# Finished steps are not repeated. A failure is reported in one line, also in FOLDER/SUITE.txt, and the tests that need
# that suite are skipped.
#
#   numba-cuda   its wheel, which CLIENTS has, carries them; here is what they import besides
#   pycuda       its source archive
#   cuda-python  the wheel of 12.6.0: the last that carries tests. Wheels of cuda-bindings and cuda-core have none, and
#                neither has a source archive on the package index
#   cupy         its source archive, and its wheel with one module built anew (cupy.sh)
set -euo pipefail
folder=$(realpath -m "$1") clients=$(realpath -m "$2")
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly pycuda=pycuda==2026.1 cuda_python=cuda-python==12.6.0

pip() {
  "$clients/bin/python" -m pip "$@" --quiet --disable-pip-version-check --retries 1 --timeout 30 >> "$log" 2>&1
}
wheels_into() { local into=$1; shift; rm -rf "$into"; pip install --no-deps --only-binary :all: --target "$into" "$@"; }

wanted_of() {
  case $1 in
    numba-cuda) cat "$here/requirements.txt" ;;
    pycuda) echo $pycuda ;;
    cuda-python) echo $cuda_python ;;
    cupy) cat "$here/cupy.sh" "$here/../stand_ins/cuda_runtime.cc" ;;
  esac
}

take_numba_cuda() { wheels_into "$folder/lib" -r "$here/requirements.txt"; }
take_cuda_python() { wheels_into "$folder/cuda-python" $cuda_python; }
take_pycuda() {
  pip download --no-deps --no-build-isolation --no-binary :all: -d "$work" $pycuda &&
    tar -xzf "$work"/pycuda-*.tar.gz -C "$work" &&
    rm -rf "$folder/pycuda" && mv "$work"/pycuda-*/test "$folder/pycuda"
}
take_cupy() { "$here/cupy.sh" "$folder" "$clients" "$work" >> "$log" 2>&1; }

# take SUITE
take() {
  local wanted=$folder/$1-wanted.txt state=$folder/$1.txt log=$folder/$1-set-up.txt work ok=true
  wanted_of "$1" | cmp -s - "$wanted" && [ "$(cat "$state" 2> /dev/null)" = ok ] && return 0
  printf 'taking the tests of %s into %s\n' "$1" "$folder"
  : > "$log"
  work=$(mktemp -d)
  "take_${1//-/_}" || ok=false
  rm -rf "$work"
  wanted_of "$1" > "$wanted"
  if $ok; then echo ok > "$state"; return 0; fi
  printf 'the tests of %s could not be had: reach a Python package index (see %s)\n' "$1" "$log" | tee "$state" >&2
  return 1
}

mkdir -p "$folder"
[ -x "$clients/bin/python" ] || { echo "the suites need the clients in $clients: ../set_up.sh makes them" >&2; exit 1; }
[ $# -gt 0 ] || set -- numba-cuda pycuda cuda-python
status=0
for suite in "$@"; do take "$suite" || status=1; done
exit $status
