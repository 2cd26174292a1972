#!/usr/bin/env bash
# system_mode.sh BUILD: gpumem system enable, on a machine of its own as far as /etc, the loader's cache and the broker go. Programs
# start as they always do, without a variable of gpumem's: some borrow, and each that must not is left to the driver in silence.
set -euo pipefail
skip() { printf 'gpumem: skipped: package.system_mode: %s\n' "$*"; exit 77; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/package/system_mode/machine.sh
. "$here/system_mode/machine.sh"
own_namespace "$@"
build=$(realpath "$1") source=$(realpath "$here/../..")
work=$(mktemp -d /var/tmp/gpumem-system-XXXXXX)
broker=
fail() { printf 'package.system_mode: %s\n' "$*" >&2; tail -n 30 "$work/broker.log" >&2 || true; exit 1; }
end_broker() { [ -z "$broker" ] || { kill -CONT "$broker"; kill "$broker"; wait "$broker" || true; broker=; }; }
cleanup() {
  exec 7>&- 8>&-
  end_broker || true
  wait
  cd /
  leave_machine "$work"
  rm -rf "$work"
}
trap cleanup EXIT
step() { printf '%s\n' "$*"; }

# ---- The machine ----
own_machine "$build" "$work" /run/gpumemd/driver
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
  await grep -q 'serving on' "$work/broker.log"
}
await() {
  local tries
  for tries in $(seq 600); do ! "$@" || return 0; sleep 0.1; done
  fail "in vain awaited: $*"
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
mkdir "$work/newer"
printf 'int cuInit(unsigned flags) { return 0; }\nint cuFromTheFuture(void) { return 0; }\nint cudbgOfDebuggers(void) { return 0; }\n' |
  cc -shared -fPIC -Wl,-soname,libcuda.so.1 -x c -o "$work/newer/libcuda.so.1" -
ldconfig

step 'disabled'
expect '*disabled: only programs under gpumem run borrow*' gpumem system status
expect "$untouched" as 1234 10000 "${run[@]}"
! as 1234 10000 gpumem system enable > "$work/said" 2>&1 || fail 'somebody else than root enables it'
grep -q 'only root' "$work/said" || fail "$(cat "$work/said")"

step 'enabled'
for mode in 750 777; do
  chmod $mode "$work/prefix"
  ! gpumem system enable > "$work/said" 2>&1 || fail "enabled with a folder of mode $mode on the way to the drop-in driver"
  grep -q "users other than root may .*$work/prefix:" "$work/said" || fail "$(cat "$work/said")"
done
chmod 755 "$work/prefix"
(umask 077; gpumem system enable > "$work/said" 2>&1) || fail "$(cat "$work/said")"
gpumem system status > "$work/said" 2>&1 || fail "$(cat "$work/said")"
grep -q "get $work/prefix/.*/gpumem/system/libcuda.so.1, which passes calls on to /run/gpumemd/driver/libcuda.so.1" "$work/said" ||
  fail "$(cat "$work/said")"
grep -q 'from uid 1000 on in group 10000' "$work/said" || fail "$(cat "$work/said")"
grep -q 'by name: excepted-program' "$work/said" || fail "$(cat "$work/said")"
expect "$borrows" as 1234 10000 "${run[@]}"
expect 'init=0 total=128 *' as 1234 10000 env GPUMEM_LIMIT=128MiB "${run[@]}"

expect 'init=0 total=768 *' as 1234 10000 env REAL_PATHS=1 "${run[@]}"
expect "$borrows" as 1234 10000 env GPUMEM_REAL_LIBCUDA=/nowhere "${run[@]}"
expect "$borrows" as 1234 10000 env FOR_CHILDREN="$work/newer" "${run[@]}"

step 'left to the driver'
expect "$untouched" as 999 10000 "${run[@]}"
expect "$untouched" "${run[@]}"
expect "$untouched" as 1234 1234 "${run[@]}"
expect "$untouched" as 1234 10000 "$work/excepted-program" "$work/program.py"
expect "$untouched" as 1234 10000 "${run[@]}" filtered
expect "$untouched" as 1234 10000 "$work/secure" "$work/program.py"
expect "$untouched" as 1234 10000 env GPUMEM_LIMIT=nonsense "${run[@]}"
expect "$untouched" as 1234 10000 env GPUMEM_RUNTIME_DIR=/nowhere "${run[@]}"
expect "$untouched" as 1234 10000 "${run[@]}" past /run/gpumemd/driver/libcuda.so.1
expect 'init=0 total=1024 * late=False' as 1234 10000 prlimit --nproc=1 "${run[@]}"  # no thread, so no slice
touch /etc/gpumem/off
expect '*off leaves all programs to the driver*' gpumem system status
expect "$untouched" as 1234 10000 "${run[@]}"
rm /etc/gpumem/off

step 'a program of gpumem run is told what is wrong'
expect '*gpumem: no broker at /nowhere*init=802 *' as 1234 10000 env GPUMEM_JOB=1 GPUMEM_RUNTIME_DIR=/nowhere "${run[@]}"
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
expect '*system mode leaves it to the driver, because its user is below UID_MIN*' \
  bash -c "! gpumem check --program $(pgrep -u 999 -f "$work/program.py")"
exec 7>&-
wait "$left" || fail "it was ended: $(cat "$work/left.out")"

step 'a broker that does not answer, and none'
mkfifo "$work/later.in"
as 1234 10000 "${run[@]}" later < "$work/later.in" > "$work/later.out" 2>&1 & later=$!
exec 8> "$work/later.in"
await grep -q started "$work/later.out"
kill -STOP "$broker"
expect "$untouched" as 1234 10000 "${run[@]}"
exec 8>&-
wait "$later" || fail "a broker that stops ends a program: $(cat "$work/later.out")"
expect $'started\ninit=0 total=1024 *' cat "$work/later.out"
kill -CONT "$broker"
mkfifo "$work/borrows.in"
as 1234 10000 env GPUMEM_WAIT=1s "${run[@]}" hold < "$work/borrows.in" > "$work/borrows.out" 2>&1 & borrows_on=$!
exec 8> "$work/borrows.in"
await grep -q "total=768" "$work/borrows.out"
end_broker
echo >&8
await grep -q '^another 0$' "$work/borrows.out"  # of the driver
exec 8>&-
wait "$borrows_on" || fail "a program that has borrowed fails without a broker: $(cat "$work/borrows.out")"
expect '*no program: there is no broker*' bash -c '! gpumem system status'
start_broker

step 'enabled by several at once, while programs start'
switch=/etc/ld.so.conf.d/00-00-gpumem.conf
link=$(sed 1d $switch)/libcuda.so
before=$(stat -c %i $switch "$link")
(for number in 1 2 3 4; do gpumem system enable & ids[number]=$!; done > "$work/said" 2>&1; wait "${ids[@]}") || true
[ "$(grep -c '^enabled' "$work/said")" = 4 ] || fail "one of several fails: $(cat "$work/said")"
# The one is replaced by a rename, and the other stays: at no time are they not there, or empty.
read -r -d '' switch_then link_then <<< "$before" || true
[ "$(stat -c %i $switch)" != "$switch_then" ] && [ "$(stat -c %i "$link")" = "$link_then" ] || fail 'for a moment there is no driver'

step 'a read-only /usr'
mount --bind "$work/prefix" "$work/prefix"
mount -o remount,ro,bind "$work/prefix"
gpumem system enable > "$work/said" 2>&1 || fail "not enabled again: $(cat "$work/said")"
umount "$work/prefix"

step 'a full disk'
cat /dev/zero > "$work/etc/ballast" 2> /dev/null || true
for command in enable disable; do
  ! gpumem system $command > "$work/said" 2>&1 || fail "a full disk does not keep anyone from 'gpumem system $command'"
  expect '*system mode     enabled*' gpumem system status
  expect "$borrows" as 1234 10000 "${run[@]}"
done
rm "$work/etc/ballast"

step 'its file is removed by hand'
rm $switch
expect '*disabled, but the loader still finds the drop-in driver*' bash -c '! gpumem system status'
gpumem system disable > /dev/null
expect '*disabled: only programs under gpumem run borrow*' gpumem system status
gpumem system enable > /dev/null

step 'a driver with newer functions'
echo "$work/newer" > /etc/ld.so.conf.d/newer.conf
ldconfig
expect '*functions that the drop-in driver lacks (1): cuFromTheFuture*' bash -c '! gpumem system status'
"$source/deploy/debian/gpumem/postinst" triggered ldconfig > "$work/said" 2>&1 || fail "the trigger fails: $(cat "$work/said")"
grep -q cuFromTheFuture "$work/said" || fail "$(cat "$work/said")"
[ ! -e $switch ] || fail 'a driver with newer functions does not disable it'
rm /etc/ld.so.conf.d/newer.conf
ldconfig
expect "$untouched" as 1234 10000 "${run[@]}"

step 'removed'
gpumem system enable > /dev/null
mkdir "$work/bin"
ln -s "$(command -v rm)" "$work/bin/rm"
without_gpumem=(env PATH="$work/bin")  # as while libraries that it needs are replaced
"${without_gpumem[@]}" "$source/deploy/debian/gpumem/postinst" triggered ldconfig > "$work/said" 2>&1 || fail "the trigger fails: $(cat "$work/said")"
grep -q 'system mode is not checked' "$work/said" || fail "$(cat "$work/said")"
expect "$borrows" as 1234 10000 "${run[@]}"
"${without_gpumem[@]}" "$source/deploy/debian/gpumem/prerm" remove > "$work/said" 2>&1 || fail "$(cat "$work/said")"
expect "$untouched" as 1234 10000 "${run[@]}"
gpumem system enable > /dev/null
touch /etc/gpumem/off
"$source/deploy/debian/gpumem/postrm" purge > "$work/said" 2>&1 || fail "$(cat "$work/said")"
[ ! -e $switch ] && [ ! -e /etc/gpumem ] || fail 'something is left'
! ldconfig -p | grep -q gpumem/system || fail 'the loader still finds it'
printf 'the drop-in driver served the machine, and was taken away again\n'
