# Each target does its own set-up in .venv; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: demo test lint api clean

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Sponson needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(VENV)/.ready  ## a whole mesh in the terminal: make demo ARGS="--duration 10s --json"
	@$(BIN)/sponson demo $(ARGS)

test: $(VENV)/.ready  ## the whole suite
	$(BIN)/python -m pytest -q $(ARGS)

lint: $(VENV)/.ready  ## ruff, mypy --strict, import-linter, size ceilings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy proxy tests
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture

api: $(VENV)/.ready  ## generate code from the .proto files
	$(BIN)/python -m proxy.api.generate

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
