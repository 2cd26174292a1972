#!/usr/bin/env bash
# set_up.sh FOLDER CLIENTS TENSORFLOW: the allocators of other projects as libraries with the functions of peer.h: FOLDER/rmm.so, of
# the wheels that it takes into FOLDER/wheels, and FOLDER/bfc.so. CLIENTS and TENSORFLOW are environments of tests/python/set_up.sh: one
# has the headers of the CUDA runtime, the other TensorFlow. What is done is not done again. What fails is said in one line.
set -euo pipefail
folder=$(realpath -m "$1") clients=$(realpath -m "$2") tensorflow=$(echo "$(realpath -m "$3")"/lib/python3*/site-packages/tensorflow)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly runtime=$here/../../tests/python/stand_ins/cuda_runtime.cc log=$folder/set-up.txt
# From 26.6 on RMM's pool is compiled into its library, with a CUDA runtime that refuses the simulated driver.
readonly wheels=(librmm-cu13==26.4.0 rapids-logger==0.2.3 nvidia-cuda-crt==13.0.88)

give_up() { printf '%s (see %s)\n' "$1" "$log" >&2; exit 1; }
wanted() { printf '%s\n' "${wheels[@]}"; cat "${BASH_SOURCE[0]}" "$here"/{rmm.cc,bfc.cc,peer.h} "$runtime"; }
# compile NAME WORDS: FOLDER/NAME.so of NAME.cc.
compile() {
  g++ -O3 -DNDEBUG -w -fPIC -shared -o "$folder/$1.so" "$here/$1.cc" "$runtime" -I"$folder/wheels/nvidia/cu13/include" \
      -I"$(echo "$clients"/lib/python3*/site-packages/nvidia/cu13/include)" "${@:2}" -ldl >> "$log" 2>&1 ||
    give_up "$1.cc cannot be compiled"
}

wanted | cmp -s - "$folder/wanted.txt" && exit 0
printf 'making allocators of other projects in %s\n' "$folder"
mkdir -p "$folder"
rm -rf "$folder/wheels"
"$clients/bin/python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 30 --no-deps --only-binary :all: \
    --target "$folder/wheels" "${wheels[@]}" > "$log" 2>&1 || give_up 'RMM could not be had: reach a Python package index'
rmm=$folder/wheels/librmm logger=$folder/wheels/rapids_logger
compile rmm -std=c++20 -I"$rmm/include" -I"$rmm/include/rapids" -I"$logger/include" -L"$rmm/lib64" -L"$logger/lib64" \
    -Wl,-rpath,"$rmm/lib64:$logger/lib64" -lrmm -lrapids_logger
compile bfc -std=c++17 -I"$tensorflow/include" -L"$tensorflow" -Wl,-rpath,"$tensorflow" -l:libtensorflow_framework.so.2
wanted > "$folder/wanted.txt"
