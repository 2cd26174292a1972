#!/usr/bin/env bash
# portable_drop_in.sh BUILD: deploy/debian/portable_drop_in.sh puts the build's drop-in driver into a package that has another.
set -euo pipefail
build=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fail() { printf 'package.portable_drop_in: %s\n' "$*" >&2; exit 1; }
command -v dpkg-deb > /dev/null || { echo 'gpumem: skipped: package.portable_drop_in: no dpkg-deb here'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

made=$work/made/usr/lib/gpumem/shim-1.0
mkdir -p "$made" "$work/made/DEBIAN" "$work/made/usr/bin"
for name in libcuda.so.1 libnvidia-ml.so.1; do echo old > "$made/$name"; done
ln -s shim-1.0 "$work/made/usr/lib/gpumem/shim"
echo command > "$work/made/usr/bin/gpumem"
printf 'Package: gpumem\nVersion: 1.0-1\nArchitecture: amd64\nMaintainer: none\nDescription: none\n' > "$work/made/DEBIAN/control"
(cd "$work/made" && find usr -type f -exec md5sum {} + > DEBIAN/md5sums)
dpkg-deb --root-owner-group -b "$work/made" "$work/gpumem.deb" > /dev/null

"$source/deploy/debian/portable_drop_in.sh" "$work/gpumem.deb" "$build/client/shim/lib"
dpkg-deb -R "$work/gpumem.deb" "$work/now"
(cd "$work/now" && md5sum --quiet -c DEBIAN/md5sums) || fail 'the sums are not those of the files'
for name in libcuda.so.1 libnvidia-ml.so.1; do
  "$source/tests/package/needed_libraries.py" "$work/now/usr/lib/gpumem/shim/$name" || fail "$name is not the build's"
done
[ "$(cat "$work/now/usr/bin/gpumem")" = command ] || fail 'another file was changed'
mv "$work/made/usr/lib/gpumem" "$work/made/usr/lib/other"
dpkg-deb -b "$work/made" "$work/none.deb" > /dev/null
! "$source/deploy/debian/portable_drop_in.sh" "$work/none.deb" "$build/client/shim/lib" 2> "$work/said" || fail 'no driver, and no error'
grep -q 'has no libcuda.so.1' "$work/said" || fail "it does not say what is wrong: $(cat "$work/said")"
