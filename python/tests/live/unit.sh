#!/bin/bash
# Starts systemd as process 1 of separate namespaces on a temporary overlay of the file system. It runs
# deploy/bentpipe-gateway@.service in a small network. Observations are written to OUT/facts, one `name value` per line.
#
#   unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child bash unit.sh GATEWAY-PROGRAM DEPLOY-FOLDER OUT PYTHON PREFIX
#
# PYTHON is an interpreter outside any virtual environment, PREFIX the folder of its library.
set -eu -o pipefail

boot() {
  program=$1 deploy=$2 out=$3 python=$4 prefix=$5 self=$6
  mount --make-rprivate /
  mount -t tmpfs bentpipe "$out/system"
  mkdir "$out"/system/{changes,scratch,all}
  # Relative paths, because a comma or colon in a path would separate options.
  (cd "$out/system" && mount -t overlay bentpipe all -o lowerdir=/,upperdir=changes,workdir=scratch)
  root=$out/system/all
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  mount -t tmpfs tmpfs "$root/tmp"
  # The interpreter may be hidden by the new /tmp or be on another file system than the overlay.
  if ! [ -x "$root$python" ]; then mkdir -p "$root$prefix"; mount --bind "$prefix" "$root$prefix"; fi
  mkdir -p "$root/out" "$root/etc/bentpipe" "$root/etc/terminal" "$root/usr/local/bin" "$root/etc/systemd/system"
  mount --bind "$out" "$root/out"
  cp "$program" "$root/usr/local/bin/bentpipe-gateway"
  cp "$deploy/gateway.toml" "$root/etc/bentpipe/"
  cp "$deploy/terminal.toml" "$root/etc/terminal/"
  cp "$deploy/bentpipe-gateway@.service" "$root/etc/systemd/system/"
  cp "$self" "$root/driver.sh"
  ln -s "$python" "$root/python"
  printf '%s\n' '[Unit]' DefaultDependencies=no After=systemd-journald.service \
    '[Service]' Type=oneshot "ExecStart=/bin/bash /driver.sh drive" >"$root/etc/systemd/system/driver.service"
  printf '%s\n' '[Unit]' DefaultDependencies=no AllowIsolate=yes 'Wants=systemd-journald.service driver.service' \
    >"$root/etc/systemd/system/driver.target"
  cd "$root"
  export container=bentpipe
  exec chroot "$root" /lib/systemd/systemd --system --unit=driver.target --show-status=0 --log-target=console
}

unit=bentpipe-gateway@gateway
fact() { echo "$*" >>/out/facts; }
main() { systemctl show -p MainPID --value "$unit"; }
state() { systemctl is-active "$unit" || true; }
restarts() { systemctl show -p NRestarts --value "$unit"; }
read_url='import sys, urllib.request as u; sys.stdout.buffer.write(u.urlopen(sys.argv[2], timeout=float(sys.argv[1])).read())'
# get SECONDS URL [COMMAND…]: prints the content of URL; COMMAND runs the request, for example in a namespace.
get() { "${@:3}" /python -c "$read_url" "$1" "$2"; }
gauge() { get 60 http://127.0.0.1:9180/metrics | awk -v name="$1" '$1 == name { print $2 }'; }
rules() { { iptables-save; ip rule; } | grep -c -e bentpipe -e 'proto 98' || true; }
fetch() { get 60 http://10.1.0.2:8000/blob ip netns exec clients | sha256sum | cut -d' ' -f1; }
# until_ COMMAND…: waits until the command succeeds; the time limit of the test ends an endless wait.
until_() { until "$@"; do sleep 0.1; done; }
are_split() { [ "$(gauge 'bentpipe_connections_total{event="accepted"}')" -ge "$1" ]; }
bypasses_pep() { [ "$(fetch)" = "$1" ]; }
is_up() { [ "$(gauge bentpipe_spacelink_up)" = 1 ]; }
is_restarted() { [ "$(main)" != "$1" ] && [ "$(main)" != 0 ] && [ "$(state)" = active ]; }

drive() {
  exec >/out/log 2>&1
  set -x
  trap 'systemctl poweroff -ff' EXIT
  sysctl -q net.ipv4.ip_forward=1
  ip link set lo up
  for n in servers terminal clients; do ip netns add $n; ip -n $n link set lo up; done
  ip netns exec terminal sysctl -q net.ipv4.ip_forward=1
  ip link add eth0 type veth peer name eth0 netns servers
  ip link add sat0 type veth peer name sat0 netns terminal
  ip -n terminal link add eth1 type veth peer name eth0 netns clients
  ip addr add 10.1.0.1/24 dev eth0; ip link set eth0 up
  ip addr add 10.2.0.1/24 dev sat0; ip link set sat0 up
  ip -n servers addr add 10.1.0.2/24 dev eth0; ip -n servers link set eth0 up
  ip -n terminal addr add 10.2.0.2/24 dev sat0; ip -n terminal link set sat0 up
  ip -n terminal addr add 10.3.0.1/24 dev eth1; ip -n terminal link set eth1 up
  ip -n clients addr add 10.3.0.2/24 dev eth0; ip -n clients link set eth0 up
  ip route add 10.3.0.0/24 via 10.2.0.2
  ip -n servers route add default via 10.1.0.1
  ip -n terminal route add default via 10.2.0.1
  ip -n clients route add default via 10.3.0.1
  bentpipe-gateway keygen /etc/bentpipe/keys
  cp -a /etc/bentpipe/keys /etc/terminal/
  head -c 1000000 /dev/urandom >/srv/blob
  ip netns exec servers /python -m http.server 8000 --bind 10.1.0.2 --directory /srv \
    >/out/servers.log 2>&1 &
  ip netns exec terminal bentpipe-gateway run /etc/terminal/terminal.toml >/out/terminal.log 2>&1 &
  fact blob "$(sha256sum </srv/blob | cut -d' ' -f1)"

  # Type=notify: the service is ready when this returns.
  systemctl start $unit
  fact started "$(state)"
  until_ is_up
  until_ eval 'get 60 http://10.1.0.2:8000/ ip netns exec clients >/dev/null'
  fact split "$(fetch)"
  until_ are_split 2
  fact connections "$(gauge 'bentpipe_connections_total{event="accepted"}')"
  fact capabilities "$(awk '/^CapEff/ { print $2 }' /proc/"$(main)"/status)"
  fact seccomp "$(awk '/^Seccomp:/ { print $2 }' /proc/"$(main)"/status)"
  fact client "$(grep -c '^10.3.0.2 ' /out/servers.log)"
  fact rules "$(rules)"

  first=$(main)
  sed -i 's/"20 Mbps"/"10 Mbps"/' /etc/bentpipe/gateway.toml
  systemctl reload $unit
  until_ eval '[ "$(gauge bentpipe_capacity_bytes_per_second)" = 1250000 ]'
  fact reloaded "$(gauge bentpipe_capacity_bytes_per_second)"
  fact same "$([ "$(main)" = "$first" ] && echo yes || echo no)"

  kill -KILL "$first"
  until_ is_restarted "$first"
  fact killed "$(state) $(restarts)"
  second=$(main)
  kill -STOP "$second"
  until_ is_restarted "$second"
  fact hung "$(state) $(restarts)"
  until_ is_up
  fact again "$(fetch)"

  # With an invalid configuration the service is not restarted forever and leaves no rules.
  third=$(main)
  echo 'nonsense = 1' >>/etc/bentpipe/gateway.toml
  kill -KILL "$third"
  until_ eval '[ "$(state)" = failed ]'
  fact broken "$(state) $(systemctl show -p ExecMainStatus --value $unit) $(restarts) $(rules)"
  sed -i '/nonsense/d' /etc/bentpipe/gateway.toml
  systemctl reset-failed $unit
  systemctl start $unit
  fact repaired "$(state)"
  systemctl stop $unit
  fact stopped "$(systemctl is-active $unit || true) $(rules)"
  # The terminal notices the stop, and new connections bypass the PEP.
  until_ bypasses_pep "$(sha256sum </srv/blob | cut -d' ' -f1)"
  fact unsplit "$(fetch)"
  journalctl --no-pager -u $unit >/out/journal
}

if [ "$1" = drive ]; then drive; else boot "$1" "$2" "$3" "$4" "$5" "$(realpath "$0")"; fi
