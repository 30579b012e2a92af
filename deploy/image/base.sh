#!/usr/bin/env bash
# Gives the image's base its name where there is no registry to pull it from: Debian 13's minimal system by debootstrap, into
# podman, as root. Nothing is done if it is there. Also what podman needs inside a container: runc, no cgroup manager, limits
# that may not be raised.
set -euo pipefail
base=${BASE:-docker.io/library/debian:trixie-slim}
if [ ! -e /etc/containers/containers.conf ]; then
    mkdir -p /etc/containers
    # podman lowers its own limit of processes to the kernel's largest process number, and cannot raise it again for a container.
    processes=$(cat /proc/sys/kernel/pid_max)
    hard=$(ulimit -Hu)
    if [ "$hard" != unlimited ] && [ "$hard" -lt "$processes" ]; then processes=$hard; fi
    cat > /etc/containers/containers.conf <<C
[containers]
default_ulimits = ["nofile=$(ulimit -Hn):$(ulimit -Hn)", "nproc=$processes:$processes"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
C
fi
podman image exists "$base" && exit
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase trixie "$root" >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
tar -C "$root" -c . | podman import - "$base" >/dev/null
