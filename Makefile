# What a person needs: `make serve` and `make test`. Everything is installed into .venv on first use.

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
ARGS    ?=

.PHONY: serve test read check servers coverage bench sample screenshots catalogue install clean

serve: install
	@exec $(BIN)/redrive serve $(ARGS)

# Four at a time, a file to each, in the order of tests/conftest.py: much of a test's time is spent waiting.
SPREAD  := -n 4 --dist loadfile --no-loadscope-reorder
test: export PYTHONDONTWRITEBYTECODE =
test: servers
	@$(MAKE) --no-print-directory --jobs=2 check read
	@exec $(BIN)/pytest $(SPREAD) $(ARGS)

# Each of the four processes reads every test file, and prepares it for pytest where nobody has yet. That is done once,
# while the types are checked; what is wrong with a file, the tests say.
read: install
	@$(BIN)/pytest --collect-only --quiet > /dev/null 2>&1 || true

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

servers:
	@scripts/install-servers.sh

# Which lines of core, store and engine no test runs, those in processes of their own counted in.
coverage: install servers
	@$(BIN)/pytest $(SPREAD) -q --cov --cov-report= $(ARGS)
	@$(BIN)/coverage combine --quiet --append 2> /dev/null || true # of processes that ended last, if any did
	@$(BIN)/coverage report

bench: install
	@exec $(BIN)/python -m bench.run $(ARGS)

# An installation with a week of sample data, for looking at pages.
sample: install
	@PYTHONPATH=tests exec $(BIN)/python -m support.serve_sample $(ARGS)

# The pictures in docs/images, taken of that sample.
screenshots: install servers
	@PYTHONPATH=tests exec $(BIN)/python -m browser.screenshots $(ARGS)

# What the migrations make, for `redrive doctor` to compare with: after a migration was added.
catalogue: install
	@exec $(BIN)/python scripts/catalogue.py

install: $(STAMP)

$(STAMP): pyproject.toml $(wildcard uv.lock) scripts/install.sh
	@scripts/install.sh $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* htmlcov dist build
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
