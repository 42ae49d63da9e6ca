# The front door: `make` alone lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
PYTEST := $(RUN)/python -m pytest
DEMO_LAKE := .demo/lake
DEMO_SITE := .demo/site

# A JDK that `make setup` fetched, where the machine has none.
ifneq ($(wildcard .java/home/bin/java),)
export JAVA_HOME := $(CURDIR)/.java/home
endif

# Images of Python often set it: then every command that a test or a benchmark starts compiles its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/installed ## install everything into .venv, and Delta's jars into .jars
	@$(RUN)/python scripts/setup_spark.py

$(VENV)/locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, %s is %d.%d: make PYTHON=python3.11" % (sys.executable, *sys.version_info[:2]))'
	@test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	@# The lock is whole. Left to resolve by itself, pip asks for newer releases where an extra is wanted of a pinned package.
	@echo "installing what requirements.lock pins into $(VENV)"
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.lock
	@touch $@

$(VENV)/installed: pyproject.toml $(VENV)/locked
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: lock
lock: $(VENV)/installed ## regenerate requirements.lock from pyproject.toml
	@$(RUN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --generate-hashes \
	  --no-header --no-emit-index-url --no-emit-find-links pyproject.toml --output-file requirements.lock

.PHONY: demo
demo: setup ## read samples/ into Delta tables on local Spark, then write the report
	@rm -rf $(DEMO_LAKE)
	@$(RUN)/kraft-audit run conf/fleet.yaml --engine spark --lake $(DEMO_LAKE)
	@$(RUN)/kraft-audit report $(DEMO_LAKE) --out $(DEMO_SITE) >/dev/null
	@echo "open   file://$(CURDIR)/$(DEMO_SITE)/index.html in a browser"

.PHONY: test
test: setup ## run every test that needs no other service (at most 20 minutes on 2 cores)
	@$(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not ci and not drill and not long and not spark$(PASSED_BEFORE:%= and not %)"
	@$(PYTEST) -m "spark and not ci and not long"  # one Spark session in one process: it takes both processors by itself

.PHONY: check
check: setup ## check style, types and import contracts, run unit tests: a minute, before every commit
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-logo
	@$(PYTEST) --quiet --numprocesses 2 -m unit

.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || test -n "$${KRAFT_AUDIT_CHROMIUM:-}" || { \
	  if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
	    echo "installing chromium, which the tests of the pages drive"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } >/dev/null 2>&1 \
	      || echo "chromium could not be installed: the tests of the pages skip"; \
	  else echo "chromium is not here: the tests of the pages skip"; fi; }

.PHONY: ci
ci: setup airflow-setup chromium s3a-jars ## run tests that start a service: a Spark cluster, an object store, a controller
	@$(PYTEST) --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "ci and not long" --durations 30 || test $$? -eq 5

.PHONY: drills
drills: setup spark-oldest-setup ## lose real Kafka quorums and rescue them, write docs/drills.md, then run the longest tests: two hours
	@KRAFT_AUDIT_DRILL_RESULTS=1 $(PYTEST) -m drill tests/drills
	@KRAFT_AUDIT_CALLS=1000 $(PYTEST) tests/witness/test_kafka_authors.py
	@KRAFT_AUDIT_LIES=1000 $(PYTEST) tests/witness/test_lies.py
	@KRAFT_AUDIT_GOOD_CLUSTERS=499 $(PYTEST) tests/kraft_audit/lake/test_hostile_clusters.py
	@KRAFT_AUDIT_SEEDS=200 $(PYTEST) tests/kraft_audit/pipeline/test_hourly_invariants.py tests/kraft_audit/pipeline/test_judged_hours.py
	@KRAFT_AUDIT_INTERLEAVINGS=40 $(PYTEST) tests/kraft_audit/lake/test_interleavings.py
	@KRAFT_AUDIT_PAGE_CLUSTERS=1000 $(PYTEST) tests/kraft_audit/report/test_browser.py
	@$(PYTEST) -m long

.PHONY: dist
dist: setup ## build into dist/: the platform's wheel, the pure wheel, the zip for --py-files, their SBOM, kraft-capture, kraft-audit.pyz
	@$(RUN)/python scripts/build_dist.py
	@$(RUN)/python scripts/one_file_capture.py
	@$(RUN)/python scripts/one_file_program.py

COVERED := tests/kraft_codec tests/kraft_audit tests/fuzz tests/hostile tests/witness
.PHONY: coverage
coverage: setup ## measure branch coverage of codec, replay and rules, also with kernels as plain Python: 15 minutes
	@$(RUN)/python -m coverage run --data-file=.coverage.compiled -m pytest --quiet -m "(unit or slow) and not spark" $(COVERED)
	@$(RUN)/python -m coverage run --data-file=.coverage.plain -m pytest --quiet -p tests.interpreted_kernels -m unit \
	  --ignore tests/kraft_codec/kernels/test_kernel_cache.py --ignore tests/kraft_codec/columns/test_columns_guard.py \
	  tests/kraft_codec/columns tests/kraft_codec/kernels tests/kraft_audit/replay tests/fuzz/test_decoder.py
	@$(RUN)/python -m coverage combine --quiet .coverage.compiled .coverage.plain
	@$(RUN)/python -m coverage report

.PHONY: audit
audit: setup ## list known vulnerabilities of the packages in requirements.lock
	@$(RUN)/python scripts/audit_dependencies.py
.PHONY: dist-environment
dist-environment: setup ## pack the Python environment for `spark-submit --archives` into dist/
	@$(RUN)/python scripts/pack_environment.py

.PHONY: airflow-setup
airflow-setup: .airflow-venv/installed ## install Airflow into its own environment, .airflow-venv
.airflow-venv/installed: airflow/requirements.txt $(VENV)/installed
	@$(RUN)/uv venv --quiet --clear --python $(RUN)/python .airflow-venv
	@$(RUN)/uv pip install --quiet --python .airflow-venv/bin/python --require-hashes --requirement airflow/requirements.txt
	@touch $@

.PHONY: spark-oldest-setup
spark-oldest-setup: .spark-oldest/installed ## install the oldest supported Spark with its Delta into .spark-oldest
.spark-oldest/installed: scripts/oldest_spark/requirements.txt $(VENV)/installed
	@$(RUN)/uv venv --quiet --clear --python $(RUN)/python .spark-oldest/venv
	@$(RUN)/uv pip install --quiet --python .spark-oldest/venv/bin/python --require-hashes --requirement scripts/oldest_spark/requirements.txt
	@.spark-oldest/venv/bin/python scripts/setup_oldest_spark.py
	@touch $@

.PHONY: spark-oldest-lock
spark-oldest-lock: $(VENV)/installed ## regenerate scripts/oldest_spark/requirements.txt
	@$(RUN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	  --no-emit-find-links scripts/oldest_spark/requirements.in --output-file scripts/oldest_spark/requirements.txt

.PHONY: s3a-jars
s3a-jars: setup ## download into .jars-s3a the jars with which the JVM reaches S3
	@$(RUN)/python scripts/setup_s3a.py

.PHONY: airflow-lock
airflow-lock: $(VENV)/installed ## regenerate airflow/requirements.txt
	@$(RUN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
	  --no-emit-find-links airflow/requirements.in --output-file airflow/requirements.txt

.PHONY: bench
bench: setup ## measure speed against peers, and list what got slower: needs a quiet machine
	@$(RUN)/python -m benchmarks

.PHONY: bench-short
bench-short: setup ## run `bench` on small inputs, for CI: shows what changed, never fails
	@$(RUN)/python -m benchmarks --short

.PHONY: switches
switches: setup ## turn off each safety rule of the engine, and print how many seeds it took to notice
	@$(RUN)/python scripts/switches.py

.PHONY: explore
explore: setup ## play small quorums and partitions in every order of events, also as Promela models under spin
	@$(RUN)/python scripts/explore.py

.PHONY: explore-short
explore-short: setup ## run `explore` in a minute, as CI does
	@$(RUN)/python scripts/explore.py --short

.PHONY: soak
soak: setup ## fuzz, kill, simulate and compare for SOAK_MINUTES (60), then write docs/reliability.md
	@$(RUN)/python scripts/soak.py

.PHONY: docs
docs: setup ## build the documentation into docs-site/ in seconds, with tables, rules and commands from the code
	@NO_MKDOCS_2_WARNING=1 $(RUN)/python -m mkdocs build --quiet
	@echo "docs-site/index.html"

.PHONY: notebooks
notebooks: setup ## run every notebook on the samples, into build/notebooks/
	@for notebook in notebooks/*.py; do $(RUN)/python scripts/run_notebook.py $$notebook --out build/notebooks; done
	@ls build/notebooks/*

.PHONY: clean
clean: ## delete what runs and tests wrote; keep .venv and .jars
	@rm -rf .demo .cache build dist site spark-warehouse metastore_db derby.log htmlcov .coverage* \
	  .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find kraft_codec kraft_engine kraft_audit kraft_capture tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
