#!/bin/sh
# Network namespaces as hosts, to try on one machine what is meant for several. Needs root and iproute2.
#
#   examples/hosts.sh up NAME...     10.77.0.1, 10.77.0.2 and so on, in this order, on one network
#   ip netns exec NAME COMMAND       run something on a host
#   examples/hosts.sh down           the hosts, and whatever still runs on them, are gone
set -eu

net=hosts-net

up() {
    ip netns add "$net"
    ip -n "$net" link add br0 type bridge
    ip -n "$net" link set br0 up
    number=0
    for name in "$@"; do
        number=$((number + 1))
        ip netns add "$name"
        ip -n "$net" link add "port$number" type veth peer name eth0 netns "$name"
        ip -n "$net" link set "port$number" master br0 up
        ip -n "$name" addr add "10.77.0.$number/24" dev eth0
        ip -n "$name" link set eth0 up
        ip -n "$name" link set lo up
        ip -n "$name" route add default dev eth0
        echo "$name is 10.77.0.$number"
    done
}

down() {
    ip netns exec "$net" ip -o link show type veth >/dev/null 2>&1 || return 0
    for name in $(ip netns list | cut -d' ' -f1); do
        address=$(ip -n "$name" -o -4 addr show dev eth0 2>/dev/null || true)
        case "$address" in
        *" 10.77.0."*)
            ip netns pids "$name" | xargs -r kill 2>/dev/null || true
            ip netns del "$name"
            ;;
        esac
    done
    ip netns del "$net"
}

case "${1:-}" in
up) shift; up "$@" ;;
down) down ;;
*) sed -n '2,6p' "$0" >&2; exit 2 ;;
esac
