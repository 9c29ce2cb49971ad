# Every target works alone on a fresh clone: what it needs is created first.
SHELL := /usr/bin/env bash
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?= $(or $(shell command -v python3.11 || command -v python3),python3)
# The servers of the tests sync to disk after every write: in memory, where there is room, that costs nothing.
MEMORY := $(if $(and $(wildcard /dev/shm),$(shell test -w /dev/shm && echo yes)),TMPDIR=/dev/shm)
PYTEST := $(MEMORY) $(BIN)/pytest -n 2 --dist loadgroup
MATRIX ?= 2.11.11,2.12.8,2.14.6,2.15.1
SOAK_RUNS ?= 20
SOAK_TESTS ?= $(wildcard tests/test_support.py tests/jetstream tests/engine tests/acceptance)

.PHONY: help setup spark run test test-matrix check format bench docs soak lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Create .venv and install everything, hash-checked

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reconciler needs Python 3.11 or newer; found $$($(PYTHON) --version 2>&1 || true). Try: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

spark: $(VENV)/.spark ## Add Spark, hash-checked, for the tests of the planner on Spark (needs Java 17)

$(VENV)/.spark: requirements-spark.txt requirements-spark-build.txt | $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-spark-build.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-build-isolation --requirement requirements-spark.txt
	@touch $@

run: setup ## Start NATS and keep the example manifests applied there, until Ctrl-C
	@$(BIN)/reconciler run -f manifests --env dev --embedded

test: setup spark ## All tests, on the newest nats-server and 2.14
	$(PYTEST)

test-matrix: setup ## What depends on the server, on every supported version and on a cluster
	RECONCILER_TEST_VERSIONS=$(MATRIX) $(PYTEST) -m matrix

check: setup ## Lint, types, layers, dependencies, generated docs, chart, Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry reconciler
	$(if $(wildcard tools/generate_docs.py),$(BIN)/python tools/generate_docs.py --check)
	$(if $(wildcard charts/reconciler),$(BIN)/helm lint charts/reconciler)
	$(BIN)/hadolint Dockerfile

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Measure the limits on real servers, one line of JSON each (QUICK=1: small sizes)
	@$(MEMORY) QUICK=$(QUICK) $(BIN)/python -m tools.bench

docs: setup ## Write the generated docs anew
	$(if $(wildcard tools/generate_docs.py),$(BIN)/python tools/generate_docs.py,@echo "no generated docs yet")

soak: setup ## Repeat the tests that depend on timing (SOAK_RUNS, SOAK_TESTS)
	for run in $$(seq $(SOAK_RUNS)); do echo "run $$run of $(SOAK_RUNS)"; $(PYTEST) -q $(SOAK_TESTS) || exit 1; done

lock: ## Write the lock files anew (needs uv)
	tools/lock.sh

clean: ## Remove the environment, caches and the data of `make run`
	rm -rf $(VENV) .reconciler-data build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
