#!/usr/bin/env bash
# bundle.sh BUILD|ARCHIVE: makes a bundle of the build, or takes the one given, unpacks it where there is nothing but
# glibc and busybox's shell, and runs its acceptance there on a simulated machine. The mounts are in a namespace of
# their own and end with it.
set -euo pipefail
given=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
skip() { printf 'gpumem: skipped: package.bundle: %s\n' "$*"; exit 77; }
fail() { printf 'bundle test: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || skip 'a root folder of its own takes root'
for program in patchelf busybox objdump; do
  command -v "$program" > /dev/null || skip "$program is not installed (Debian: patchelf, busybox-static, binutils)"
done
! ldd "$(command -v busybox)" > /dev/null 2>&1 || skip 'busybox is not a static one (Debian: busybox-static)'
unshare --mount --pid --fork true 2> /dev/null || skip 'this machine lets nobody make namespaces (unshare)'

work=$(mktemp -d /tmp/gpumem-bundle-XXXXXX)
trap 'rm -rf "$work"' EXIT
archive=$given
[ -f "$given" ] || archive=$(XZ_OPT=-0 "$source/deploy/bundle/bundle.sh" "$given" "$work/dist")

root=$work/root
mkdir -p "$root"/{bin,dev,etc,lib64,lib/x86_64-linux-gnu,opt,out,proc,tmp}
chmod 1777 "$root/tmp"
cp "$(command -v busybox)" "$root/bin/busybox"
for program in sh dirname readlink; do ln -s busybox "$root/bin/$program"; done
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
dpkg -L libc6 | grep -E '^(/usr)?/lib/x86_64-linux-gnu/lib[^/]*\.so\.[0-9]+$' |
  xargs -I{} cp -L {} "$root/lib/x86_64-linux-gnu/"
printf 'root:x:0:0:root:/:/bin/sh\n' > "$root/etc/passwd"
printf 'root:x:0:\n' > "$root/etc/group"
tar -C "$root/opt" -xf "$archive"

# shellcheck disable=SC2016  # the words are the inner shell's
unshare --mount --propagation private --pid --fork --kill-child sh -euc '
  mount -t proc proc "$1/proc"
  mount -t tmpfs -o mode=755 tmpfs "$1/dev"
  mkdir "$1/dev/shm"
  mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
  mknod -m 666 "$1/dev/null" c 1 3
  mknod -m 666 "$1/dev/zero" c 1 5
  mknod -m 666 "$1/dev/urandom" c 1 9
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1" /bin/sh -c "exec /opt/gpumem-*/gpu-acceptance --simulated --short --out /out"
' sh "$root" | tee "$work/said" || { cat "$root/out/log.txt" >&2 || true; fail 'the acceptance failed'; }

tail -n 1 "$work/said" | grep -qE '^acceptance: [0-9]+ passed, 0 failed, 2 skipped$' || fail 'no closing line'
# The simulated driver carries no CUDA runtime.
[ "$(sed -n 's/^skipped \([^,]*\),.*/\1/p' "$work/said")" = $'Frameworks\nAllocators under frameworks' ] ||
  fail 'it skipped what it need not skip'
[ -s "$root/out/acceptance.md" ] || fail 'no report'
[ -z "$(find "$root/tmp" -mindepth 1)" ] || fail "left behind: $(find "$root/tmp" -mindepth 1)"
[ -z "$(find "$root/opt" -name '*.pyc')" ] || fail 'Python wrote into the bundle'
printf 'the bundle runs where nothing is installed\n'
