PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SEEDS  ?= 8
STEPS  ?= 150000

# The small CPU build of torch is pinned unless a GPU is in sight.
CONSTRAINTS := $(if $(shell command -v nvidia-smi),,-c constraints-cpu.txt)

# One thread and a fixed hash seed: tests are bitwise repeatable.
TEST_ENV := OMP_NUM_THREADS=1 PYTHONHASHSEED=0 JAX_PLATFORMS=cpu XLA_PYTHON_CLIENT_PREALLOCATE=false

.PHONY: venv demo test properties bench docs check format clean
.DEFAULT_GOAL := test

# demo needs the first stamp only; tests and oracles come with the second.
$(VENV)/.stamp-run: pyproject.toml constraints-cpu.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e '.[cli,plot]'
	touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e '.[cli,plot,test,oracle,peers]'
	touch $@

$(VENV)/.stamp-docs: $(VENV)/.stamp-run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) -e '.[docs]'
	touch $@

venv: $(VENV)/.stamp-test

demo: $(VENV)/.stamp-run
	$(BIN)/purerl train ppo --env CartPole-v1 --seeds $(SEEDS) --steps $(STEPS) --directory runs/demo

check: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal

properties: $(VENV)/.stamp-test
	$(TEST_ENV) HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n 2 property_tests

bench: $(VENV)/.stamp-test
	$(BIN)/python -m pytest benchmarks/bench_*.py --benchmark-only

docs: $(VENV)/.stamp-docs
	$(BIN)/sphinx-build -W -b html docs docs/_build/html

format: $(VENV)/.stamp-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs docs/_build build dist
