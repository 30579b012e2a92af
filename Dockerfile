# The image of a sidecar: a wheel built in the first stage, a slim last one that holds only what runs.
# Works on a read-only root: the only path ever written is LINKERD2_PROXY_IDENTITY_DIR, and that may be absent.
FROM debian:trixie-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY proxy ./proxy
# The compiled wheel is the supported fast path; without a compiler the same source would run interpreted.
RUN python3 -m venv /tmp/build \
    && /tmp/build/bin/pip install --no-cache-dir 'setuptools>=77' wheel mypy types-protobuf types-PyYAML \
    && SPONSON_COMPILE=1 /tmp/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist .
RUN python3 -m venv /opt/sponson \
    && /opt/sponson/bin/pip install --no-cache-dir /dist/*.whl \
    && /opt/sponson/bin/pip uninstall --yes pip

FROM debian:trixie-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/sponson /opt/sponson
ENV PATH=/opt/sponson/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ENV LINKERD2_PROXY_LOG=warn,linkerd=info LINKERD2_PROXY_LOG_FORMAT=plain
USER 2102
EXPOSE 4140 4143 4190 4191
CMD ["sponson", "run"]
