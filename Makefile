# One word for each task. Whatever needs the virtual environment sets it up first.

BIN := .venv/bin
READY := .venv/.ready
STORES := .pytest_cache/stores.jsonl
PYTEST := $(BIN)/pytest --stores-report=$(STORES)

.PHONY: help setup run up down test test-all lint bench bench-stores sim sim-soak sim-mutants \
	chaos chaos-cluster fuzz docs lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## install the package with its tools into .venv, from requirements.lock

$(READY): requirements.lock pyproject.toml scripts/setup
	scripts/setup
	touch $@

run: $(READY) ## start a server to try things with: SQLite in ./.duetime, loopback only
	@exec $(BIN)/duetime dev

up: $(READY) ## start a server to try things with: STORE=postgresql or another one, or SERVER=etcd
	@$(BIN)/python -m scripts.servers up $(STORE)$(SERVER)

down: $(READY) ## stop the server that `make up` started, and delete its data
	@$(BIN)/python -m scripts.servers down $(STORE)$(SERVER)

test: $(READY) ## run the quick suite, which needs no servers, then the stores that need quick ones
	@rm -f $(STORES)
	$(PYTEST) -m "not slow and not server"
	$(PYTEST) -m "server and not slow"

test-all: test ## then the slow suite, with the servers that take longer, and a table of all stores
	$(PYTEST) -m slow
	@$(BIN)/python -m tests.stores_report $(STORES)

lint: $(READY) ## check style, types, layers, documentation tables and the lock file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_lock.py
	$(BIN)/python -m scripts.document_settings --check
	$(BIN)/python -m scripts.document_stores --check

bench: $(READY) ## measure a real server; ARGS="--store postgresql burst" picks store and workloads
	$(BIN)/python -m bench $(ARGS)

bench-stores: $(READY) ## measure every store that has a server for tests, a minute or so each
	$(BIN)/python -m bench --compare $(ARGS)

sim: $(READY) ## live through 200 simulated worlds; SEED=n shows one with its trace, SEEDS=n lives many
	$(BIN)/python -m sim $(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS))

sim-soak: $(READY) ## live through one world after the other until one fails; FIRST=n begins there
	@exec $(BIN)/python -m sim --soak $(if $(FIRST),--first $(FIRST))

sim-mutants: $(READY) ## prove that mistakes put into the engine are caught, and by which rule
	$(BIN)/python -m sim --mutants

chaos: $(READY) ## do faults to a real server under load; SEED=n repeats, ARGS="kill freeze" picks
	$(BIN)/python -m chaos $(ARGS)

chaos-cluster: $(READY) ## do faults to three nodes on a PostgreSQL; SEED=n, ARGS="rolling drain"
	$(BIN)/python -m chaos.cluster $(ARGS)

fuzz: $(READY) ## send a real server hostile input; SEED=n repeats, ARGS="wire crowd" picks
	$(BIN)/python -m fuzz $(ARGS)

docs: $(READY) ## rewrite the generated tables of the documentation
	$(BIN)/python -m scripts.document_settings
	$(BIN)/python -m scripts.document_stores

lock: $(READY) ## resolve requirements.lock anew; ARGS=--upgrade moves what is pinned
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal \
		--generate-hashes --no-emit-index-url --no-emit-find-links --group dev \
		$(ARGS) pyproject.toml -o requirements.lock

clean: ## remove .venv and all caches; data in ./.duetime stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
