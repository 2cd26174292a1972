#!/usr/bin/env bash
# compilers.sh BUILD [LIBRARY]: programs of other compilers, standard libraries and string types use the C++ headers with
# the library, which is that of BUILD unless one is given, and a broker of BUILD.
set -euo pipefail
build=$(realpath "$1") library=$(realpath "${2:-$1/client/libgpumem.so.0}")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/package/broker.sh
. "$source/tests/package/broker.sh"
start_broker "$build"
cp "$library" "$work/libgpumem.so.0"

tried=0
# try NAME COMPILER [OPTION...]
try() {
  local name=$1
  shift
  if ! command -v "$1" > /dev/null; then printf 'gpumem: not tried: package.compilers: %s is not installed\n' "$1"; return; fi
  if ! printf '#include <string>\n' | "$@" -x c++ -fsyntax-only - 2> /dev/null; then
    printf 'gpumem: not tried: package.compilers: %s finds no standard library\n' "$*"
    return
  fi
  "$@" -std=c++20 -O1 -Wall -Wextra -Wconversion -Wshadow -pedantic -Werror -I"$source/include" \
    "$source/tests/package/every_class.cc" "$work/libgpumem.so.0" \
    -Wl,-rpath,"$work" -o "$work/$name"
  "$work/$name" "$work/run"
  printf '%s: works\n' "$name"
  tried=$((tried + 1))
}

try gcc g++
try gcc-with-the-old-string g++ -D_GLIBCXX_USE_CXX11_ABI=0
try gcc-with-a-static-runtime g++ -static-libstdc++ -static-libgcc
try clang clang++-14
try clang-with-libcxx clang++-14 -stdlib=libc++
[ "$tried" -ge 3 ] || { printf 'only %s programs were tried\n' "$tried" >&2; exit 1; }
