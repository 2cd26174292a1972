#!/usr/bin/env bash
# old_glibc.sh LIBRARY BUILD: uses the library, and the drop-in driver of its build, in a root with Debian 11's glibc (2.31) and
# nothing else, with a broker of BUILD outside. The driver is outside, too: what needs none is tried.
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

# Debian 11's C library, unpacked once: no program of that system is run.
cache=$source/.cache/debian-11
if [ ! -e "$cache/ld-2.31.so" ]; then
  mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2> /dev/null |
    grep -oE -m 1 'https?://[^ ]*/debian/?( |$)' || true)
  mirror=${mirror% }
  debootstrap --foreign --variant=minbase bullseye "$work/debian" "${mirror:-http://deb.debian.org/debian}" \
    > "$work/debootstrap.log" 2>&1 || skip "Debian 11 cannot be had: $(tail -n 1 "$work/debootstrap.log")"
  rm -rf "$cache"
  mkdir -p "$cache"
  cp -P "$work"/debian/lib/x86_64-linux-gnu/lib{c,m,dl,pthread,rt}[.-]* "$cache"
  cp "$work"/debian/lib/x86_64-linux-gnu/ld-2.31.so "$cache"
fi

root=$work/root
mkdir -p "$root/lib64" "$root/lib/x86_64-linux-gnu" "$root/run"
cp -P "$cache"/* "$root/lib/x86_64-linux-gnu/"
cp "$cache/ld-2.31.so" "$root/lib64/ld-linux-x86-64.so.2"
cp -L "$library" "$root/lib/x86_64-linux-gnu/libgpumem.so.0"
cp -L "$(dirname "$library")"/shim/lib/lib{cuda,nvidia-ml}.so.1 "$root/lib/x86_64-linux-gnu/"
"$zig" -std=c99 -O1 -I"$source/include" "$source/tests/package/old_glibc.c" \
  "$root/lib/x86_64-linux-gnu/libgpumem.so.0" -ldl -o "$root/try"
start_broker "$build"
# shellcheck disable=SC2016  # the words are the inner shell's
unshare --mount --propagation private sh -euc '
  mount --bind "$2" "$1/run"
  exec env -i /usr/sbin/chroot "$1" /try /run' sh "$root" "$work/run"
