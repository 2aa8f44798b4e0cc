# Every target makes and fills .venv by itself; nothing is assumed but Python >= 3.11, make and a C compiler.

.DEFAULT_GOAL := help
.PHONY: help venv demo quick fast test whole thorough schemathesis check style types slow mutants chaos faults peers snakemake compiled test-compiled format pictures bench soak clean

# The first Python on the path that is new enough; set PYTHON=... to choose another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$python" && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := src tests $(wildcard bench integrations) hatch_build.py

# Tests run in four processes more than there are processors, for many of them wait; all of a file in one of them, with the
# servers they share. Their order is that of tests/conftest.py, so that no long file is the last one.
JOBS ?= $(shell echo $$(($$(nproc) + 4)))
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
# Both halves of a check at once; what one has found is printed whole.
BESIDE := $(MAKE) --no-print-directory -j2

# What is asked before a commit: the tests of single modules, the laws of the core, and the test files that are new or
# changed since BASE; of all of them not what takes seconds.
BASE ?= $(shell git merge-base HEAD main 2>/dev/null || echo HEAD)
QUICK := tests/unit tests/transcripts tests/properties/test_core.py
CHANGED = $(wildcard $(sort $(shell git diff --name-only $(BASE) -- 'tests/**/test_*.py' 2>/dev/null; \
	git ls-files --others --exclude-standard -- 'tests/**/test_*.py' 2>/dev/null)))

# The same sources with the core compiled, in a separate environment: installed, not editable, so never out of date. What
# they depend on is that of the first environment.
COMPILED := .venv-compiled
CPYTHON := .venv-cpython
COMPILED_TESTS := tests/unit/core tests/unit/model tests/unit/policies tests/unit/sim tests/unit/test_compiled.py \
	tests/transcripts tests/simulation tests/properties/test_core.py tests/properties/test_forecast.py \
	tests/properties/test_kept_profile.py tests/properties/test_twins.py

# Snakemake with our plugin, as users install it: it pins many packages, so it has an environment of its own.
SNAKEMAKE := .venv-snakemake
PLUGIN := integrations/snakemake-executor-plugin-headway

help:
	@echo "make demo           run real jobs with due dates on this machine, then compare policies on a log"
	@echo "make quick          before a commit, half a minute: formatting, lint, types, and the fast tests"
	@echo "make test           formatting, lint, types and the tests, several at a time; WITH=thorough: and the next"
	@echo "make thorough       the tests that make test leaves to continuous integration: more ways, real Dask and Slurm"
	@echo "make schemathesis   check for three minutes that a real server and a decider behave as their descriptions say"
	@echo "make slow           whole experiments, and properties with many more examples"
	@echo "make chaos          attack a real server under load for MINUTES=10 and count what is lost, doubled, wrong, stuck"
	@echo "make faults         crash a simulated server thousands of times: SEEDS=1000 FIRST=1 RENTING=; a failure prints its seed"
	@echo "make check          formatting, lint, types"
	@echo "make mutants        make small changes to the sources and list those that no test notices (COUNT=200 SEED=1)"
	@echo "make peers          install other implementations (large) and run the tests against them"
	@echo "make snakemake      $(SNAKEMAKE), where Snakemake runs workflows on Headway, and the tests of that"
	@echo "make compiled       make $(COMPILED), where the core is compiled: simulations run faster"
	@echo "make test-compiled  run the core's tests there, and check that its results equal those of plain Python bit for bit"
	@echo "make format         format the sources"
	@echo "make pictures       draw the pictures of the README again"
	@echo "make bench          take measurements and write docs/benchmarks.md"
	@echo "make soak           keep a server under load for MINUTES=60 at RATE=200 tasks/s: does anything grow?"
	@echo "make clean          remove what these targets made, also the environments"

venv: $(VENV)/.filled

$(VENV)/bin/python:
	$(call environment,$(VENV))

$(VENV)/.filled: pyproject.toml | $(VENV)/bin/python
	$(call filled,dev)
	@touch $@

$(VENV)/.filled-%: $(VENV)/.filled
	$(call filled,$*)
	@touch $@

# What comes with Python chooses versions for a minute, a pip of today for a third of that.
define environment
	@test -n "$(PYTHON)" || { echo "Headway needs Python 3.11 or newer; none is on the path. Set PYTHON=/path/to/python3." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Headway needs Python 3.11 or newer; $(PYTHON) is `"$(PYTHON)" --version`. Set PYTHON=/path/to/python3." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make virtual environments (on Debian and Ubuntu: apt-get install python3-venv)." >&2; exit 1; }
	"$(PYTHON)" -m venv $(1)
	@$(1)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade pip || echo "pip stays as it came with Python." >&2
endef

# Byte code takes pip longer than all else, for it makes it on one processor, and for the tests of packages, too. A file
# that this Python cannot compile is left as it is, as pip does.
define filled
	$(PIP) install --quiet --no-compile --editable '.[$(1)]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests/' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || true
endef

demo: venv
	$(BIN)/headway demo

quick: venv
	@$(BESIDE) check fast

fast: venv
	HEADWAY_EFFORT=quick $(PYTEST) -q -m "not slow and not schemathesis and not thorough and not long and not data" $(QUICK) $(CHANGED)

# WITH="thorough schemathesis" asks the tests that are marked so in the same run: who waits then leaves the processors
# to others.
test: venv
	@$(BESIDE) check whole

whole: venv
	$(PYTEST) -m "not slow$(foreach mark,$(filter-out $(WITH),thorough schemathesis), and not $(mark))"

thorough: venv
	$(PYTEST) -m "thorough and not slow"

schemathesis: venv
	HEADWAY_EFFORT=slow HEADWAY_SEED=$(SEED) $(PYTEST) --dist load -m schemathesis tests/live/test_description.py

slow: venv
	HEADWAY_EFFORT=slow $(PYTEST) -m "slow or hypothesis" --timeout 1800

# How long a server is attacked, in which order, and with which event loop.
chaos: MINUTES ?= 10
chaos: LOOP ?= uvloop

chaos: venv
	$(BIN)/python tests/chaos/run.py --minutes $(MINUTES) --seed $(SEED) --loop $(LOOP)

# How many seeds, from which one on, and in how many processes; with RENTING=1 machines are rented, too.
faults: SEEDS ?= 1000
faults: FIRST ?= 1
faults: PROCESSES ?= $(shell nproc)

faults: venv
	$(BIN)/python -m tests.faults.run --seeds $(SEEDS) --first $(FIRST) --jobs $(PROCESSES) $(if $(RENTING),--renting)

COUNT ?= 200
SEED ?= 1

mutants: $(VENV)/.filled-mutants
	$(BIN)/python tests/mutants.py --count $(COUNT) --seed $(SEED) --jobs $(JOBS) $(if $(ONLY),--only $(ONLY)) $(if $(AGAIN),--again)

peers: $(VENV)/.filled-peers $(CPYTHON)/.tried $(SNAKEMAKE)/.filled
	$(BIN)/python -m pytest -m peers

# A Python that is installed with CPython's own tests of executors, and Headway with it; where there is none, one test skips.
$(CPYTHON)/.tried: pyproject.toml | $(VENV)/bin/python
	@mkdir -p $(CPYTHON)
	@for python in python3.14 python3.13 python3.12 "$$HOME"/.pyenv/versions/3.*/bin/python; do \
		"$$python" -c 'import test.test_concurrent_futures.executor, venv' >/dev/null 2>&1 || continue; \
		"$$python" -m venv $(CPYTHON) && $(CPYTHON)/bin/python -m pip --disable-pip-version-check install --quiet --editable . && break; \
	done; test -x $(CPYTHON)/bin/python || echo "No Python 3.12 or later with CPython's own tests is here; set HEADWAY_CPYTHON." >&2
	@touch $@

snakemake: venv $(SNAKEMAKE)/.filled
	$(BIN)/python -m pytest -m peers tests/peers/test_snakemake.py

$(SNAKEMAKE)/.filled: pyproject.toml $(PLUGIN)/pyproject.toml $(shell find $(PLUGIN)/src -name '*.py') | $(VENV)/bin/python
	"$(PYTHON)" -m venv $(SNAKEMAKE)
	$(SNAKEMAKE)/bin/python -m pip --disable-pip-version-check install --quiet --editable . 'snakemake>=9,<10'
	$(SNAKEMAKE)/bin/python -m pip --disable-pip-version-check install --quiet --force-reinstall --no-deps ./$(PLUGIN)
	@touch $@

compiled: $(COMPILED)/.filled

$(COMPILED)/.built: pyproject.toml hatch_build.py $(shell find src -name '*.py')
	$(call environment,$(COMPILED))
	HEADWAY_COMPILE=1 PIP_NO_COMPILE=1 $(COMPILED)/bin/python -m pip --disable-pip-version-check install --quiet --compile --no-deps .
	@touch $@

$(COMPILED)/.filled: $(COMPILED)/.built | $(VENV)/.filled
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sep="\n")' \
		> "$$($(COMPILED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
	@touch $@

test-compiled: compiled
	$(COMPILED)/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(COMPILED_TESTS)

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

pictures: venv
	$(BIN)/python bench/pictures.py

bench: $(VENV)/.filled-bench compiled
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) $(COMPILED) $(CPYTHON) $(SNAKEMAKE) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .mutants src/*.egg-info
	find src tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +
