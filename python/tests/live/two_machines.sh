#!/bin/bash
# Connects four network namespaces, servers, gateway, terminal and users, and runs COMMAND in the namespace of this script.
#
#   unshare --mount --net --pid --mount-proc --fork --kill-child bash two_machines.sh COMMAND…
set -eu -o pipefail
mount --make-rprivate /
mkdir -p /run/netns
mount -t tmpfs bentpipe /run/netns
for n in servers gateway terminal users; do ip netns add $n; ip -n $n link set lo up; done
# join SUBNET NAMESPACE DEVICE NAMESPACE DEVICE: SUBNET.1 is the first one's address, SUBNET.2 the second one's.
join() {
  ip -n "$2" link add "$3" type veth peer name "$5" netns "$4"
  ip -n "$2" addr add "$1.1/24" dev "$3"; ip -n "$2" link set "$3" up
  ip -n "$4" addr add "$1.2/24" dev "$5"; ip -n "$4" link set "$5" up
}
join 10.1.0 gateway eth0 servers eth0
join 10.2.0 gateway sat0 terminal sat0
join 10.3.0 terminal eth1 users eth0
for n in gateway terminal; do ip netns exec $n sysctl -q net.ipv4.ip_forward=1; done
ip -n gateway route add 10.3.0.0/24 via 10.2.0.2
ip -n servers route add default via 10.1.0.1
ip -n terminal route add default via 10.2.0.1
ip -n users route add default via 10.3.0.1
"$@"
