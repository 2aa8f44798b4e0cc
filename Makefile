# Every target makes and fills .venv by itself; nothing is assumed but Python >= 3.11, make and a C compiler.

.DEFAULT_GOAL := help
.PHONY: help venv demo quick fast test whole schemathesis check style types slow mutants chaos peers compiled test-compiled format bench soak clean

# The first Python on the path that is new enough; set PYTHON=... to choose another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$python" && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := src tests $(wildcard bench) hatch_build.py

# Tests run in one process more than there are processors, for many of them wait; all of a file in one of them, with the
# servers they share.
JOBS ?= $(shell echo $$(($$(nproc) + 1)))
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
# Both halves of a check at once; what one has found is printed whole.
BESIDE := $(MAKE) --no-print-directory -j2

# What is asked before a commit: the tests of single modules, the laws of the core, and the test files that are new or
# changed since BASE; of all of them not what takes seconds.
BASE ?= $(shell git merge-base HEAD main 2>/dev/null || echo HEAD)
QUICK := tests/unit tests/transcripts tests/properties/test_core.py
CHANGED = $(wildcard $(sort $(shell git diff --name-only $(BASE) -- 'tests/**/test_*.py' 2>/dev/null; \
	git ls-files --others --exclude-standard -- 'tests/**/test_*.py' 2>/dev/null)))

# The same sources with the core compiled, in an environment of its own: installed, not editable, so never out of date.
COMPILED := .venv-compiled
CPYTHON := .venv-cpython
COMPILED_TESTS := tests/unit/core tests/unit/model tests/unit/policies tests/unit/sim tests/unit/test_compiled.py \
	tests/transcripts tests/simulation tests/properties/test_core.py tests/properties/test_twins.py

help:
	@echo "make demo           real work with due dates on this machine, then policies compared on a log"
	@echo "make quick          before a commit, half a minute: formatting, lint, types, and the tests that take no time"
	@echo "make test           formatting, lint, types and the tests, several at once"
	@echo "make schemathesis   ask a real server and a decider for 80 s whether they keep to their own descriptions"
	@echo "make slow           the same questions asked of the tests for minutes"
	@echo "make chaos          attack a real server under load for MINUTES=10 and count what is lost, doubled, wrong, stuck"
	@echo "make check          formatting, lint, types"
	@echo "make mutants        small changes to the sources, and which of them no test notices (COUNT=200 SEED=1)"
	@echo "make peers          the tests against other implementations, after installing those (large)"
	@echo "make compiled       $(COMPILED), where the core is compiled: simulations twice as fast"
	@echo "make test-compiled  the core's tests there, and whether it decides bit for bit as plain Python"
	@echo "make format         rewrite the sources in the one format"
	@echo "make bench          measure, and write docs/benchmarks.md"
	@echo "make soak           a server under load for MINUTES=60 at RATE=200 tasks/s: does anything grow?"
	@echo "make clean          remove what these made, the environments too"

venv: $(VENV)/.filled

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Headway needs Python 3.11 or newer; none is on the path. Set PYTHON=/path/to/python3." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Headway needs Python 3.11 or newer; $(PYTHON) is `"$(PYTHON)" --version`. Set PYTHON=/path/to/python3." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments (on Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.filled: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.filled-%: $(VENV)/.filled
	$(PIP) install --quiet --editable '.[$*]'
	@touch $@

demo: venv
	$(BIN)/headway demo

quick: venv
	@$(BESIDE) check fast

fast: venv
	HEADWAY_EFFORT=quick $(PYTEST) -q -m "not slow and not schemathesis and not long" $(QUICK) $(CHANGED)

test: venv
	@$(BESIDE) check whole

whole: venv
	$(PYTEST)

schemathesis: venv
	$(BIN)/python -m pytest -m schemathesis tests/live/test_description.py

slow: venv
	HEADWAY_EFFORT=slow $(PYTEST) -m "slow or hypothesis" --timeout 1800

# How long a server is attacked, in which order, and with which event loop.
chaos: MINUTES ?= 10
chaos: LOOP ?= uvloop

chaos: venv
	$(BIN)/python tests/chaos/run.py --minutes $(MINUTES) --seed $(SEED) --loop $(LOOP)

COUNT ?= 200
SEED ?= 1

mutants: $(VENV)/.filled-mutants
	$(BIN)/python tests/mutants.py --count $(COUNT) --seed $(SEED) --jobs $(JOBS) $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)

peers: $(VENV)/.filled-peers $(CPYTHON)/.tried
	$(BIN)/python -m pytest -m peers

# A Python that is installed with CPython's own tests of executors, and Headway with it; where there is none, one test skips.
$(CPYTHON)/.tried: pyproject.toml | $(VENV)/bin/python
	@mkdir -p $(CPYTHON)
	@for python in python3.14 python3.13 python3.12 "$$HOME"/.pyenv/versions/3.*/bin/python; do \
		"$$python" -c 'import test.test_concurrent_futures.executor, venv' >/dev/null 2>&1 || continue; \
		"$$python" -m venv $(CPYTHON) && $(CPYTHON)/bin/python -m pip --disable-pip-version-check install --quiet --editable . && break; \
	done; test -x $(CPYTHON)/bin/python || echo "No Python 3.12 or later with CPython's own tests is here; set HEADWAY_CPYTHON." >&2
	@touch $@

compiled: $(COMPILED)/.filled

$(COMPILED)/.filled: pyproject.toml hatch_build.py $(shell find src -name '*.py') | $(VENV)/bin/python
	"$(PYTHON)" -m venv $(COMPILED)
	HEADWAY_COMPILE=1 $(COMPILED)/bin/python -m pip --disable-pip-version-check install --quiet '.[dev]'
	@touch $@

test-compiled: compiled
	$(COMPILED)/bin/python -m pytest -n $(JOBS) --dist loadfile $(COMPILED_TESTS)

check: style types

style: venv
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: venv
	$(BIN)/mypy

format: venv
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

soak: export MINUTES ?= 60
soak: export RATE ?= 200
soak: $(VENV)/.filled-bench
	$(BIN)/python bench/run.py --into soak

bench: $(VENV)/.filled-bench compiled
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) $(COMPILED) $(CPYTHON) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants src/*.egg-info
	find src tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +
