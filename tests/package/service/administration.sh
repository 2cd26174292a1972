# Days of an administrator, one function for each; service.sh calls them in turn.
# shellcheck shell=bash

# The log lines of the present broker itself.
broker_log() { inside journalctl -o cat "$@" _COMM=gpumemd _SYSTEMD_INVOCATION_ID="$(property gpumemd.service InvocationID)"; }
logged() { broker_log > "$work/shown" && grep -qE -- "$1" "$work/shown"; }
with_options() {
  inside sed -i "s|^GPUMEMD_OPTIONS=.*|GPUMEMD_OPTIONS=\"$1\"|" /etc/default/gpumemd
  inside systemctl restart gpumemd.service || fail "the broker does not start with $1"
}
reload() { inside systemctl reload gpumemd.service; }

# The driver goes, as by an upgrade of it, and comes back.
driverless() {
  inside sh -c 'mv /etc/ld.so.conf.d/nvidia.conf /root && ldconfig'
  inside systemctl restart gpumemd.service || fail 'a broker without a driver is none'
  local status=0
  inside gpumem status > "$work/said" 2>&1 || status=$?
  [ $status = 3 ] || fail "status ends with $status without a driver"
  said 'waits for the driver: the NVIDIA driver was not found'
  shows 'waits for the driver' systemctl show -P StatusText gpumemd || fail 'systemctl status does not say so'
  await 'the line of the log' logged 'waits for the driver'
  [ "$(broker_log | wc -l)" = 1 ] || fail "more than one line: $(broker_log)"
  inside sh -c 'mv /root/nvidia.conf /etc/ld.so.conf.d && ldconfig'
  await 'a broker with the driver that came' is_serving
}

can_read_metrics() {
  as_user "$1" python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/run/gpumemd/metrics.sock")' > "$work/said" 2>&1
}
# The broker with every key of its configuration, as the unit confines it.
every_key() {
  inside sh -c 'groupadd readers && groupadd keepers && useradd ada -G gpumem,readers && useradd kay -G gpumem,keepers'
  inside cp /etc/gpumemd/gpumemd.toml /root/good.toml
  local uuid
  uuid=$(inside gpumem status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["devices"][0]["uuid"])')
  sed "s/UUID\"/$uuid\"/" "$here/service/every_key.toml" > "$root/opt/every_key.toml"
  inside cp /opt/every_key.toml /etc/gpumemd/gpumemd.toml
  inside python3 /opt/every_key.py /etc/gpumemd/gpumemd.toml > "$work/said" 2>&1 || fail 'not every key is tried'
  inside systemctl restart gpumemd.service || fail 'the broker does not start with every key'
  is_serving || fail 'the broker does not serve with every key'
  await 'the last line of the start' logged '^serving on'
  [ -z "$(broker_log -p warning | grep -v 'is lent without fabric handles')" ] || fail "a key has no effect: $(broker_log -p warning)"
  can_read_metrics ada || fail 'a member of the group cannot read the metrics'
  ! can_read_metrics kay || fail 'others can read the metrics'
  as_user kay gpumem quota set ada --limit 100MiB > "$work/said" 2>&1 || fail 'a member of admin_group cannot set a quota'
  inside python3 -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:9400/metrics")' > "$work/said" 2>&1 ||
    fail 'the port of the metrics does not answer'
  as_user kay gpumem quota reset ada > /dev/null
  inside mv /root/good.toml /etc/gpumemd/gpumemd.toml
  inside systemctl restart gpumemd.service
}

# Users and groups go while tenants name them, and come.
accounts() {
  inside useradd dora
  inside groupadd crew
  inside sh -c 'printf "[[tenant]]\nname = \"%s\"\n%s = \"%s\"\nguarantee = \"10MiB\"\n" \
    dora user dora crew group crew >> /etc/gpumemd/gpumemd.toml'
  reload || fail 'tenants cannot be added'
  inside userdel dora
  inside groupdel crew
  with_options '--simulate 1x1GiB --look-again-ms 200'
  is_serving || fail 'nobody is served for a user who is gone'
  await 'a warning' logged "tenant 'dora' waits: this machine has no user 'dora'"
  logged "tenant 'crew' waits: this machine has no group 'crew'" || fail 'a group is not missed'
  reload || fail 'users who are gone block a reload'
  inside useradd dora
  await 'a user who has come' logged "tenant 'dora': this machine has user 'dora' now"
  inside sh -c 'printf "[[tenant]]\nname = \"eve\"\nuser = \"evve\"\n" >> /etc/gpumemd/gpumemd.toml'
  ! reload > "$work/said" 2>&1 || fail 'a reload takes a user who was never there'
  shows "tenant 'eve': there is no user 'evve'" journalctl -o cat -u gpumemd.service || fail 'the log does not name the user'
  inside sed -i '/^\[\[tenant\]\]/,$d' /etc/gpumemd/gpumemd.toml
  with_options '--simulate 1x1GiB'
}
