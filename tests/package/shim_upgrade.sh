#!/usr/bin/env bash
# shim_upgrade.sh BUILD: installs two versions of the drop-in driver in turns into one prefix, while programs that use it start
# one after the other, and one looks for it without a pause. It is there all the time.
set -euo pipefail
build=$(realpath "$1")
work=$(mktemp -d /tmp/gpumem-upgrade-XXXXXX)
cleanup() {
  touch "$work/stop"
  wait
  rm -rf "$work"
}
trap cleanup EXIT
fail() { printf 'package.shim_upgrade: %s\n' "$*" >&2; exit 1; }

# The build's own script, and one that is of another version.
sed 's|shim-[0-9][0-9.]*|shim-1.0|g' "$build/client/shim/cmake_install.cmake" > "$work/1.0.cmake"
sed 's|shim-[0-9][0-9.]*|shim-2.0|g' "$build/client/shim/cmake_install.cmake" > "$work/2.0.cmake"
install() {
  cmake -DCMAKE_INSTALL_PREFIX="$work/prefix" -DCMAKE_INSTALL_COMPONENT=gpumem -P "$work/$1.cmake" > "$work/installed" 2>&1 ||
    fail "$1 cannot be installed: $(cat "$work/installed")"
}
install 1.0
shim=$(echo "$work"/prefix/*/gpumem/shim)
[ "$(readlink "$shim")" = shim-1.0 ] || fail "no link leads to the version that was installed: $(ls -l "$(dirname "$shim")")"

cat > "$work/program.py" <<'PROGRAM'
import ctypes
import os
for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
    assert ctypes.CDLL(name).gpumem_shim_version, name
with open("/proc/self/maps", encoding="utf-8") as maps:
    folders = {os.path.dirname(line.split()[-1]) for line in maps if "/gpumem/shim" in line}
assert folders and all(os.path.basename(folder) in ("shim-1.0", "shim-2.0") for folder in folders), folders
PROGRAM
cat > "$work/looker.py" <<'PROGRAM'
import os
import sys
shim, stop = sys.argv[1:]
while not os.path.exists(stop):
    for _ in range(1000):
        os.stat(shim + "/libcuda.so.1")
PROGRAM
start_programs() {
  local count=0
  while [ ! -e "$work/stop" ]; do
    LD_LIBRARY_PATH=$shim /usr/bin/python3 "$work/program.py" 2>> "$work/wrong" || return 1
    count=$((count + 1))
    echo "$count" > "$work/count"
  done
}
start_programs & starts=$!
/usr/bin/python3 "$work/looker.py" "$shim" "$work/stop" 2>> "$work/wrong" & looker=$!
for round in $(seq 40); do
  install 2.0
  [ "$(readlink "$shim")" = shim-2.0 ] || fail "round $round: the link does not lead to the next version"
  install 1.0
done
touch "$work/stop"
wait "$starts" || fail "a program did not find it: $(cat "$work/wrong")"
wait "$looker" || fail "it was not there for a while: $(cat "$work/wrong")"
[ "$(cat "$work/count")" -gt 0 ] || fail 'no program was started'
[ ! -e "$shim.new" ] || fail 'something is left'
printf '%s programs started while 80 versions were installed\n' "$(cat "$work/count")"
