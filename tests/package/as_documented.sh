#!/usr/bin/env bash
# as_documented.sh BUILD|FOLDER_OF_PACKAGES: boots a systemd of its own, installs the packages, and has somebody else's
# service and container borrow by what docs/run.md says, word for word. The program knows nothing of gpumem.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/package/service/machine.sh
. "$here/service/machine.sh"
given=$(realpath "$1")
# shellcheck source=tests/package/service/packages.sh
. "$here/service/packages.sh"
state=$root/var/lib/my-server

# documented HEADING LANGUAGE: the first block of code in that language below the heading.
documented() {
  sed -n "/^## $1\$/,\$p" "$here/../../docs/run.md" | sed -n "/^\`\`\`$2\$/,/^\`\`\`\$/p" | sed '1d;/^```$/,$d'
}
server_said() { [ -f "$state/said" ] && [ "$(grep -c "^$1\$" "$state/said")" = "${2:-1}" ]; }
nobody_borrows() { [ "$(inside gpumem ps --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["sessions"]))')" = 0 ]; }

installed() {
  install first gpumem || fail 'the broker and its command cannot be installed'
  simulate 1x12GiB
  inside useradd --system server
  command install -m 755 "$here/service/server.py" "$root/usr/bin/my-server"
}

# A unit with a watchdog, a socket, and locks; then the drop-in.
started_by_the_drop_in() {
  inside tee /etc/systemd/system/my-server.socket > /dev/null <<'unit'
[Socket]
ListenStream=/run/my-server.sock
unit
  inside tee /etc/systemd/system/my-server.service > /dev/null <<'unit'
[Service]
Type=notify
ExecStart=/usr/bin/my-server
User=server
StateDirectory=my-server
WatchdogSec=2
Restart=on-failure
RestartSec=0
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX
# Of the simulated GPU, whose memory is files in this folder.
ReadWritePaths=/run/gpumemd
unit
  inside mkdir -p /etc/systemd/system/my-server.service.d
  { documented 'As a service' ini; echo NotifyAccess=all; } |
    inside tee /etc/systemd/system/my-server.service.d/override.conf > /dev/null
  inside systemctl daemon-reload
  inside systemctl start my-server.socket
  inside systemctl start my-server.service > "$work/said" 2>&1 || fail 'the service does not start'
  server_said 'total 8192' || fail "the slice is not what the program sees: $(cat "$state/said")"
  server_said 'held 8192' || fail "the limit does not hold: $(cat "$state/said")"
  server_said 'watchdog True' || fail 'the program would not serve the watchdog'
  server_said 'sockets 1' || fail 'the program did not get the socket of its unit'
  shows 'my-server.service' gpumem ps || fail 'its session does not have the name of the unit'
}

# Beyond the time of the watchdog.
watched() {
  sleep 4
  [ "$(property my-server.service NRestarts)" = 0 ] || fail 'the watchdog has ended it'
}

stopped() {
  inside systemctl stop my-server.service
  server_said end || fail 'the program was not asked to end'
  server_said 'SIGTERM 1' || fail 'the program did not hear of the stop'
  ! grep -q 'SIGTERM 2' "$state/said" || fail 'the program was asked to end twice'
  [ "$(property my-server.service Result)" = success ] || fail 'its end counts as a failure'
  shows 'peak 8' journalctl -o cat -u my-server.service || fail 'there is no account'
  await 'the memory' nobody_borrows
}

restarted() {
  : > "$state/said"
  for round in 1 2 3; do
    inside systemctl restart my-server.service || fail 'the service does not start again'
    server_said 'held 8192' "$round" || fail "not all of the slice after a restart: $(cat "$state/said")"
  done
  ! grep -q 'SIGTERM 2' "$state/said" || fail 'the program was asked to end twice'
  inside kill -KILL "$(property my-server.service MainPID)"
  await 'the service after a crash' server_said 'held 8192' 4
  await 'it is active' inside systemctl --quiet is-active my-server.service
  inside systemctl restart gpumemd.service
  can_be_asked() { inside gpumem ps > "$work/said" 2>&1 && said my-server.service; }
  await 'the same session at the next broker' can_be_asked
  [ "$(property my-server.service NRestarts)" = 1 ] || fail 'the restart of the broker has ended it'
  inside systemctl stop my-server.service
  await 'the memory' nobody_borrows
}

# An image of another make: an interpreter, and nothing of this machine but what it needs itself.
make_image() {
  local image=$root/var/lib/images/my-image file
  mkdir -p "$image"/{proc,dev,tmp,run,usr/bin,usr/lib,etc,var/lib/my-server}
  chmod 1777 "$image/tmp" "$image/var/lib/my-server"
  ln -s usr/lib "$image/lib"
  ln -s usr/lib "$image/lib64"
  local python libc
  python=$(readlink -f /usr/bin/python3)
  libc=$(ldd "$python" | sed -n 's/.*[ \t]\(\/[^ ]*\/libc\.so\.6\) (.*/\1/p')
  cp "$python" "$image/usr/bin/python3"
  cp -r "/usr/lib/$(basename "$python")" "$image/usr/lib/"
  for file in "$python" "/usr/lib/$(basename "$python")"/lib-dynload/_ctypes.*.so; do
    ldd "$file" | sed -n 's/.*[ \t]\(\/[^ ]*\) (.*/\1/p'
    printf '%s\n' "$(dirname "$libc")"/lib{dl.so.2,pthread.so.0}  # what else a C library is made of
  done | sort -u | while read -r file; do cp -L "$file" "$image/usr/lib/"; done
  echo app:x:1234:1234::/:/none > "$image/etc/passwd"
  command install -m 755 "$here/service/server.py" "$image/usr/bin/my-server"
  command install -m 755 "$here/service/docker.sh" "$root/usr/local/bin/docker"
}

contained() {
  make_image
  state=$root/var/lib/images/my-image/var/lib/my-server
  documented 'In a container' '' > "$root/opt/run-container.sh"
  # As user 1234 would, with rights that the real docker gets from its service.
  inside sh -ec 'id() { echo 1234; }; . /opt/run-container.sh' > "$work/said" 2>&1 & local container=$!
  await 'the program in the container' server_said 'sockets none'
  server_said 'total 8192' || fail "the slice is not what the program sees: $(cat "$state/said")"
  server_said 'held 8192' || fail "the limit does not hold: $(cat "$state/said")"
  inside gpumem ps > "$work/shown"
  grep my-image "$work/shown" | grep -q 1234 || fail "it is not charged to the user of the container: $(cat "$work/shown")"
  inside pkill -TERM -u 1234 -f /usr/bin/my-server
  wait "$container" || fail "the container failed: $(cat "$work/said")"
  server_said end || fail 'the program did not end by itself'
  await 'the memory' nobody_borrows
}

# Read by the oldest Compose that is said to take it.
composed() {
  documented 'In a container' yaml |
    GPUMEM_USER=1234:1234 GPUMEM_GROUP=5678 docker-compose -f - config > "$work/said" 2>&1 || fail 'Compose does not take the file'
  for words in 'GPUMEM_LIMIT: 8GiB' "user: '\?1234:1234" "'5678'" '/usr/lib/gpumem/shim:/usr/lib/gpumem/shim:ro'; do
    grep -q -- "$words" "$work/said" || fail "Compose does not see $words: $(cat "$work/said")"
  done
}

boot
provide_packages
for phase in installed started_by_the_drop_in watched stopped restarted contained composed; do
  step "$phase"
  "$phase"
done
printf 'a service and a container borrowed as documented\n'
