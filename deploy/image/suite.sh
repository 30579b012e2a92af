#!/usr/bin/env bash
# Runs the suite inside the image, on the image's Python and its compiled wheel: deploy/image/suite.sh [IMAGE] [PYTEST ARGUMENT...]
# What the tests need beside the product, a shell included, is in layers of their own and comes last on both paths. Tests that
# need another program are skipped. WORKERS says how many processes share the work (one a core).
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${1:-sponson}
shift || true
builder=$(command -v podman || command -v docker) || { echo 'this takes podman or docker' >&2; exit 1; }
scratch=$(mktemp -d)
name=sponson-suite-$$
trap 'rm -rf "$scratch"; "$builder" rm --force "$name" >/dev/null 2>&1 || true' EXIT
python3 - > "$scratch/dev.txt" <<'P'
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["dev"], sep="\n")
P
cat > "$scratch/Dockerfile" <<P
FROM ${BASE:-docker.io/library/debian:trixie-slim} AS dev
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends busybox-static python3-pip
ARG PIP_CERT=
COPY dev.txt .
RUN pip install --no-cache-dir --target /opt/tests -r dev.txt && mkdir -p /path && echo /opt/tests > /path/tests.pth
RUN mkdir /opt/bin && cp /usr/bin/busybox /opt/bin && for name in sh env cat echo touch true false; do ln -s busybox /opt/bin/\$name; done
FROM $image
COPY --from=dev /opt/tests /opt/tests
COPY --from=dev /opt/bin/ /usr/bin/
COPY --from=dev /path/tests.pth /usr/local/lib/python3.13/dist-packages/
USER 0
P
arguments=(--network host --tag "$image-suite")
if [ "${builder##*/}" = podman ] && [ -n "${PIP_CERT:-}" ] && [ -f "$PIP_CERT" ]; then
    arguments+=(--volume "$PIP_CERT:/etc/build-ca.pem:ro" --build-arg PIP_CERT=/etc/build-ca.pem)
fi
"$builder" build "${arguments[@]}" "$scratch"
# A process that its parent has left behind belongs to the container's first, which --init makes one that fetches its status.
limit_s=${SUITE_TIMEOUT_S:-2400}
status=0
timeout --signal=INT --kill-after=60 "$limit_s" \
    "$builder" run --rm --init --name "$name" --env PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 --volume "$PWD/tests:/suite/tests:ro" --volume "$PWD/pyproject.toml:/suite/pyproject.toml:ro" \
    --tmpfs /tmp --workdir /suite "$image-suite" \
    python3 -m pytest -q -p pytest_timeout -p pytest_benchmark.plugin -p _hypothesis_pytestplugin -p xdist.plugin -p no:cacheprovider \
    -n "${WORKERS:-auto}" --dist loadscope --no-loadscope-reorder --ignore tests/architecture --ignore tests/exercises --ignore tests/image --ignore tests/measure --ignore tests/recordings --ignore tests/systemd --ignore tests/tutorials "$@" || status=$?
if [ "$status" = 124 ] || [ "$status" = 137 ]; then
    echo "$0: the suite in the image had not ended after $limit_s s; lines above that begin with NOT ENDED name the tests that were running" >&2
fi
exit "$status"
