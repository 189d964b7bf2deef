# make run             the flights application: a real Kafka, a Spark ingest, a worker, live tables
# make run ARGS=--once the same, then compares every table with Spark's own batch answer, and ends
# make test            all checks and tests, from nothing, on a new machine

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test check clean

run: $(VENV)/installed
	$(BIN)/python -m agents.demo $(ARGS)

test: check
	scripts/chromium
	$(BIN)/pytest $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "streamapp needs Python 3.11 or newer; name one with PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) data
