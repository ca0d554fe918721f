# outbox-kit: `make demo` runs the worked example, `make test` all tests of CI.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
# compose/.env sets COMPOSE_FILE, the list of Compose files.
COMPOSE := cd compose && docker compose
# noreset: otherwise Maven prints an escape sequence at the end even without colors.
MVN = JAVA_HOME="$$(scripts/prerequisites.sh java-home)" MAVEN_OPTS="$$MAVEN_OPTS -Djansi.noreset=true" mvn -q -B -Dstyle.color=never
ELAPSED := scripts/elapsed.sh
WITH_JAVA = JAVA_HOME="$$(scripts/prerequisites.sh java-home)"
# Some environments set this variable. Then each process would compile the repository's Python files again.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL = $(BIN)/python -m pip install -q --disable-pip-version-check
UV_COMPILE := build/uv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-config \
	--annotation-style line --custom-compile-command 'make requirements' --no-emit-package outbox-events
SMT_SOURCES := smt/pom.xml $(shell find smt/src -type f 2>/dev/null)
CONSTANT_SMT_SOURCES := $(shell find tests/benchmarks/constant_smt -name target -prune -o -type f -print)
SPARK_SOURCES := $(shell find spark_jobs/java -name '*.java')
IMAGE_MACHINE := $(if $(filter arm64 aarch64,$(shell uname -m)),arm64v8,amd64)
PYTHON_SOURCES := $(shell find scripts/outbox_common scripts/outbox_events scripts/outbox_kit spark_jobs/outbox_spark -name "*.py")
IMAGE_REQUIREMENTS := pyproject.toml scripts/outbox_events/pyproject.toml requirements/commands.txt requirements/tools-image.txt requirements/pyspark.txt
RUNTIME_POMS := $(shell find compose/runtime -name pom.xml)

# Older PostgreSQL servers for the tests of the database checks.
OLDER_POSTGRES := 14.24.0 16.15.0


# Ways and faults of `make drill`.
DRILL := --way cdc-exactly-once --way two-phase \
	--fault kill-writer --fault kill-kafka --fault kill-postgres --times 1 --seconds 5 --materialize --receive --fast-start

.PHONY: help setup docs pictures components maven-components demo drill drill-full images up down logs ps dist-spark dist check check-python check-java format test test-spark test-browser test-containers test-compose test-full test-cluster class-archive fuzz bench-plan bench-smt bench-source bench-latency bench-sending bench-receiving bench-receiving-table bench-materialize bench-growth bench-batches bench-many-tables bench-freshness bench-latest-state clean prerequisites component-manifest older-postgres wiremock requirements

help: ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

setup: prerequisites $(STAMPS)/venv $(STAMPS)/runtime $(STAMPS)/smt $(STAMPS)/spark-rows ## Set up the virtual environment, JVM dependencies and transforms. Skips unchanged components.

prerequisites:
	@PYTHON=$(PYTHON) scripts/prerequisites.sh

# Build without isolation, because pip does not check hashes of packages in isolated build environments.
$(STAMPS)/venv: pyproject.toml scripts/outbox_events/pyproject.toml requirements/build.txt requirements/development.txt | prerequisites
	@$(PYTHON) -m venv $(VENV)
	@$(PIP_INSTALL) --require-hashes --only-binary=:all: -r requirements/build.txt
	@$(ELAPSED) "setting up $(VENV) (about 500 MB the first time)" \
		$(PIP_INSTALL) --require-hashes --no-build-isolation --use-pep517 -r requirements/development.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e scripts/outbox_events -e .
	@mkdir -p $(STAMPS) && touch $@

requirements: prerequisites ## Write requirements/ (exact versions and hashes) after dependencies have changed. UPGRADE=1 selects the latest versions.
	@$(PYTHON) -m venv build/uv
	@build/uv/bin/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary=:all: -r requirements/lock.txt
	@$(UV_COMPILE) $(if $(UPGRADE),--upgrade) --group lock -o requirements/lock.txt
	@$(UV_COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --extra test --group build --group tools-image -o requirements/development.txt
	@$(UV_COMPILE) -c requirements/development.txt pyproject.toml -o requirements/commands.txt
	@$(UV_COMPILE) -c requirements/development.txt scripts/outbox_events/pyproject.toml --extra kafka --extra avro -o requirements/events.txt
	@for group in build pyspark spark-driver tools-image; do \
	  $(UV_COMPILE) -c requirements/development.txt --group $$group -o requirements/$$group.txt || exit 1; done

$(STAMPS)/runtime: $(RUNTIME_POMS) | prerequisites
	@rm -rf build/runtime
	@$(ELAPSED) "downloading Kafka, Connect, Debezium, registry, PostgreSQL, Spark's jars to build/runtime (about 220 MB)" \
		env $(MVN) -f compose/runtime/pom.xml package -Druntime.directory="$(CURDIR)/build/runtime"
	@mkdir -p $(STAMPS) && touch $@

component-manifest: setup ## Write the list of what an installation without a checkout downloads. Run it after a change of compose/runtime.
	@$(BIN)/python -m outbox_lab.component_manifest

older-postgres: $(OLDER_POSTGRES:%=$(STAMPS)/postgres-%) ## Download the older PostgreSQL servers that tests use to build/postgres.

$(STAMPS)/postgres-%: compose/runtime/pom.xml compose/runtime/postgres/pom.xml | prerequisites
	@echo "downloading PostgreSQL $* to build/postgres/$* (about 15 MB)"
	@rm -rf build/postgres/$*
	@$(MVN) -f compose/runtime/pom.xml -pl postgres package -Dpostgres.version=$* \
		-Druntime.directory="$(CURDIR)/build/postgres/$*"
	@mkdir -p $(STAMPS) && touch $@

wiremock: $(STAMPS)/wiremock ## Download WireMock, with which tests simulate failing services, to build/wiremock.

$(STAMPS)/wiremock: tests/wiremock/pom.xml | prerequisites
	@echo "downloading WireMock to build/wiremock (about 19 MB)"
	@rm -rf build/wiremock
	@$(MVN) -f tests/wiremock/pom.xml package -Dwiremock.directory="$(CURDIR)/build/wiremock"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/smt: $(SMT_SOURCES) | prerequisites $(STAMPS)/runtime
	@$(ELAPSED) "building the transforms (smt/)" env $(MVN) -f smt/pom.xml package -DskipTests
	@mkdir -p $(STAMPS) && touch $@

# Compiled against Spark's jars in the virtual environment and the downloaded Kafka client.
$(STAMPS)/spark-rows: $(SPARK_SOURCES) $(STAMPS)/venv $(STAMPS)/runtime
	@echo "building the jar of the Spark jobs (spark_jobs/java)"
	@rm -rf build/spark-rows && mkdir -p build/spark-rows
	@"$$(scripts/prerequisites.sh java-home)/bin/javac" --release 17 -nowarn -d build/spark-rows \
		-cp "$$($(BIN)/python -c 'import pyspark; print(pyspark.__path__[0])')/jars/*:build/runtime/spark/jars/*" $(SPARK_SOURCES)
	@"$$(scripts/prerequisites.sh java-home)/bin/jar" --create --date=1980-01-01T00:00:02Z --file build/runtime/spark/jars/outbox-spark.jar -C build/spark-rows .
	@mkdir -p $(STAMPS) && touch $@

class-archive: setup ## Write an archive of Spark's classes (230 MB) to build/runtime/spark, with which later Spark jobs start faster.
	@$(WITH_JAVA) $(ELAPSED) "writing the archive of Spark's classes" $(BIN)/python -m outbox_spark.commands.class_archive

demo: setup ## Run the worked example from outbox rows to tables. KEEP=1 keeps the stack running.
	@$(WITH_JAVA) $(BIN)/outbox demo $(if $(KEEP),--keep) $(if $(YES),--yes)

drill: setup ## Test two ways of sending under three faults, and count lost events and repeated effects. Takes about 4 minutes.
	@$(WITH_JAVA) $(BIN)/python -m outbox_lab.drill --seed 1 $(DRILL)

drill-full: setup ## Test every way of sending under every applicable fault, and write build/drill/report.html. Takes about 75 minutes. An interrupted run can be resumed.
	@$(WITH_JAVA) $(BIN)/python -m outbox_lab.drill --seed $(or $(SEED),2026) --seconds 12 --stacks 2 --materialize --receive --resume
	@$(BIN)/python -m outbox_lab.drill --report --seed $(or $(SEED),2026)

images: $(STAMPS)/image-postgres $(STAMPS)/image-python compose-env $(STAMPS)/runtime $(STAMPS)/smt $(STAMPS)/spark-rows ## Build the container images from the components of `make setup`.
	@scripts/container-engine.sh up
	@chmod -R a+rX build/runtime build/images smt/target/plugin # the images run as another user
	@echo "building the container images (about a minute the first time)"
	@scripts/build-images.sh

# Linux binaries, which are the same as in the embedded stack on Linux.
$(STAMPS)/image-postgres: compose/runtime/pom.xml compose/runtime/postgres/pom.xml | prerequisites
	@rm -rf build/images/runtime
	@$(MVN) -f compose/runtime/pom.xml -pl postgres package -Dpostgres.platform=linux-$(IMAGE_MACHINE) \
		-Druntime.directory="$(CURDIR)/build/images/runtime"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/image-python: $(PYTHON_SOURCES) scripts/image-python.sh $(IMAGE_REQUIREMENTS) $(STAMPS)/venv
	@echo "downloading the images' Python packages to build/images (about 500 MB)"
	@scripts/image-python.sh $(BIN)/python
	@mkdir -p $(STAMPS) && touch $@

.PHONY: compose-env
compose-env: # Write compose/.env with the requested PROFILES
	@scripts/compose-env.sh $(PROFILES)

up: images ## Start the stack in containers, and wait until every service is healthy. PROFILES="secure ..." enables profiles (docs/containers.md).
	@scripts/compose-up.sh
	@mkdir -p build/compose
	@if grep -q '^COMPOSE_FILE=.*secure' compose/.env; then \
	  $(COMPOSE) cp connect-1:/run/secrets/ca.pem ../build/compose/ca.pem && \
	  echo "up: deploy with \`$(BIN)/outbox -e compose-secure apply\`"; \
	else echo "up: deploy with \`$(BIN)/outbox -e compose apply\`"; fi

down: ## Stop the containers. PURGE=1 also deletes their data.
	@$(COMPOSE) --progress quiet --profile spark down --remove-orphans $(if $(PURGE),--volumes)
	@$(if $(PURGE),rm -rf build/compose)

logs: ## Follow the logs of the containers. SERVICE=kafka selects one service.
	@$(COMPOSE) logs --tail 100 --follow $(SERVICE)

ps: ## List the containers and their health status.
	@$(COMPOSE) ps --all

dist-spark: setup ## Build the files for spark-submit in build/spark: zip, launchers, jars and driver requirements.
	@$(BIN)/python -m outbox_spark.spark_submit_files build/spark --jars build/runtime/spark/jars

dist: setup ## Build a release in dist/: wheels, sdists, Connect plugins, files for spark-submit, SBOMs and checksums.
	@$(BIN)/python scripts/dist.py

docs: setup ## Build the documentation site in build/docs.
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html docs build/docs
	@echo "wrote build/docs/index.html"

pictures: setup ## Record the commands of the first tutorial, and verify's page, for the documentation. Takes about 3 minutes.
	@$(WITH_JAVA) $(BIN)/python -m outbox_lab.pictures

check: setup ## Run lint, type checks and unit tests, which do not need a stack.
	@$(MAKE) --no-print-directory -j2 check-python check-java

check-python:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q -n 4 tests/unit --junitxml=build/junit-unit.xml

check-java:
	@$(MVN) -f smt/pom.xml spotless:check test
	@$(MVN) -f smt/bench/pom.xml spotless:check

format: ## Format Python and Java.
	@$(BIN)/ruff check --fix -q . && $(BIN)/ruff format -q .
	@$(MVN) -f smt/pom.xml spotless:apply
	@$(MVN) -f smt/bench/pom.xml spotless:apply

test: components ## Run everything that CI runs: check, the tests of the pages, the Spark jobs, the embedded stack and the containers, and the drill.
	@$(MAKE) --no-print-directory setup
	@$(MAKE) --no-print-directory -j3 check-python check-java test-browser
	@$(MAKE) --no-print-directory -j2 test-spark drill test-containers
	@$(WITH_JAVA) $(BIN)/pytest -q -n 4 --dist loadfile --no-loadscope-reorder --timeout=600 tests/integration --durations=25 --junitxml=build/junit.xml

# These tests need the processors. The drill and the tests in containers, which run beside them, often wait for servers.
test-spark: setup
	@$(WITH_JAVA) $(BIN)/pytest -q -n 2 tests/spark --durations=15 --junitxml=build/junit-spark.xml

test-containers: setup
	@if scripts/container-engine.sh status; then $(MAKE) --no-print-directory test-compose; \
	elif [ "$$CI" = true ]; then echo "error: CI has no container engine" >&2; exit 1; \
	else echo "skipped: tests/compose (no container engine; start one with scripts/container-engine.sh up)"; fi

# Runs pip and one Maven at the same time. Two Mavens must not download into one local repository.
components: prerequisites
	@$(MAKE) --no-print-directory -j2 $(STAMPS)/venv maven-components

maven-components: prerequisites
	@$(MAKE) --no-print-directory -j1 $(STAMPS)/runtime $(STAMPS)/smt older-postgres wiremock

test-browser: setup ## Test the HTML pages in headless Chromium. Skipped if Chromium is missing, except in CI.
	@if [ "$$CI" = true ]; then scripts/prerequisites.sh browser; fi
	@$(BIN)/pytest -q tests/browser --junitxml=build/junit-browser.xml

test-compose: setup images ## Test the stack in containers and the example services. Takes about 7 minutes.
	@$(WITH_JAVA) $(BIN)/pytest -q tests/compose --durations=10 --junitxml=build/junit-compose.xml

test-cluster: setup ## Test the jobs on a Spark cluster with spark-submit. Takes about 3 minutes. Not part of `test`.
	@$(WITH_JAVA) $(BIN)/pytest -q -m cluster tests/cluster

test-full: test test-cluster $(STAMPS)/jdbc-sink ## Run `test` and the long tests: all targets, the cluster, more property-based test cases and mutation testing.
	@$(BIN)/pytest -q -n 2 -m long tests/unit
	@$(WITH_JAVA) $(BIN)/pytest -q -n 2 -m long tests/spark
	@$(WITH_JAVA) $(BIN)/pytest -q -m long tests/integration
	@$(WITH_JAVA) $(BIN)/pytest -q -m long tests/compose --durations=10
	@$(MVN) -f smt/pom.xml test -Dtest='*PropertyTest' -Djqwik.tries.default=10000
	@$(MVN) -f smt/pom.xml -Pmutation test-compile pitest:mutationCoverage

fuzz: setup ## Run random event sequences against all targets, and print the seeds. OUTBOX_FUZZ_SECONDS=300 limits each target. OUTBOX_FUZZ_TARGET=iceberg selects one target.
	@$(WITH_JAVA) OUTBOX_FUZZ_SECONDS=$(or $(OUTBOX_FUZZ_SECONDS),300) \
		$(BIN)/pytest -q -s --timeout=0 -m 'long or not long' -k '$(OUTBOX_FUZZ_TARGET)' tests/spark/runs/test_state_machine.py

bench-plan: setup ## Measure the duration of a plan without changes. Writes build/bench/plan.json.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/plan.py

bench-smt: setup ## Measure the time per record in the transforms with JMH. Writes build/bench/smt.json. QUICK=1 shortens the run.
	@$(MVN) -f smt/bench/pom.xml process-classes
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/smt.py

bench-source: setup $(STAMPS)/constant-smt ## Compare the throughput of a backlog with EventRouter. Writes build/bench/source.json. Takes about 17 minutes.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/source.py

bench-latency: setup ## Compare the latency from commit to consumer with EventRouter. Writes build/bench/latency.json. Takes about 13 minutes.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/latency.py

bench-sending: setup ## Measure the costs of each way of sending. Writes build/bench/sending.json. Takes about 13 minutes. BACKLOGS=100000,1000000 measures larger backlogs.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/sending/run.py

bench-receiving: setup ## Measure the strategies for receiving events. Writes build/bench/receiving.json. Takes about 16 minutes.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/receiving/run.py

bench-receiving-table: setup ## Measure layouts and settings of the table of processed events. Writes build/bench/receiving-table.json. Takes about 6 minutes.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/receiving/table_settings.py

bench-materialize: setup $(STAMPS)/jdbc-sink ## Measure the materialization of topics. Writes build/bench/materialize.json. Takes about 17 minutes, or 2 minutes with QUICK=1.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/materialize/run.py

bench-growth: setup ## Measure first fills of 5 to 30 million events. Writes build/bench/growth.json. Takes about 8 minutes.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python -m tests.benchmarks.materialize.growth

bench-batches: setup $(STAMPS)/jdbc-sink class-archive ## Measure small batches and runs in a new process. Writes build/bench/batches.json. Takes about 20 minutes.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/materialize/batches.py

bench-many-tables: setup ## Measure rounds for many tables, with several values of --threads. Writes build/bench/many-tables.json. Takes about 9 minutes.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python -m tests.benchmarks.materialize.many_tables

bench-freshness: setup $(STAMPS)/jdbc-sink ## Measure the time from a commit to the row. Writes build/bench/freshness.json. Takes about 20 minutes. SECONDS=20 shortens the run.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python -m tests.benchmarks.materialize.freshness

bench-latest-state: setup ## Measure how LatestState loads a topic. Writes build/bench/latest-state.json. Takes about 3 minutes. KEYS=10000 reduces the number of keys.
	@$(WITH_JAVA) PYTHONPATH=. $(BIN)/python tests/benchmarks/latest_state.py

$(STAMPS)/jdbc-sink: tests/benchmarks/jdbc_sink/pom.xml | prerequisites
	@echo "downloading Debezium's JDBC sink to build/bench/plugins (about 60 MB)"
	@$(MVN) -f tests/benchmarks/jdbc_sink/pom.xml package -Dplugin.directory="$(CURDIR)/build/bench/plugins"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/constant-smt: $(CONSTANT_SMT_SOURCES) | prerequisites
	@echo "building the constant transform of the benchmarks (tests/benchmarks/constant_smt)"
	@$(MVN) -f tests/benchmarks/constant_smt/pom.xml package -Dplugin.directory="$(CURDIR)/build/bench/plugins/constant-smt"
	@mkdir -p $(STAMPS) && touch $@

clean: ## Stop the stacks and the engine that `make up` started. Delete build output and the data of the stacks.
	@[ ! -x $(BIN)/outbox ] || $(BIN)/outbox stack down --purge
	@[ ! -d build/compose ] || ! docker info >/dev/null 2>&1 || $(MAKE) --no-print-directory down PURGE=1
	@scripts/container-engine.sh down
	@rm -rf build $(VENV) smt/target smt/bench/target tests/benchmarks/constant_smt/target
