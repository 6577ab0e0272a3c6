# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build is pinned: a plain `torch` pulls gigabytes of CUDA packages that the demo does not need.
TORCH ?= torch==2.13.0
READY := $(VENV)/.ready

.PHONY: demo test lint format build clean

demo: $(READY)
	@BIN=$(BIN) sh examples/demo.sh

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: $(READY)
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) dist build

$(READY): pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@
