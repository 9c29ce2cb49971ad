# syntax=docker/dockerfile:1
FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/reconciler
# Dependencies first: they change less often than the code.
COPY requirements-runtime.txt ./
RUN /opt/reconciler/bin/pip install --require-hashes --requirement requirements-runtime.txt
COPY requirements-build.txt ./
RUN pip install --require-hashes --requirement requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY reconciler/ reconciler/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/reconciler/bin/pip install --no-deps dist/*.whl

FROM python:3.11-slim-bookworm AS daemon
COPY --from=build /opt/reconciler /opt/reconciler
ENV PATH=/opt/reconciler/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["reconciler"]
