#!/usr/bin/env bash
# system_mode.sh BUILD: gpumem system enable, on a machine of its own as far as /etc, the loader's cache and the broker go. Programs
# start as they always do, without a variable of gpumem's: some borrow, and each that must not is left to the driver in silence.
set -euo pipefail
skip() { printf 'gpumem: skipped: package.system_mode: %s\n' "$*"; exit 77; }
[ "$(id -u)" = 0 ] || skip 'it takes root'
unshare --mount true 2> /dev/null || skip 'this machine lets nobody make namespaces (unshare)'
if [ "${1:-}" != --in-namespace ]; then exec unshare --mount --propagation private "$0" --in-namespace "$@"; fi
build=$(realpath "$2")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d /var/tmp/gpumem-system-XXXXXX)
broker=
fail() { printf 'package.system_mode: %s\n' "$*" >&2; tail -n 30 "$work/broker.log" >&2 || true; exit 1; }
end_broker() { [ -z "$broker" ] || { kill -CONT "$broker"; kill "$broker"; wait "$broker" || true; broker=; }; }
cleanup() {
  exec 7>&- 8>&-
  end_broker || true
  wait
  cd /
  umount -l "$work/etc" /etc /var/cache/ldconfig /run /usr/lib/gpumem 2> /dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
step() { printf '%s\n' "$*"; }

# ---- The machine ----
chmod 755 "$work"
mkdir "$work/etc"
mount -t tmpfs tmpfs "$work/etc"
mkdir "$work/etc/upper" "$work/etc/scratch"
mount -t overlay -o "lowerdir=/etc,upperdir=$work/etc/upper,workdir=$work/etc/scratch" overlay /etc || skip 'no overlay here'
mkdir -p /var/cache/ldconfig
mount -t tmpfs tmpfs /var/cache/ldconfig
mount -t tmpfs -o mode=755 tmpfs /run
rm -rf /etc/gpumem /etc/gpumemd
[ ! -e /usr/lib/gpumem ] || mount -t tmpfs tmpfs /usr/lib/gpumem  # what postrm removes
for part in cli shim; do
  cmake -DCMAKE_INSTALL_PREFIX="$work/prefix" -DCMAKE_INSTALL_COMPONENT=gpumem -P "$build/client/$part/cmake_install.cmake" \
    > "$work/installed" 2>&1 || fail "$part cannot be installed: $(cat "$work/installed")"
done
PATH=$work/prefix/bin:$PATH
cp "$source/tests/package/system_mode/program.py" "$work/program.py"
ln -s "$(readlink -f /usr/bin/python3)" "$work/excepted-program"
cp "$(readlink -f /usr/bin/python3)" "$work/secure"
chown 2345:10000 "$work/secure"
chmod 4755 "$work/secure"

start_broker() {
  cat > "$work/gpumemd.toml" <<'TOML'
[broker]
socket_group = 10000
reserve = "all-but 256MiB"
reconcile_seconds = 1
past_broker = "end"
past_broker_allowance = "16MiB"
past_broker_confirm_seconds = 1
grace_seconds = 1
[system]
except = ["excepted-program"]
TOML
  "$build/daemon/gpumemd" --config "$work/gpumemd.toml" --state-dir "$work/state" --simulate 1x1GiB > "$work/broker.log" 2>&1 & broker=$!
  local tries
  for tries in $(seq 600); do
    ! grep -q 'serving on' "$work/broker.log" || return 0
    kill -0 "$broker" 2> /dev/null || { broker=; break; }
    sleep 0.1
  done
  fail 'no broker'
}
# as USER GROUP PROGRAM...: nothing of gpumem's is in its environment.
as() { local user=$1 group=$2; shift 2; env -i PATH="$PATH" setpriv --reuid "$user" --regid "$user" --groups "$group" "$@"; }
expect() {
  local wanted=$1 said
  shift
  said=$("$@" 2>&1) || fail "$*: $said"
  [[ $said = $wanted ]] || fail "$*: '$said', not '$wanted'"
}
# Nothing is said, on standard error either; no socket, and no thread but the first.
untouched='init=0 total=1024 sockets=0 threads=1 late=False'
borrows='init=0 total=768 sockets=[1-9] threads=* late=False'
run=(/usr/bin/python3 "$work/program.py")

start_broker
mkdir -p /etc/ld.so.conf.d
echo /run/gpumemd/driver > /etc/ld.so.conf.d/nvidia.conf
ldconfig

step 'disabled'
expect '*disabled: only programs under gpumem run borrow*' gpumem system status
expect "$untouched" as 1234 10000 "${run[@]}"
! as 1234 10000 gpumem system enable > "$work/said" 2>&1 || fail 'somebody else than root enables it'
grep -q 'only root' "$work/said" || fail "$(cat "$work/said")"

step 'enabled'
gpumem system enable > "$work/said" 2>&1 || fail "$(cat "$work/said")"
gpumem system status > "$work/said" 2>&1 || fail "$(cat "$work/said")"
grep -q "get $work/prefix/.*/gpumem/system/libcuda.so.1, which passes calls on to /run/gpumemd/driver/libcuda.so.1" "$work/said" ||
  fail "$(cat "$work/said")"
grep -q 'from uid 1000 on in group 10000' "$work/said" || fail "$(cat "$work/said")"
grep -q 'by name: excepted-program' "$work/said" || fail "$(cat "$work/said")"
expect "$borrows" as 1234 10000 "${run[@]}"
expect 'init=0 total=128 *' as 1234 10000 env GPUMEM_LIMIT=128MiB "${run[@]}"

expect 'init=0 total=768 *' as 1234 10000 env REAL_PATHS=1 "${run[@]}"

step 'left to the driver'
expect "$untouched" as 999 10000 "${run[@]}"
expect "$untouched" "${run[@]}"
expect "$untouched" as 1234 1234 "${run[@]}"
expect "$untouched" as 1234 10000 "$work/excepted-program" "$work/program.py"
expect "$untouched" as 1234 10000 "${run[@]}" filtered
expect "$untouched" as 1234 10000 "$work/secure" "$work/program.py"
expect "$untouched" as 1234 10000 env GPUMEM_LIMIT=nonsense "${run[@]}"
touch /etc/gpumem/off
expect '*off leaves all programs to the driver*' gpumem system status
expect "$untouched" as 1234 10000 "${run[@]}"
rm /etc/gpumem/off

step 'a program of gpumem run is told what is wrong'
expect '*gpumem: no broker at /nowhere*init=802 *' as 1234 10000 env GPUMEM_RUNTIME_DIR=/nowhere "${run[@]}"
expect "$borrows*" as 1234 10000 gpumem run -- "${run[@]}"

step 'programs of gpumem open the driver itself'
expect '*pool 768MiB of 1GiB*' as 1234 10000 "$build/daemon/gpumemd" --check-config --config "$work/gpumemd.toml" \
  --runtime-dir "$work/other"

step 'whoever was left to the driver is not ended for it'
mkfifo "$work/left.in" "$work/past.in"
as 999 10000 "${run[@]}" hold < "$work/left.in" > "$work/left.out" 2>&1 & left=$!
exec 7> "$work/left.in"
as 1234 10000 env LD_LIBRARY_PATH=/run/gpumemd/driver "${run[@]}" hold < "$work/past.in" > "$work/past.out" 2>&1 & past=$!
exec 8> "$work/past.in"
! wait "$past" || fail 'a program past the broker was not ended'
gpumem reconcile --now --json > "$work/said"
grep -q '"uid": 999' "$work/said" || fail "the other is not listed: $(cat "$work/said")"
exec 7>&-
wait "$left" || fail "it was ended: $(cat "$work/left.out")"

step 'a broker that does not answer, and none'
kill -STOP "$broker"
expect "$untouched" as 1234 10000 "${run[@]}"
kill -CONT "$broker"
end_broker
expect '*no program: there is no broker*' bash -c '! gpumem system status'
start_broker

step 'a driver with newer functions'
mkdir "$work/newer"
printf 'int cuInit(unsigned flags) { return 0; }\nint cuFromTheFuture(void) { return 0; }\nint cudbgOfDebuggers(void) { return 0; }\n' |
  cc -shared -fPIC -Wl,-soname,libcuda.so.1 -x c -o "$work/newer/libcuda.so.1" -
echo "$work/newer" > /etc/ld.so.conf.d/newer.conf
ldconfig
expect '*functions that the drop-in driver lacks (1): cuFromTheFuture*' bash -c '! gpumem system status'
"$source/deploy/debian/gpumem/postinst" triggered ldconfig > "$work/said" 2>&1 || fail "the trigger fails: $(cat "$work/said")"
grep -q cuFromTheFuture "$work/said" || fail "$(cat "$work/said")"
[ ! -e /etc/ld.so.conf.d/00-00-gpumem.conf ] || fail 'a driver with newer functions does not disable it'
rm /etc/ld.so.conf.d/newer.conf
ldconfig
expect "$untouched" as 1234 10000 "${run[@]}"

step 'removed'
gpumem system enable > /dev/null
"$source/deploy/debian/gpumem/prerm" remove > "$work/said" 2>&1 || fail "$(cat "$work/said")"
expect "$untouched" as 1234 10000 "${run[@]}"
gpumem system enable > /dev/null
touch /etc/gpumem/off
"$source/deploy/debian/gpumem/postrm" purge > "$work/said" 2>&1 || fail "$(cat "$work/said")"
[ ! -e /etc/ld.so.conf.d/00-00-gpumem.conf ] && [ ! -e /etc/gpumem ] || fail 'something is left'
! ldconfig -p | grep -q gpumem/system || fail 'the loader still finds it'
printf 'the drop-in driver served the machine, and was taken away again\n'
