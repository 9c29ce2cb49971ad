# syntax=docker/dockerfile:1
# Two images of one version: `daemon` (the default, without Java) and `planner` (with Java and Spark).
# What is installed is what the lock files name, checked by its hash; nothing is compiled.

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/reconciler/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
LABEL org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/jetstream-reconciler/reconciler" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim-bookworm"

FROM base AS own
WORKDIR /src
COPY requirements-build.txt ./
RUN --mount=type=cache,target=/root/.cache/pip pip install --require-hashes --requirement requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY reconciler/ reconciler/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && python -m venv --without-pip /opt/reconciler \
    && pip --python /opt/reconciler/bin/python install --no-cache-dir --no-deps dist/*.whl

# What others wrote changes less often than our own code, and is a layer of its own. What has no wheel (nkeys, Spark) is packed by the
# build tools that are locked, too, and they stay behind.
FROM base AS daemon-dependencies
WORKDIR /src
RUN python -m venv --without-pip /opt/reconciler
COPY requirements-build.txt requirements-runtime.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --require-hashes --requirement requirements-build.txt \
    && pip wheel --no-deps --no-build-isolation --require-hashes --wheel-dir /wheels --requirement requirements-runtime.txt \
    && pip --python /opt/reconciler/bin/python install --no-deps --no-index /wheels/*.whl

FROM daemon-dependencies AS planner-dependencies
WORKDIR /src
COPY requirements-planner.txt requirements-spark.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    pip wheel --no-deps --no-build-isolation --require-hashes --wheel-dir /wheels \
        --requirement requirements-planner.txt --requirement requirements-spark.txt \
    && pip --python /opt/reconciler/bin/python install --no-deps --no-index /wheels/*.whl

FROM base AS planner
# Java for Spark; git to commit a plan, ssh to push it. Debian keeps no older versions, so none can be named.
# Java's package wants to link its manual pages, which a slim image has no place for.
# hadolint ignore=DL3008
RUN mkdir --parents /usr/share/man/man1 \
    && apt-get update \
    && DEBIAN_FRONTEND=noninteractive \
       apt-get install --yes --no-install-recommends git openjdk-17-jre-headless openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 65532 reconciler \
    && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin reconciler
ENV HOME=/tmp SPARK_LOCAL_DIRS=/tmp
COPY --from=planner-dependencies /opt/reconciler /opt/reconciler
COPY --from=own /opt/reconciler /opt/reconciler
LABEL org.opencontainers.image.title="reconciler planner" \
      org.opencontainers.image.description="Plans partitions onto workers, with Spark, into manifests"
USER 65532:65532
ENTRYPOINT ["reconciler"]

FROM base AS daemon
COPY --from=daemon-dependencies /opt/reconciler /opt/reconciler
COPY --from=own /opt/reconciler /opt/reconciler
LABEL org.opencontainers.image.title="reconciler" \
      org.opencontainers.image.description="A GitOps reconciler for NATS JetStream that never loses a message while it changes things"
USER 65532:65532
ENTRYPOINT ["reconciler"]
