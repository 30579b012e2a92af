# The image of a sidecar. The first stage builds the wheel and gathers what runs; the last one is that and nothing else:
# no shell, no package manager, no compiler. It works as any user, on a read-only root, with no capability and without HOME.
#
# BASE is a name so that it can be built where there is no registry; release builds give it with its digest
# (make image BASE=docker.io/library/debian@sha256:...). COMPILE=0 leaves mypyc out: minutes faster to build, slower to run.
ARG BASE=docker.io/library/debian:trixie-slim
FROM ${BASE} AS tools
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        binutils gcc iptables libc6-dev libcap2-bin libffi8 libstdc++6 python3-dev python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# Where a proxy with a certificate of its own stands before the package index: the path that its CA file is mounted at.
ARG PIP_CERT=
COPY deploy/image/build.lock ./
RUN python3 -m venv /tmp/build && /tmp/build/bin/pip install --no-cache-dir --require-hashes -r build.lock

FROM tools AS wheel
COPY pyproject.toml setup.py sponson.py README.md LICENSE ./
COPY proxy ./proxy
ARG COMPILE=1
RUN test "$COMPILE" = 0 || export SPONSON_COMPILE=1; \
    /tmp/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist .

FROM tools AS root
ARG PIP_CERT=
COPY requirements.lock ./
ENV SITE=/image/usr/local/lib/python3.13/dist-packages
RUN /tmp/build/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: --no-compile \
        --target $SITE -r requirements.lock \
    && rm -rf $SITE/bin && find $SITE -name '*.so*' -exec strip --strip-unneeded {} +
COPY deploy/image/collect.py ./
RUN python3 collect.py /image
COPY LICENSE deploy/image/launcher.c deploy/image/sbom.py ./
COPY deploy/image/entry ./entry
COPY --from=wheel /dist /dist
# By its name and not by its file: pip would note the file's hash, which is another one each time.
RUN /tmp/build/bin/pip install --no-cache-dir --no-deps --no-compile --no-index --find-links /dist --target $SITE sponson \
    && rm -rf $SITE/bin && find $SITE -maxdepth 1 -name '*mypyc*.so' -exec strip --strip-unneeded {} + \
    && install -d /image/usr/lib/linkerd /image/usr/lib/sponson /image/usr/share/sponson \
    && install -m 755 entry/sponson /image/usr/bin/ \
    && install -m 755 entry/linkerd* /image/usr/lib/linkerd/ \
    && install -m 755 entry/proxy-init.py /image/usr/lib/sponson/ \
    && gcc -Os -Wall -Werror -s -o /image/usr/lib/linkerd/linkerd2-proxy-init launcher.c \
    && install -m 644 LICENSE /image/usr/lib/linkerd/LICENSE \
    && PYTHONPATH=$SITE python3 -c 'import proxy; print(f"sponson {proxy.__version__}")' > /image/usr/lib/linkerd/linkerd2-proxy-version.txt \
    && PYTHONPATH=$SITE python3 sbom.py /image > /image/usr/share/sponson/sbom.cdx.json \
    && : 'bytecode is judged by nothing at start: sources in an image do not change' \
    && find /image -name __pycache__ -prune -exec rm -rf {} + \
    && python3 -m compileall -q --invalidation-mode unchecked-hash -s /image /image/usr/lib/python3.13 $SITE \
    && setcap cap_net_admin,cap_net_raw+eip /image/usr/sbin/xtables-nft-multi \
    && setcap cap_net_admin,cap_net_raw+eip /image/usr/sbin/xtables-legacy-multi \
    && setcap cap_net_admin,cap_net_raw+p /image/usr/lib/linkerd/linkerd2-proxy-init
# In a file as well as in a label: a builder that keeps layers takes the layer of a label from the build of an earlier commit
# (its cache does not know the values of arguments there), but not one whose files have changed.
ARG REVISION=unknown
RUN echo "$REVISION" > /image/usr/share/sponson/revision

FROM scratch AS sponson
COPY --from=root /image /
ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
ENV LINKERD2_PROXY_LOG=warn,linkerd=info LINKERD2_PROXY_LOG_FORMAT=plain
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG BASE
LABEL org.opencontainers.image.title="Sponson" \
    org.opencontainers.image.description="A service-mesh sidecar proxy, wire-compatible with Linkerd's" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.base.name="${BASE}"
USER 2102
EXPOSE 4140 4143 4190 4191
# A command, not an entrypoint, so that `podman run sponson sponson demo` is what it says; a pod that names no command runs it.
CMD ["/usr/lib/linkerd/linkerd2-proxy-identity"]
