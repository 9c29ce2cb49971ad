# Every target works alone on a fresh clone: what it needs is created first.
SHELL := /usr/bin/env bash
VENV := .venv
BIN := $(VENV)/bin
# Two stamps: `make run` installs only what runs, everything else is on top of that.
RUNS := $(VENV)/.runs
READY := $(VENV)/.ready
SPARK := $(VENV)/.spark
PYTHON ?= $(or $(shell command -v python3.11 || command -v python3),python3)
# Servers sync to disk after every write: in memory, where there is room, that costs nothing.
MEMORY := $(if $(and $(wildcard /dev/shm),$(shell test -w /dev/shm && echo yes)),TMPDIR=/dev/shm)
TESTS := $(BIN)/python -m tools.run_tests
ROOM ?=
# Spark starts only with Java 17 or newer; without it the tests of the planner on Spark are skipped and named at the end.
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
JAVA_MAJOR = $(shell $(JAVA) -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1)
SPARK_TESTS = $(if $(shell test "0$(JAVA_MAJOR)" -ge 17 && echo yes),$(SPARK))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
MATRIX ?= 2.11.11,2.12.8,2.14.6,2.15.1
SOAK_RUNS ?= 20
SOAK_ROOMS ?= test_support.py jetstream engine acceptance

.PHONY: help setup spark run test test-all test-matrix test-kube test-images check format bench docs soak mutants lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Create .venv and install everything, hash-checked

$(RUNS): requirements-runtime.txt requirements-embedded.txt requirements-build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reconciler needs Python 3.11 or newer; found $$($(PYTHON) --version 2>&1 || true). Try: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes $(addprefix --requirement ,$(filter %.txt,$^))
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(READY): requirements.txt $(RUNS)
	$(INSTALL) --require-hashes --requirement requirements.txt
	@touch $@

spark: $(SPARK) ## Add Spark, hash-checked, for the tests of the planner on Spark (needs Java 17)

$(SPARK): requirements-spark.txt | $(READY)
	$(INSTALL) --require-hashes --no-build-isolation --requirement requirements-spark.txt
	@touch $@

run: $(RUNS) ## Start NATS and keep the example manifests applied there, until Ctrl-C
	@$(BIN)/reconciler run -f manifests --env dev --embedded

test: setup $(SPARK_TESTS) ## Every promise, proven in minutes (ROOM=plan: one room, or a path below tests/)
	@$(TESTS) $(ROOM)

test-all: setup $(SPARK_TESTS) ## Everything, also what takes long, on the newest nats-server and 2.14 (ROOM as above)
	@$(TESTS) --all $(ROOM)

test-matrix: setup ## What depends on the server, on every supported version and on a cluster
	@RECONCILER_TEST_VERSIONS=$(MATRIX) $(TESTS) --all -- -m matrix

test-kube: setup ## The chart on a real Kubernetes API server, which is built once (needs Go; 5 to 15 minutes)
	@$(TESTS) --all --side-by-side 2 kube -- -m kube

test-images: setup ## The images, built and run, and the unit under systemd (as root, with buildah and more; 5 to 15 minutes)
	@$(TESTS) --all --side-by-side 1 installation -- -m images

check: setup ## Lint, types, layers, dependencies, generated docs, chart, Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry reconciler
	$(if $(wildcard tools/generate_docs.py),$(BIN)/python -m tools.generate_docs --check)
	@for values in charts/reconciler/ci/*-values.yaml; do \
	  $(BIN)/helm lint --strict --quiet charts/reconciler --values "$$values" || exit 1; done
	$(BIN)/hadolint Dockerfile

format: setup ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup $(SPARK_TESTS) ## Measure the limits on real servers, one line of JSON each (QUICK=1: small sizes)
	@$(MEMORY) QUICK=$(QUICK) $(BIN)/python -m tools.bench

docs: setup ## Write the generated docs anew
	$(if $(wildcard tools/generate_docs.py),$(BIN)/python -m tools.generate_docs,@echo "no generated docs yet")

soak: setup ## Repeat the tests that depend on timing (SOAK_RUNS, SOAK_ROOMS)
	@for run in $$(seq $(SOAK_RUNS)); do echo "run $$run of $(SOAK_RUNS)"; $(TESTS) --all $(SOAK_ROOMS) -- -q || exit 1; done

mutants: setup ## Make mistakes on purpose, and see the tests notice each (MUTANTS: subjects, or parts of names)
	$(MEMORY) $(BIN)/python -m tools.mutants $(MUTANTS)

lock: ## Write the lock files anew (needs uv)
	tools/lock.sh

clean: ## Remove the environment, caches and the data of `make run`
	rm -rf $(VENV) .reconciler-data build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
