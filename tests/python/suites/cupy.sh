#!/usr/bin/env bash
# cupy.sh FOLDER CLIENTS WORK: CuPy as its wheel has it into FOLDER/cupy, and the tests of its source archive into FOLDER/cupy-tests.
# One module of the wheel is built anew from that archive: the one that NVIDIA's runtime is linked into, which refuses
# the simulated driver. Its place takes ../stand_ins/cuda_runtime.cc. WORK is an empty folder for that.
set -euo pipefail
folder=$1 clients=$2 work=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly version=14.2.0 cuda=13020
readonly tools=(Cython==3.2.4 numpy==2.4.6 setuptools==84.2.1 wheel==0.48.0 fastrlock==0.8.4) crt=nvidia-cuda-crt==13.0.88

pip() { "$work/tools/bin/python" -m pip "$@" --quiet --disable-pip-version-check --retries 1 --timeout 30; }

/usr/bin/python3 -m venv "$work/tools"
pip install --no-deps --only-binary :all: "${tools[@]}"
# The archive's metadata asks for a CUDA toolkit, unless it is told that there is none.
CUPY_INSTALL_USE_STUB=1 pip download --no-deps --no-build-isolation --no-binary :all: -d "$work" cupy==$version
tar -xzf "$work"/cupy-$version.tar.gz -C "$work"
rm -rf "$folder/cupy" "$folder/cupy-tests"
pip install --no-deps --only-binary :all: --target "$folder/cupy" cupy-cuda13x==$version
pip install --no-deps --only-binary :all: --target "$work/crt" $crt

source=$work/cupy-$version/cupy_backends/cuda/api
include=$(echo "$clients"/lib/python3*/site-packages/nvidia/cu13/include)
compile() { g++ -O1 -w -fPIC -I"$include" -I"$work/crt/nvidia/cu13/include" "$@"; }
# With the settings of install/cupy_builder/_command.py.
(cd "$work/cupy-$version" && "$work/tools/bin/cython" -3 --cplus \
  -X embedsignature=True,c_api_binop_methods=True,binding=False,freethreading_compatible=True \
  -E CUPY_CUDA_VERSION=$cuda,CUPY_HIP_VERSION=0,CUPY_USE_CUDA_PYTHON=False,CUPY_CUFFT_STATIC=False,CUPY_CYTHON_VERSION=3.2.4 \
  cupy_backends/cuda/api/runtime.pyx -o "$source/runtime.cpp")
compile -O0 -I"$("$clients/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" -I"$source" \
  -c "$source/runtime.cpp" -o "$work/runtime.o"
compile -std=c++20 -c "$here/../stand_ins/cuda_runtime.cc" -o "$work/stand_in.o"
# The rest of what the module calls is not supported (801).
comm -23 <(nm -u "$work/runtime.o" | grep -o 'cuda[A-Z].*' | sort) \
  <(nm --defined-only "$work/stand_in.o" | sed -n 's/.* T \(cuda\)/\1/p' | sort) |
  sed 's/.*/int &(void) { return 801; }/' > "$work/refused.c"
gcc -fPIC -c "$work/refused.c" -o "$work/refused.o"
module=$(echo "$folder"/cupy/cupy_backends/cuda/api/runtime.*.so)
g++ -shared "$work/runtime.o" "$work/stand_in.o" "$work/refused.o" -ldl -o "$module"
mv "$work/cupy-$version/tests" "$folder/cupy-tests"
