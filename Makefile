# make run             a real Kafka and schema registry, a Spark ingest, a worker with live tables; Ctrl-C stops everything
# make run ARGS=--once the same, then compares every table with a batch on Spark of the same topology, and ends
# make test            checks and all tests, from nothing, on a new machine: workers that are killed, Java, Spark, Chromium
# make bench           streamapp and its peers side by side: CPU per event; ARGS="latency", "restore", "curve keys" ...
# make faults          the fault matrix on one broker and on three; ARGS="--list", "zombie", "--jobs 4" ...
# make chaos           30 minutes of faults drawn from a seed; ARGS="--minutes 3 --seed 7" ...
# make site            the documentation site in site/; a warning is an error
# make release-check   builds dist/, and proves it: an empty machine without compiler, each Python, lowest and newest dependencies

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The tests start some hundred processes. With this variable, which images of containers often set, each process would
# compile streamapp and the tests anew before it does anything.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test faults chaos bench check clean site release-check
.PHONY: test-packages collection ruff mypy public-types prose imports

# The steps before the tests keep one core busy each, so two of them run at a time.
MAKEFLAGS += --jobs=2

run: $(VENV)/installed
	$(BIN)/python -m agents.demo $(ARGS)

# More processes than cores, because most tests wait for something. tests/conftest.py says which tests each process gets. A
# process that crashes is not replaced, because xdist would wait for the new process for ever (pytest-xdist#1323). The test of
# the crashed process counts as failed.
test: test-packages check collection
	$(BIN)/pytest --numprocesses 4 --dist loadscope --no-loadscope-reorder --max-worker-restart 0 $(ARGS)

test-packages:
	scripts/test-packages

# pytest compiles the asserts of each test anew, and Hypothesis searches streamapp for constants. Both keep the results, so
# one process does this work here, beside the checks, and not each process of the tests. The tests themselves tell errors.
# Brokers and Spark start sooner with the archives of classes that tests.archives makes.
collection: $(VENV)/installed test-packages
	-@$(BIN)/pytest --collect-only --quiet --quiet >/dev/null
	-@$(BIN)/python -m tests.archives

faults: $(VENV)/installed
	$(BIN)/python -m tests.faults $(ARGS)

chaos: $(VENV)/installed
	$(BIN)/python -m tests.faults.chaos $(ARGS)

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks $(or $(ARGS),throughput)

check: mypy public-types ruff prose imports

mypy: $(VENV)/installed
	$(BIN)/mypy

public-types: $(VENV)/installed
	$(BIN)/python scripts/verify_types.py

ruff: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

prose: $(VENV)/installed
	$(BIN)/python scripts/prose.py

imports: $(VENV)/installed
	$(BIN)/lint-imports --no-cache
	$(BIN)/lint-imports --no-cache --config .importlinter-cycles

site: $(VENV)/installed
	$(BIN)/python -m scripts.site

release-check: $(VENV)/installed
	$(BIN)/pip install --quiet --editable '.[dev,release]'
	PYTHON=$(BIN)/python scripts/build-wheels
	$(BIN)/python scripts/release_check.py first-use
	$(BIN)/python -m scripts.stopwatch
	$(BIN)/python scripts/release_check.py matrix

$(VENV)/installed: pyproject.toml hatch_build.py $(wildcard streamapp/*/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "streamapp needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) data site
