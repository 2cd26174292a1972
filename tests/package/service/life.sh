# The life of an installation, one function for each phase; service.sh calls them in turn.
# shellcheck shell=bash

# start_program USER ARGUMENT...: one that knows nothing of gpumem (program.py), until stop_program.
start_program() {
  rm -f "$work/program.in"
  mkfifo "$work/program.in"
  as_user "$1" /usr/bin/python3 /opt/program.py "${@:2}" hold < "$work/program.in" > "$work/program.out" 2>&1 & program=$!
  exec 9> "$work/program.in"
  await 'a program that holds memory' grep -q init= "$work/program.out"
}
stop_program() { exec 9>&-; wait "$program" || fail "a program failed: $(cat "$work/program.out")"; }

# A machine with a driver, and a GPU that somebody uses, before there is anything of gpumem.
busy() {
  inside sh -c 'dpkg-deb -x /opt/gpumem-debs/first/gpumem_*.deb /opt/unpacked && echo /dev/shm/machine > /etc/ld.so.conf.d/nvidia.conf'
  inside /opt/unpacked/usr/bin/gpumem-sim create /dev/shm/machine 1x24GiB > "$work/said" 2>&1 || fail 'no simulated machine'
  inside ldconfig
  start_program nobody take 18432
}

installed() {
  install first gpumem || fail 'the services and the command cannot be installed'  # gpumemd, gpumem and gpumem-history
  for library in libcuda.so.1 libnvidia-ml.so.1; do
    "$here/needed_libraries.py" "$root/usr/lib/gpumem/shim/$library" ${glibc:+"$glibc"} > "$work/said" ||
      fail "the drop-in driver: $(cat "$work/said")"
  done
  for unit in gpumemd.service gpumemd-lane.socket gpumemd-api.socket gpumem-history.service; do
    inside systemctl --quiet is-enabled "$unit" || fail "$unit is not enabled"
  done
  for unit in lane api; do inside systemctl --quiet is-active gpumemd-$unit.socket || fail "$unit does not listen"; done
  [ "$(inside stat -c %U:%G:%a /run/gpumemd/lane.sock)" = root:gpumem:660 ] || fail 'not the group alone may connect'
  # systemd-analyze also checks this machine's own units, and exits with 0 for unknown directives.
  inside systemd-analyze verify --man=no gpumemd.service gpumem-history.service > "$work/said" 2>&1 || true
  ! grep gpumem "$work/said" || fail 'a unit is wrong'
  for unit in gpumemd gpumem-history; do
    inside systemd-analyze security --threshold=30 --no-pager $unit.service > "$work/said" 2>&1 || fail "$unit is exposed"
    tail -n 1 "$work/said"
  done
}

missing() { inside gpumem status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["devices"][0]["missing"] >> 30)'; }
lends_what_there_is() {
  is_serving || fail 'the broker does not start beside a program with 18 of 24 GiB'
  [ "$(missing)" = 17 ] || fail "$(missing) GiB are missing"
  shows 'of the pool of 21.59GiB are missing' journalctl -u gpumemd.service || fail 'the log does not say what is missing'
  inside sh -c 'printf "[[tenant]]\nname = \"root\"\nuser = \"root\"\nguarantee = \"8GiB\"\n" >> /etc/gpumemd/gpumemd.toml'
  inside systemctl restart gpumemd.service || fail 'the broker does not start with a guarantee that is missing'
  inside gpumem check > "$work/said" 2>&1 || true
  said "are missing, because others use the device: python3 (pid"
  said "tenant 'root' has 0B of 8GiB"
  stop_program
  await 'the rest of the pool' test_missing 0
  inside gpumem check > "$work/said" 2>&1 || true  # there are no /dev/nvidia*
  said '2MiB borrowed, mapped and given back'
  ! grep missing "$work/said" || fail 'memory is missing in a whole pool'
  inside sed -i '/^\[\[tenant\]\]/,$d' /etc/gpumemd/gpumemd.toml
}
test_missing() { [ "$(missing)" = "$1" ]; }

left='init=0 total=24576 sockets=0 threads=1 late=False'
# By gpumem system enable, which stays enabled until the packages are purged.
serves_the_machine() {
  local served='init=0 total=22118 sockets=[1-9]* late=False'
  inside useradd carl
  inside usermod -aG gpumem carl
  inside gpumem system enable > "$work/said" 2>&1 || fail 'system mode cannot be enabled'
  start_program carl
  gets "$served"
  inside kill -STOP "$(broker_pid)"
  gets "$left"
  inside kill -CONT "$(broker_pid)"
  inside systemctl --quiet stop "${broker_units[@]}"
  gets "$left"
  inside systemctl start "${broker_units[@]}"
  gets "$served"
  inside sh -c 'dpkg -i /opt/gpumem-debs/first/gpumem_*.deb /opt/gpumem-debs/first/gpumemd_*.deb' > "$work/said" 2>&1 ||
    fail 'an upgrade fails'
  gets "$served"
  echo >&9
  await 'memory for a program that has borrowed since before' grep -q '^another 0$' "$work/program.out"
  stop_program
}
# gets WORDS: what a program of carl's that starts now gets of the device.
gets() {
  local got
  got=$(as_user carl /usr/bin/python3 /opt/program.py 2>&1) || fail "a program fails: $got"
  # shellcheck disable=SC2053  # a pattern
  [[ $got = $1 ]] || fail "a program gets '$got', not '$1'"
}

configured() {
  simulate 1x1GiB
  [ "$(inside stat -c %U "/proc/$(broker_pid)")" = gpumemd ] || fail 'the broker is not its own user'
  await 'a line of the journal that has its level' shows '^serving on' journalctl -p 6..6 -o cat -u gpumemd.service
  inside useradd ann
  inside useradd bob
}

shared() {
  ! as_user ann gpumem status > "$work/said" 2>&1 || fail 'a stranger may connect'
  said 'usermod -aG gpumem ann'
  inside usermod -aG gpumem ann
  inside usermod -aG gpumem bob
  as_user ann gpumem check > "$work/said" 2>&1 || fail "ann cannot borrow: $(cat "$work/said")"
  await 'memory' as_user ann gpumem-example-hold 32MiB
  install first || fail 'the libraries cannot be installed'
  inside /usr/bin/python3 -c 'import gpumem, importlib.metadata as m; assert m.version("gpumemd") == gpumem.__version__' \
    > "$work/said" 2>&1 || fail "Python does not see the distribution gpumemd: $(cat "$work/said")"
  start_keeper bob
  can_borrow || fail 'the second program got nothing'
  inside gpumem ps > "$work/said"
  said bob
}

recorder_pid() { property gpumem-history.service MainPID; }
# Whether USER is shown what OTHER has used.
shows_usage() {
  as_user "$1" gpumem account --since today --csv > "$work/said" 2>&1 && grep -q "\"uid:$(inside id -u "$2")\"" "$work/said"
}
# By gpumem-history, while bob holds memory.
recorded() {
  [ "$(inside stat -c %U "/proc/$(recorder_pid)")" = gpumem-history ] || fail 'the history is not its own user'
  [ "$(inside stat -c %U:%G:%a /run/gpumem-history/history.sock)" = gpumem-history:gpumem:660 ] ||
    fail 'not the group alone may ask the history'
  await "bob's history" shows_usage bob bob
  shows_usage root bob || fail 'root does not see what bob has used'
  ! shows_usage ann bob || fail 'ann sees what bob has used'
  as_user bob gpumem events --since today --no-follow > "$work/said" 2>&1 || fail 'bob gets no events'
  said 'session opened'
}

# By libgpumem-dev, with libgpumem0.
compiled() {
  # shellcheck disable=SC2016  # the words are the inner shell's
  inside sh -c 'cc -std=c99 -o /opt/allocate /opt/allocate.c $(pkg-config --cflags --libs gpumem)' > "$work/said" 2>&1 ||
    fail 'a program cannot be compiled'
  as_user ann /opt/allocate > "$work/said" 2>&1 || fail 'a program that was compiled does not work'
}

keeps_memory() { [ "$(property gpumemd.service NFileDescriptorStore)" -gt 0 ]; }
restarted() {
  local before sockets
  before=$(broker_pid) sockets=$(sockets_since)
  await 'that systemd keeps what is lent' keeps_memory
  inside systemctl restart gpumemd.service
  expect_kept 'when the broker was restarted'
  await 'that the next broker has it' shows 'of [1-9][0-9]* leases [1-9][0-9]* can be handed on' journalctl -o cat -u gpumemd.service
  inside kill -KILL "$(broker_pid)"
  can_borrow || fail 'a program that came between two brokers was not served'
  is_new_broker "$before" || fail 'no new broker'
  [ "$(sockets_since)" = "$sockets" ] || fail 'a socket was opened anew'
  expect_kept 'when the broker was killed'
}

reloaded() {
  inside sh -c 'printf "[[tenant]]\nname = \"ann\"\nuser = \"ann\"\nlimit = \"100MiB\"\n" >> /etc/gpumemd/gpumemd.toml'
  inside systemctl reload gpumemd.service
  await "ann's limit" shows 'ann .*100MiB' gpumem quota
  inside gpumem quota set ann --limit 200MiB > /dev/null
}

# The broker, which is not root, ends a borrower of another user.
escalated() {
  inside sed -i 's/^#lend_guarantees = .*/lend_guarantees = true/; s/^#escalation = "wait"/escalation = "end-session"/
    s/^#reclaim_deadline_ms = .*/reclaim_deadline_ms = 200/' /etc/gpumemd/gpumemd.toml
  inside systemctl reload gpumemd.service
  inside gpumem quota set ann --guarantee 100MiB > /dev/null
  mkfifo "$work/hog.in"
  as_user bob python3 /opt/hog.py < "$work/hog.in" > "$work/hog.out" 2>&1 & local hog=$!
  exec 8> "$work/hog.in"
  await 'a borrower of all that is free' grep -q holds "$work/hog.out"
  can_borrow || fail 'a guarantee was not met'
  exec 8>&-
  ! wait "$hog" || fail 'the borrower was not ended'
  await 'that it was the broker' shows 'SIGTERM sent' journalctl -p warning -u gpumemd.service
}

# A broker that neither dies nor works, as if its deciding thread were stuck.
stuck() {
  inside mkdir -p /run/systemd/system/gpumemd.service.d
  inside sh -c 'printf "[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n" > /run/systemd/system/gpumemd.service.d/quick.conf'
  inside systemctl daemon-reload
  inside systemctl restart gpumemd.service
  await 'a line on how the broker is' shows 'lends .* of 1 GPU' systemctl show -P StatusText gpumemd
  local before
  before=$(broker_pid)
  inside kill -STOP "$before"
  await 'a new broker in place of the stuck one' is_new_broker "$before"
  await 'that it was the watchdog' shows 'Watchdog timeout' journalctl -u gpumemd.service
  expect_kept 'when the broker was stuck'
  inside rm -r /run/systemd/system/gpumemd.service.d
  inside systemctl daemon-reload
}

# With its sockets: a client that comes back would start it again.
broker_units=(gpumemd-lane.socket gpumemd-api.socket gpumemd.service)
# The state folder on a file system of its own that has no room.
disk_full() {
  inside systemctl --quiet stop "${broker_units[@]}"
  inside cp -a /var/lib/gpumemd /var/lib/gpumemd.copy
  inside mount -t tmpfs -o size=64k,mode=750 tmpfs /var/lib/gpumemd
  inside sh -c 'cp -a /var/lib/gpumemd.copy/. /var/lib/gpumemd'
  inside systemctl start "${broker_units[@]}"
  inside sh -c 'cat /dev/zero > /var/lib/gpumemd/ballast 2> /dev/null || true'
  ! inside gpumem quota set ann --limit 300MiB > "$work/said" 2>&1 || fail 'a quota was kept on a full disk'
  said 'No space left'
  can_borrow || fail 'a broker with a full disk does not lend'
  inside systemctl restart gpumemd.service || fail 'a broker does not start with a full disk'
  can_borrow || fail 'a broker that started with a full disk does not lend'
  inside rm /var/lib/gpumemd/ballast
  inside gpumem quota set ann --limit 300MiB > /dev/null || fail 'room on the disk does not help'
  inside systemctl --quiet stop "${broker_units[@]}"
  inside cp -a /var/lib/gpumemd/. /var/lib/gpumemd.copy
  inside umount /var/lib/gpumemd
  inside sh -c 'cp -a /var/lib/gpumemd.copy/. /var/lib/gpumemd && rm -r /var/lib/gpumemd.copy'
  inside systemctl start "${broker_units[@]}"
  expect_kept 'when the disk was full'
}

upgraded_in_place() {
  local before
  before=$(broker_pid)
  inside gpumemd --upgrade > "$work/said" 2>&1 || fail "not upgraded: $(cat "$work/said")"
  said "as pid $before"
  [ "$(broker_pid)" = "$before" ] && is_serving || fail 'it is another process'
  expect_kept 'by the upgrade in place'
  can_borrow || fail 'the broker does not lend after an upgrade in place'
}

upgraded() {
  local before sockets recorder
  before=$(broker_pid) sockets=$(sockets_since) recorder=$(recorder_pid)
  install next || fail 'the later build cannot be installed'
  said 'programs keep the memory that they have'
  is_new_broker "$before" || fail 'the old broker serves'
  [ "$(sockets_since)" = "$sockets" ] || fail 'a socket was opened anew'
  expect_kept 'by the upgrade'
  can_borrow || fail 'the new broker does not lend'
  shows 'ann .*300MiB' gpumem quota || fail 'a quota was lost'
  [ "$(recorder_pid)" != "$recorder" ] || fail 'the old gpumem-history goes on'
  await 'the history after the upgrade' shows_usage bob bob
}

# The old broker goes on where the new one would not start, whichever file its options name.
misconfigured() {
  local before
  before=$(broker_pid)
  inside sh -c 'cp /etc/gpumemd/gpumemd.toml /root/good.toml && echo reserv = 1 >> /etc/gpumemd/gpumemd.toml'
  ! reload > "$work/said" 2>&1 || fail 'a reload of a wrong configuration succeeds'
  shows 'gpumemd.toml:[0-9]+:[0-9]+: unknown key' journalctl -o cat -u gpumemd.service || fail 'the log does not name the line'
  inside mv /etc/gpumemd/gpumemd.toml /etc/gpumemd/other.toml
  inside mv /root/good.toml /etc/gpumemd/gpumemd.toml
  inside sed -i 's|^GPUMEMD_OPTIONS="|&--config /etc/gpumemd/other.toml |' /etc/default/gpumemd
  inside env DEBIAN_FRONTEND=noninteractive dpkg -i /opt/gpumem-debs/next/gpumemd_next.deb > "$work/said" 2>&1 ||
    fail 'a wrong configuration breaks an upgrade'
  said 'other.toml:[0-9]*:[0-9]*: unknown key'
  said 'not restarted, the old broker goes on'
  [ "$(broker_pid)" = "$before" ] && is_serving || fail 'the broker went'
  inside sed -i 's|--config /etc/gpumemd/other.toml ||' /etc/default/gpumemd
  inside rm /etc/gpumemd/other.toml
}

removed() {
  end_keeper
  start_keeper bob  # the broker that is to be removed has lent it its memory
  inside sh -c 'echo GPUMEMD_REMOVE_WAIT=1 >> /etc/default/gpumemd'
  ! apt remove gpumemd || fail 'removed under a program that holds memory'
  said 'bob'
  said 'not removed: end these programs'
  is_serving || fail 'a removal that was refused ended the broker'
  can_borrow || fail 'a removal that was refused left a broker that does not lend'
  inside sh -c 'echo GPUMEMD_REMOVE_BUSY=remove >> /etc/default/gpumemd'
  apt remove gpumemd || fail 'cannot be removed'
  expect_kept 'by the removal'
  end_keeper
  ! inside systemctl --quiet is-active gpumemd.service gpumemd-lane.socket gpumemd-api.socket || fail 'still active'
  ! inside test -e /run/gpumemd/lane.sock || fail 'its socket is left'
  inside test -e /var/lib/gpumemd/quotas.toml || fail 'a removal takes what was set'
  inside test -e /etc/gpumemd/gpumemd.toml || fail 'a removal takes the configuration'
  shows_usage bob bob || fail 'the history needs a broker'
  apt remove gpumem-history || fail 'the history cannot be removed'
  ! inside systemctl --quiet is-active gpumem-history.service || fail 'the history is still active'
}

# After a removal the last package that was configured counts as an older one.
reinstalled() {
  install next || fail 'cannot be installed again'
  is_serving || fail 'an installation after a removal does not serve'
  shows 'ann .*300MiB' gpumem quota || fail 'a quota did not outlive the removal'
  await 'the history before the removal' shows_usage bob bob
}

purged() {
  apt purge gpumemd gpumem gpumem-history libgpumem0 libgpumem-dev python3-gpumem || fail 'cannot be purged'
  local found
  found=$(inside sh -c 'ls -d /var/lib/gpumemd /run/gpumemd /etc/gpumemd /etc/gpumem /etc/default/gpumemd /var/lib/gpumem-history /run/gpumem-history \
    /etc/ld.so.conf.d/00-00-gpumem.conf /usr/lib/gpumem 2> /dev/null; ldconfig -p | grep gpumem/system; \
    find /etc/systemd /usr/lib/systemd /var/lib/systemd -name "gpumem[d-]*"; dpkg -l "*gpumem*" 2> /dev/null | grep "^.[^n]"' || true)
  [ -z "$found" ] || fail "left behind: $found"
  gets "$left"
}
