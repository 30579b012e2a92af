#!/usr/bin/env bash
# Builds the image with podman, buildah or docker, whichever is there: deploy/image/build.sh [TAG] [BUILD ARGUMENT...]
# BUILDER chooses one; BASE, COMPILE, REVISION are arguments of the Dockerfile; PIP_CERT is a CA file for the package index, which
# docker cannot mount into a build: there a base that has the file, and --build-arg PIP_CERT=/path/in/the/base.
set -euo pipefail
cd "$(dirname "$0")/../.."
tag=${1:-sponson}
shift || true
builder=${BUILDER:-}
for candidate in podman buildah docker; do
    [ -n "$builder" ] || ! command -v "$candidate" >/dev/null || builder=$candidate
done
[ -n "$builder" ] || { echo 'an image takes podman, buildah or docker' >&2; exit 1; }
revision=${REVISION:-$(git rev-parse HEAD 2>/dev/null || echo unknown)}
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' proxy/__init__.py)
arguments=(--network host --tag "$tag" --build-arg "REVISION=$revision" --build-arg "VERSION=$version")
for name in BASE COMPILE; do
    [ -z "${!name:-}" ] || arguments+=(--build-arg "$name=${!name}")
done
# Times in the image are those of the commit, so that the same commit gives the same layers.
if [ "${builder##*/}" = docker ]; then
    # Its older builder loses the capabilities of files that it copies from one stage to another.
    export DOCKER_BUILDKIT=1
else
    arguments+=(--timestamp "${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}")
    if [ -n "${PIP_CERT:-}" ] && [ -f "$PIP_CERT" ]; then
        arguments+=(--volume "$PIP_CERT:/etc/build-ca.pem:ro" --build-arg PIP_CERT=/etc/build-ca.pem)
    fi
fi
exec "$builder" build "${arguments[@]}" "$@" .
