#!/usr/bin/env bash
# old_glibc.sh LIBRARY BUILD: uses the library in a root with Debian 11's glibc (2.31) and nothing else, with a broker
# of BUILD outside. The driver is outside, too: what needs none is tried.
set -euo pipefail
library=$(realpath "$1") build=$(realpath "$2")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/package/broker.sh
. "$source/tests/package/broker.sh"
skip() { printf 'gpumem: skipped: package.old_glibc: %s\n' "$*"; exit 77; }

[ "$(id -u)" = 0 ] || skip 'a root folder of its own takes root'
zig=$source/client/package/zig-cc
[ -x "$source/.cache/zig/ziglang/zig" ] || skip 'zig, which builds the program for that root, is not here: ./dev portable'
command -v debootstrap > /dev/null || skip 'debootstrap is not installed'
unshare --mount --pid --fork true 2> /dev/null || skip 'this machine lets nobody make namespaces (unshare)'

# Debian 11's libc6 alone, unpacked once: no program of it is run.
cache=$source/.cache/debian-11
if [ ! -e "$cache/lib/x86_64-linux-gnu/libc-2.31.so" ]; then
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2> /dev/null |
    grep -oE -m 1 'https?://[^ ]*/debian/?( |$)' || true)
  mirror=${mirror% }
  rm -rf "$cache"
  debootstrap --foreign --variant=minbase --include=libc6 bullseye "$cache" "${mirror:-http://deb.debian.org/debian}" \
    > "$work/debootstrap.log" 2>&1 || { rm -rf "$cache"; skip "Debian 11 cannot be had: $(tail -n 1 "$work/debootstrap.log")"; }
fi

root=$work/root
mkdir -p "$root/lib64" "$root/lib/x86_64-linux-gnu" "$root/run" "$root/proc"
cp -P "$cache"/lib/x86_64-linux-gnu/lib{c,m,dl,pthread,rt}[.-]* "$cache"/lib/x86_64-linux-gnu/ld-* "$root/lib/x86_64-linux-gnu/"
cp -L "$cache/lib/x86_64-linux-gnu/ld-2.31.so" "$root/lib64/ld-linux-x86-64.so.2"
cp -L "$library" "$root/lib/x86_64-linux-gnu/libgpumem.so.0"
"$zig" -std=c99 -O1 -I"$source/client/include" "$source/tests/package/old_glibc.c" \
  "$root/lib/x86_64-linux-gnu/libgpumem.so.0" -o "$root/try"
start_broker "$build"
# shellcheck disable=SC2016  # the words are the inner shell's
unshare --mount --propagation private sh -euc '
  mount --bind "$2" "$1/run"
  exec env -i chroot "$1" /try /run' sh "$root" "$work/run"
