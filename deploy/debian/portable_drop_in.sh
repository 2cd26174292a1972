#!/usr/bin/env bash
# portable_drop_in.sh PACKAGE LIBRARIES: the drop-in driver in the package gpumem becomes that of the folder LIBRARIES, which
# needs an older C library. Containers of other systems have it mounted from where the package is installed.
set -euo pipefail
package=$(realpath "$1") libraries=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dpkg-deb -R "$package" "$work/root"
sums=$work/root/DEBIAN/md5sums
cd "$work/root"
for name in libcuda.so.1 libnvidia-ml.so.1; do
  packaged=$(echo usr/lib/gpumem/shim-*/"$name")
  [ -f "$packaged" ] || { echo "portable_drop_in.sh: $package has no $name" >&2; exit 1; }
  strip --strip-unneeded -o "$packaged" "$libraries/$name"
  chmod 644 "$packaged"
  sed -i "s|^[0-9a-f]*  $packaged\$|$(md5sum "$packaged")|" "$sums"
done
md5sum --quiet -c "$sums"
dpkg-deb -Zxz --root-owner-group -b "$work/root" "$package" > /dev/null
