# Everything a user or a developer runs; `.ci/run` calls `make test` and `make test-cluster` and adds nothing.

BIN  := .venv/bin
FILE ?= examples/chat.yaml
AREA ?= local
ARGS ?=
EXAMPLES := default
ALONE := tests/story
BESIDE := tests/cluster tests/clients/test_first_clients.py tests/chart tests/dashboards
NIGHTLY := tests/clients/test_nightly_clients.py
STATIC := lint types layers generated
LAYER := not real and not kernels
LOW :=
PYTEST = $(LOW) $(BIN)/python -m pytest
QUICK = $(PYTEST) -q -m "$(LAYER)" --hypothesis-profile=$(EXAMPLES)
# Only files that speak of a mark can have tests of it: the other 350 need not be collected.
MARKED = $(sort $(shell grep -rlE --include='test_*.py' 'mark\.$(1)\b' $(2)))
REAL = $(filter-out $(BESIDE:%=%/%) $(BESIDE) $(NIGHTLY) $(ALONE:%=%/%),$(call MARKED,real,tests))
# A process of pytest takes a file whole, so these begin.
LONGEST := tests/cli/test_paceline_up.py tests/engine/test_gpu_warm_real.py tests/worker/test_worker_process.py \
	tests/gateway/test_resume_real.py tests/gateway/test_gateway_process.py
# The parts of the quick tests and one static check at a time. Each target's output stays in one piece.
TOGETHER := --output-sync=target

# Some images forbid it, and then each pytest process writes its assertions into all 300 files of tests anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv up test test-cluster check static lint types layers generated quick quick-worker quick-engine quick-gateway quick-others kernels gpu nightly story real cluster-tests generate bench demo-model tools cluster clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: ## Make .venv with everything a developer needs (says what it downloads)
	@scripts/venv.sh dev

up: ## Serve FILE (examples/chat.yaml) on this machine; more with ARGS, e.g. ARGS=--check
	@scripts/venv.sh local
	@exec $(BIN)/python -m paceline_cli up -f $(FILE) $(ARGS)

test: ## Static checks and all tests that need no root, Go or cluster, real processes included
	@scripts/services.sh
	@scripts/venv.sh dev
	@$(MAKE) --no-print-directory $(TOGETHER) -j7 LOW="nice -n 19" story static quick kernels
	@$(MAKE) --no-print-directory real

test-cluster: cluster-tests ## The tests on a real Kubernetes, with chart, dashboards and common clients (Debian, root, Go)

check: ## The quick layer: static checks, tests of what decides, with few examples of each property; under 90 s
	@scripts/venv.sh dev
	@$(MAKE) --no-print-directory $(TOGETHER) -j5 quick static EXAMPLES=few LAYER="$(LAYER) and not models"

# Each process imports and collects its own part alone, two of them without torch. They take about as long, so that both
# cores are busy to the end; the worker's tests wait more than they compute.
quick: quick-worker quick-engine quick-gateway quick-others

quick-worker:
	$(QUICK) tests/worker tests/bench tests/demo

quick-engine:
	$(QUICK) tests/engine

quick-gateway:
	$(QUICK) tests/gateway tests/autoscaler

quick-others:
	$(QUICK) $(patsubst %,--ignore=tests/%,worker engine bench demo gateway autoscaler kernels)

# In Triton's interpreter, unless this machine has a GPU.
kernels:
	$(PYTEST) -q -m "kernels and not real" --durations=10 tests/kernels $(call MARKED,kernels,tests/engine)

gpu: ## On a machine with CUDA, without any download: test the kernels, then measure them (20 min); ARGS=--quick
	@scripts/gpu.sh $(ARGS)

nightly: ## The long forms: 1,000 examples of each property, 120,000 rules of the engine's state machine; more clients; an hour of load
	@scripts/services.sh
	@scripts/venv.sh dev
	$(BIN)/python -m pytest -q -m "not real and not kernels" -n 2 --dist worksteal --hypothesis-profile=nightly --timeout=3600
	$(BIN)/python -m tests.engine.livelock $(ARGS)
	$(BIN)/python -m pytest -q -m real --durations=10 $(NIGHTLY)
	$(BIN)/python -m benchmarks.simulator stack

# Two minutes in which a burst comes and goes. It is about load that one replica cannot bear, so what runs beside it is
# what gives way to it: `make test` computes the rest at the lowest priority.
story:
	$(BIN)/python -m pytest -q -m real $(ALONE)

# They wait as long as they work.
real:
	$(PYTEST) -q -m real -n 4 --dist loadfile --no-loadscope-reorder --durations=15 $(LONGEST) $(filter-out $(LONGEST),$(REAL))

# Mostly waiting for Kubernetes and Prometheus; each process has a cluster of its own. In the order of collection, which
# tests/cluster/conftest.py begins with the longest file.
cluster-tests: tools
	$(BIN)/python -m pytest -q -m real -n 3 --dist loadfile --no-loadscope-reorder --durations=15 $(BESIDE)

static: $(STATIC)

lint:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types:
	$(LOW) $(BIN)/mypy

layers:
	$(BIN)/lint-imports

generated:
	$(BIN)/python -m tools.codegen --check
	$(BIN)/python -m tools.dashboards --check
	$(BIN)/python -m tools.api_fields --check

generate: ## Write CRDs, reference pages, tables, dashboards and alerts anew
	@scripts/venv.sh dev
	@$(BIN)/python -m tools.codegen
	@$(BIN)/python -m tools.dashboards
	@$(BIN)/python -m tools.api_fields

bench: ## Measure AREA (local); results go to benchmarks/results
	@scripts/venv.sh local
	@$(BIN)/python -m benchmarks.$(AREA) $(ARGS)

demo-model: ## Train the demo model anew (seeded; some minutes)
	@scripts/venv.sh local
	@$(BIN)/python -m tools.demo_model $(ARGS)

tools: ## Build the programs of the cluster tests from Go modules, once (about 17 min on two cores)
	@scripts/services.sh cluster
	@scripts/venv.sh dev
	@$(BIN)/python -m tests.cluster.harness.tools $(ARGS)

cluster: ## Keep a real Kubernetes running on this machine (root); more with ARGS, e.g. ARGS=--help; Ctrl-C removes it
	@scripts/services.sh cluster
	@scripts/venv.sh dev
	@$(BIN)/python -m tests.cluster.harness.tools
	@exec $(BIN)/python -m tests.cluster.harness.up $(ARGS)

clean: ## Remove caches, builds and what a run left; .venv stays
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build .paceline/run
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
