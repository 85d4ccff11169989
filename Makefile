# The commands of this book; `make` lists them. Everything needed is installed into .venv on first use. PYTHON=python3
# uses the packages of that interpreter instead (a GPU machine with its own torch): checked, nothing installed.

.DEFAULT_GOAL := help
.PHONY: help setup docs serve chapter test lint format record check wheel lock

# Material announces its end of life at every build; what follows it is known (see mkdocs.yml: plain options only).
export NO_MKDOCS_2_WARNING := 1
# A target starts a dozen processes, and tests two hundred, which would all compile the same sources again.
unexport PYTHONDONTWRITEBYTECODE

ifeq ($(strip $(PYTHON)),)
BIN := .venv/bin/
PY := $(BIN)python
READY := .venv/.ready
need = @:
else
PY := $(PYTHON)
BIN :=
READY :=
need = @$(PY) -m snippets.lab.tools.environment
endif

# Wheels only, each of a hash in the lock; --no-deps, since the lock is complete (`pip check` says so afterwards).
LOCKED = -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps

# A process for each core, of at most eight; in `make check` one more, since tests wait for browsers and servers.
TESTS = $(PY) -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile
ALL_TESTS = $(TESTS) --numprocesses $$($(PY) -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))')

# Lint, docs and recordings at once, but not where docs may measure a GPU: then nothing else runs.
TOGETHER = $(if $(shell command -v nvidia-smi 2>/dev/null),,--jobs=2 --output-sync=target)

# Where `make docs` builds. `make check` builds elsewhere, for the address at which its tests serve what was built.
SITE = site
CHECKED = .cache/checked_site

# Findings have the rules of the project, in folders whose other files have those of snippets/ruff.toml.
FINDINGS = --config pyproject.toml snippets/*/findings*

# The first interpreter that will do; looked for only when .venv is made.
SYSTEM_PYTHON = $(or $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done), \
	$(error Python 3.11 or newer is needed. On Debian or Ubuntu: sudo apt install python3 python3-venv))

help:  ## this list
	@echo "make TARGET [PYTHON=python3]"
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY)  ## install the locked versions into .venv (every target does it when needed)
	$(need) docs test lint

.venv/.ready: requirements.lock requirements-cpu.lock requirements-cuda.lock pyproject.toml
	@set -e; python="$(SYSTEM_PYTHON)"; \
	"$$python" -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $$python cannot create virtual environments. On Debian or Ubuntu: sudo apt install $$python-venv" >&2; \
		exit 1; }; \
	.venv/bin/python -c '' 2>/dev/null || { echo "setup: .venv with $$python"; "$$python" -m venv --clear .venv; }; \
	echo "setup: the versions of requirements*.lock (minutes on a new machine)"; \
	.venv/bin/python $(LOCKED) -r requirements.lock; \
	.venv/bin/python $(LOCKED) -r requirements-cpu.lock 2> .venv/cpu.txt || { \
		if grep -q "DO NOT MATCH THE HASHES" .venv/cpu.txt; then cat .venv/cpu.txt >&2; exit 1; fi; \
		.venv/bin/python $(LOCKED) -r requirements-cuda.lock; }; \
	.venv/bin/python -m pip check > .venv/check.txt || { cat .venv/check.txt >&2; exit 1; }; \
	touch $@

docs: $(READY)  ## build the site into site/; with a GPU, record what is stale or missing first (FRESH=1: everything)
	$(need) docs
	@failed=0; \
	$(PY) -m snippets.lab prepare $(if $(FRESH),--fresh) || { failed=$$?; test $$failed = 1 || exit $$failed; }; \
	$(PY) -m mkdocs build --strict --clean --site-dir $(SITE) && $(PY) -m snippets.lab finish $(SITE) || exit 1; \
	echo "to look at it: $(PY) -m http.server --directory $(SITE) 8000, then http://127.0.0.1:8000"; \
	test $$failed = 0 || { echo "make docs: the site is built, but not every capture succeeded (see above)" >&2; exit 1; }

# SAMPLE and NAME from the command line only: some shells have a NAME of their own in their environment.
serve: $(READY)  ## show the site at http://127.0.0.1:8000 while you write (PORT=8001; SAMPLE=rmsnorm: with sample numbers)
	$(need) docs $(if $(SAMPLE),test)
	$(PY) -m snippets.lab serve $(if $(PORT),--port $(PORT)) $(if $(findstring command,$(origin SAMPLE)),--sample "$$SAMPLE")

chapter: $(READY)  ## lay out a new chapter with a working example: make chapter NAME=rmsnorm
	$(need) docs
	@$(PY) -m snippets.lab chapter $(if $(findstring command,$(origin NAME)),"$$NAME")

test: $(READY)  ## the quick tests: of the tool, the lab, the chapters and the book (no GPU, no browser)
	$(need) docs test
	$(TESTS) -m "not slow" tests/tool tests/lab tests/chapters tests/book

lint: $(READY)  ## style, types, GitHub workflows
	$(need) lint
	$(PY) -m ruff check .
	$(PY) -m ruff check $(FINDINGS)
	$(PY) -m ruff format --check .
	$(PY) -m ruff format --check $(FINDINGS)
	$(PY) -m mypy
	$(PY) -m mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32 --package kinetoscope
	$(BIN)zizmor --persona pedantic --offline --quiet .github

format: $(READY)  ## rewrite the sources in the one style
	$(need) lint
	$(PY) -m ruff check --fix .
	$(PY) -m ruff check --fix $(FINDINGS)
	$(PY) -m ruff format .
	$(PY) -m ruff format $(FINDINGS)

record: $(READY)  ## measure on this GPU what is stale or missing (CHAPTER=mlp, MINUTES=9, FRESH=1, WAIT=1, SHARED=1)
	$(need)
	$(PY) -m snippets.lab record $(if $(FRESH),--fresh) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(WAIT),--wait) $(if $(SHARED),--shared) $${CHAPTER-}

check: $(READY)  ## what a change must pass: lint, docs, no stale recording, no flipped verdict, all tests (needs Chromium)
	$(need) docs test lint
	@SITE_URL=https://example.org/profiling-pytorch/ $(MAKE) --no-print-directory $(TOGETHER) lint docs \
		recordings-check SITE=$(CHECKED)
	BUILT_SITE=$(CHECKED) $(ALL_TESTS) --hypothesis-profile check

recordings-check: $(READY)
	$(PY) -m snippets.lab list --check
	$(PY) -m snippets.lab claims --check

wheel: $(READY)  ## build the distribution kinetoscope into dist/: wheel and sdist
	$(need) docs
	@$(PY) -m snippets.lab wheel dist

lock:  ## resolve the ranges of pyproject.toml anew into the locks (KEEP="torch==X.Y.Z" holds one back)
	@set -e; python="$(SYSTEM_PYTHON)"; \
	"$$python" -m venv --clear .venv-lock; \
	.venv-lock/bin/python $(LOCKED) -r requirements-tools.lock; \
	printf '%s\n' $(KEEP) > .venv-lock/keep.txt; \
	resolve() { .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-build \
		--no-annotate --no-header --upgrade --fork-strategy fewest --constraint .venv-lock/keep.txt "$$@" > /dev/null; }; \
	resolve pyproject.toml --group book --group docs --group test --group lint --output-file .venv-lock/all.lock; \
	resolve --group release --output-file .venv-lock/tools.lock; \
	"$$python" -m snippets.lab.tools.environment --lock .venv-lock/all.lock .venv-lock/tools.lock; \
	rm -rf .venv-lock
