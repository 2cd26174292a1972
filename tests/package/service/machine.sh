# A machine with a systemd of its own, over this one's files: what it changes is its own, and ends with the script that
# sources this. Needs root. $work: a folder of the script's own.
# shellcheck shell=bash
skip() { printf 'gpumem: skipped: package.%s: %s\n' "$(basename "$0" .sh)" "$*"; exit 77; }
fail() { printf 'service test: %s\n' "$*" >&2; show_logs >&2; exit 1; }
step() { printf '%s\n' "$*"; : > "$work/said"; }

[ "$(id -u)" = 0 ] || skip 'booting a systemd takes root'
for program in systemd-nspawn script nsenter; do
  command -v "$program" > /dev/null || skip "$program is not installed (Debian: systemd-container, bsdutils, util-linux)"
done
[ -x /sbin/init ] || skip 'there is no init to boot (Debian: systemd-sysv)'
unshare --mount true 2> /dev/null || skip 'this machine lets nobody make namespaces (unshare)'
if [ "${1:-}" != --in-namespace ]; then exec unshare --mount --propagation private "$0" --in-namespace "$@"; fi
shift

work=$(mktemp -d /var/tmp/gpumem-service-XXXXXX)
root=$work/root console= leader=
cleanup() {
  [ -z "$leader" ] || inside systemctl --force --force poweroff > /dev/null 2>&1 || true
  [ -z "$console" ] || { await_end "$console"; }
  umount -l "$root" 2> /dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

await_end() {
  local tries
  for tries in $(seq 200); do kill -0 "$1" 2> /dev/null || return 0; sleep 0.1; done
  kill -9 "$1" 2> /dev/null || true
}

# inside COMMAND...: as root of the booted machine.
inside() { nsenter -t "$leader" -a -- "$@"; }
# as_user USER COMMAND...
as_user() { local user=$1; shift; inside runuser -u "$user" -- "$@"; }

# shows PATTERN COMMAND...: whether it is in what the command prints inside. No pipe: grep -q would cut it off.
shows() {
  local pattern=$1
  shift
  inside "$@" > "$work/shown" 2> /dev/null && grep -qE -- "$pattern" "$work/shown"
}

# await WHAT COMMAND...: until the command succeeds.
await() {
  local what=$1 tries
  shift
  for tries in $(seq 600); do ! "$@" > /dev/null 2>&1 || return 0; sleep 0.1; done
  fail "in vain awaited: $what"
}

show_logs() {
  [ -z "$leader" ] || inside journalctl --no-pager -n 60 -u gpumemd.service -u gpumemd-lane.socket -u gpumem-history.service || true
  ! [ -f "$work/said" ] || tail -n 40 "$work/said"
}

boot() {
  mkdir -p "$root" "$work/upper" "$work/scratch"
  mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" overlay "$root" ||
    skip 'this machine mounts no overlay'
  # Packages of this machine must not start what they bring; those of the booted one must.
  rm -f "$root/usr/sbin/policy-rc.d"
  # With a terminal of its own, and no service of this machine's: basic.target is enough.
  script -qec "exec systemd-nspawn -b -D $root --register=no --keep-unit --machine=gpumem-$$ --private-network \
    systemd.unit=basic.target" "$work/console" < /dev/null > /dev/null 2>&1 &
  console=$!
  local tries nspawn
  for tries in $(seq 300); do
    nspawn=$(pgrep -P "$console" systemd-nspawn || true)
    leader=${nspawn:+$(pgrep -P "$nspawn" systemd || true)}
    # A degraded system exits with 1, and is good enough: this machine's own services do not matter.
    case $([ -z "$leader" ] || inside systemctl is-system-running 2> /dev/null || true) in
      running | degraded) return ;;
    esac
    kill -0 "$console" 2> /dev/null || break
    sleep 0.1
  done
  leader=
  skip "no systemd boots here: $(tail -c 300 "$work/console" | tr -d '\r' | tail -n 2)"
}
