#!/usr/bin/env bash
# Installs into a temporary prefix, builds client/examples against it in both ways, and runs two of them.
set -euo pipefail
build=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d /tmp/gpumem-package-XXXXXX)
broker=
cleanup() {
  [ -z "$broker" ] || { kill "$broker" 2>/dev/null || true; wait "$broker" 2>/dev/null || true; }
  rm -rf "$work"
}
trap cleanup EXIT
fail() { printf 'package test: %s\n' "$*" >&2; [ ! -f "$work/log" ] || cat "$work/log" >&2; exit 1; }

cmake --install "$build" --prefix "$work/prefix" --strip > "$work/install.log"
for program in gpumemd gpumem; do
  version=$("$work/prefix/bin/$program" --version) || fail "$program --version fails"
  printf '%s\n' "$version" | grep -q '[0-9]\.[0-9]' || fail "$program --version says '$version'"
done
cmake -S "$source/client/examples" -B "$work/example" -DCMAKE_PREFIX_PATH="$work/prefix" > "$work/configure.log"
cmake --build "$work/example" > "$work/build.log"

flags=$(PKG_CONFIG_PATH=$(find "$work/prefix" -name pkgconfig) pkg-config --cflags --libs gpumem)
# shellcheck disable=SC2086  # the flags are words
c++ -std=c++20 "$source/client/examples/hold.cc" $flags -o "$work/hold-by-pkg-config" || fail "pkg-config's flags do not build"
# shellcheck disable=SC2086
cc -std=c99 -pedantic -Wall -Wextra -Werror "$source/client/examples/allocate.c" $flags -o "$work/allocate-in-c" ||
  fail "pkg-config's flags do not build C"

libraries=$(dirname "$(find "$work/prefix" -name 'libgpumem.so.0')")
export LD_LIBRARY_PATH=$libraries GPUMEM_RUNTIME_DIR=$work/run
"$work/prefix/bin/gpumemd" --simulate 1x4GiB --runtime-dir "$work/run" 2> "$work/log" &
broker=$!
for _ in $(seq 200); do "$work/prefix/bin/gpumem" status > /dev/null 2>&1 && break; sleep 0.05; done

mkfifo "$work/first" "$work/second"
"$work/example/hold" 1GiB < "$work/first" > "$work/first.out" & first=$!
"$work/hold-by-pkg-config" 1GiB < "$work/second" > "$work/second.out" & second=$!
exec 3> "$work/first" 4> "$work/second"
held() { "$work/prefix/bin/gpumem" ps --json | grep -c '"charged": 1073741824' || true; }
for _ in $(seq 200); do [ "$(held)" = 2 ] && break; sleep 0.05; done
[ "$(held)" = 2 ] || fail "not both programs hold their memory: $(cat "$work"/*.out)"
echo >&3; echo >&4
wait "$first" || fail "the first program failed"
wait "$second" || fail "the second program failed"

shows() { grep -q "$1" "$work/out" || fail "$2 does not show '$1': $(cat "$work/out")"; }
"$work/example/allocate" 64MiB > "$work/out" || fail "the program that allocates failed"
shows '8 blocks' allocate; shows '64MiB in use' allocate; shows '64MiB given back' allocate
for program in "$work/example/allocate_c" "$work/allocate-in-c"; do
  "$program" 67108864 > "$work/out" || fail "$program failed"
  shows '67108864 bytes in use' "$program"
done
printf 'two programs shared the GPU, and others allocated from it, in C++ and in C\n'
