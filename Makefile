# Everything a contributor does, by name. `make` alone lists the targets.
# Needs Python 3.11 or newer and make, nothing else: the rest is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := requirements/constraints.txt
STAMP := $(VENV)/.installed

# The slowest machine we promise to be pleasant on has two cores. Three workers, because many tests
# wait: for a disk, for a Java, for a process to end.
WORKERS ?= 3
# The oldest PySpark that pyproject.toml allows; `make test` runs on the newest.
SPARK_OLDEST := 4.2.0
SPARK_OLDEST_AT := build/spark-$(SPARK_OLDEST)
# Extra arguments for pytest, for example: make test ARGS="-k torn_tail"
ARGS ?=

# Tests start hundreds of processes; none of them should compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv lint check format docs docs-format docs-conformance docs-walks twins test test-all test-pure test-workers test-spark-oldest crash torture bench bench-server bench-tails bench-scale bench-peers bench-queue bench-kafka bench-machines bench-spark demo demo-wal lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) \
	  | awk -F ':.*## ' '{ printf "  make %-17s %s\n", $$1, $$2 }'

venv: $(STAMP) ## Create .venv with pinned dependencies (another Python: make clean venv PYTHON=...)

# hatchling and what it compiles with are installed first and build isolation is switched off, so
# that the tools which build the package are pinned like everything else. setuptools builds PySpark
# too, which comes as source only; PIP_USE_PEP517 spares readers a warning about it from older pips.
$(STAMP): pyproject.toml $(CONSTRAINTS) hatch_build.py $(wildcard src/headwater/native/*.pyx src/headwater/native/*.pxd)
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Headwater needs Python 3.11 or newer; there is no '$(PYTHON)' here. Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Headwater needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; \
	  exit 1; }
	@echo "Setting up $(VENV): libraries, Spark and tools. A few minutes, once."
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) \
	  hatchling editables setuptools cython pyarrow
	@PIP_USE_PEP517=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -c $(CONSTRAINTS) --no-build-isolation -e '.[dev]'
	@$(BIN)/python -m pip check
	@touch $@

lint: $(STAMP) ## Lint, formatting, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check: lint ## Lint, formatting, types, import contract, tidy test
	$(BIN)/python -m pytest -q tests/tidy $(ARGS)

format: $(STAMP) ## Rewrite the code in the house format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(STAMP) ## Build the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-format: $(STAMP) ## Write docs/format.md from the layout tables
	@mkdir -p build
	@$(BIN)/python -m tests.format_page.page > build/format.md
	@mv build/format.md docs/format.md

docs-walks: $(STAMP) ## Write docs/walks.md: a write, a read, a claim and more, by function name
	$(BIN)/python -m tests.walks.page

docs-conformance: $(STAMP) ## Write docs/conformance.md: which test shows which claim
	$(BIN)/python -m tests.conformance.table

twins: $(STAMP) ## Write the blocking modules from the awaitable ones
	$(BIN)/python -m tests.blocking_twins.twins

test: $(STAMP) ## Run the fast tests
	$(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow" $(ARGS)

test-all: $(STAMP) ## Run every test, the slow ones too
	$(BIN)/python -m pytest -q -n $(WORKERS) $(ARGS)

# The contract over sockets; what looks into the process that has the connections stays out.
test-workers: $(STAMP) ## Run the contract tests with gateways in processes of their own
	HEADWATER_TEST_WORKERS=1 $(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow" \
	  tests/server tests/kafka tests/machines tests/e2e/client tests/e2e/cli/test_serving.py $(ARGS)

test-pure: $(STAMP) ## Run tests of formats, rules, engine and server without the compiled loops
	HEADWATER_PURE=1 $(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow" \
	  tests/unit/format tests/unit/model tests/unit/wal tests/unit/store tests/unit/engine tests/unit/wire \
	  tests/server/test_write_batcher.py tests/server/test_reading.py tests/server/test_writing.py \
	  tests/server/test_queues.py $(ARGS)

$(SPARK_OLDEST_AT)/.installed: $(STAMP)
	@test -f $@ || { rm -rf $(SPARK_OLDEST_AT) && PIP_USE_PEP517=1 $(BIN)/python -m pip install --quiet \
	  --disable-pip-version-check --no-build-isolation --no-deps --target $(SPARK_OLDEST_AT) \
	  "pyspark==$(SPARK_OLDEST)"; }
	@touch $@

# Reading, writing, plans and the doctor: what another Spark could break.
test-spark-oldest: $(SPARK_OLDEST_AT)/.installed ## Run Spark tests on the oldest Spark that is allowed
	SPARK_WANTED=$(SPARK_OLDEST) PYTHONPATH=$(CURDIR)/$(SPARK_OLDEST_AT) SPARK_HOME=$(CURDIR)/$(SPARK_OLDEST_AT)/pyspark \
	  $(BIN)/python -m pytest -q -m "not slow" tests/spark/test_source_batch.py tests/spark/test_source_fields.py \
	  tests/spark/test_source_stream.py tests/spark/test_sink.py tests/spark/test_plans.py \
	  tests/spark/test_pipeline_doctor.py $(ARGS)

# No time limit per test here: a full sweep is long on purpose.
crash: $(STAMP) ## Run the crash and fault sweeps in full
	HEADWATER_CRASH=full $(BIN)/python -m pytest -q -n $(WORKERS) -m crash --timeout 0 $(ARGS)

torture: $(STAMP) ## Everything at once with kills, two minutes (ARGS="--minutes 60 --seed 7")
	$(BIN)/python -m headwater.testing.torture $(ARGS)

bench: $(STAMP) ## Measure everything beside what is installed; fill docs/benchmarks.md (half an hour)
	$(BIN)/python -m bench $(if $(ARGS),$(ARGS),all --page docs/benchmarks.md --plots docs/images)

bench-server: $(STAMP) ## Measure the server beside Redis (apt-get install redis-server wrk)
	$(BIN)/python -m bench server $(ARGS)

bench-tails: $(STAMP) ## Measure the slowest durable writes at half of the maximum rate (two minutes)
	$(BIN)/python -m bench tails $(ARGS)

bench-scale: $(STAMP) ## Measure over topics, connections, shards and cores beside Redis and NATS (40 minutes)
	$(BIN)/python -m bench scale $(ARGS)

bench-peers: $(STAMP) ## Measure writes beside Redis, PostgreSQL and NATS JetStream, if they are here
	$(BIN)/python -m bench peers $(ARGS)

bench-queue: $(STAMP) ## Measure queues beside Redis and PostgreSQL (apt-get install redis-server postgresql)
	$(BIN)/python -m bench queue $(ARGS)

bench-kafka: $(STAMP) ## Measure Kafka clients, beside Apache Kafka if KAFKA_HOME names one (bench/kafka/fetch)
	$(BIN)/python -m bench kafka $(ARGS)

bench-machines: $(STAMP) ## Measure state machines over RCPX and HTTP, a million instances, watchers
	$(BIN)/python -m bench machines $(ARGS)

bench-spark: $(STAMP) ## Measure Spark over a topic, beside JSON and Parquet
	$(BIN)/python -m bench spark $(ARGS)

demo: $(STAMP) ## Everything at once: HTTP, Kafka, workers, machines, Spark (CI=1: no waiting)
	$(BIN)/python examples/demo $(if $(CI),--no-wait) $(ARGS)

demo-wal: $(STAMP) ## Write a log, kill the writer, recover, show what happened
	$(BIN)/python examples/wal_demo.py $(ARGS)

lock: ## Renew the pinned versions from what pyproject.toml allows today
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check hatchling editables setuptools cython pyarrow
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check \
	  --no-build-isolation -e '.[dev]'
	@{ grep '^#' $(CONSTRAINTS); build/lock/bin/python -m pip freeze --all --exclude headwater --exclude pip; } \
	  > build/lock/constraints.txt
	@mv build/lock/constraints.txt $(CONSTRAINTS) && rm -rf build/lock
	@echo "Renewed $(CONSTRAINTS). Read the difference, then: make check test"

clean: ## Remove the virtual environment, caches and build output
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
