# make demo   builds roost and compares two schedulers on a machine you probably do not own
# make test   builds and runs all tests (at most five minutes after the build)
# make test-vm  boots guests (fetches a kernel and QEMU first; says what it skips where it cannot)
# make validation  sets fair@7.2 beside Linux 7.2 anew: two hours; writes docs/validation-results.md
# make live   builds the live scheduler (clang 18 or newer, libelf and zlib, installed if missing; Rust 1.91)
# make test-live  its tests, and guests in which it schedules (as test-vm): an hour
# make smoke-live  ten seconds of the live scheduler in one guest, with hackbench: a minute
# make deb    a Debian package of both programs, with manual pages and a systemd unit
# make bench  events per second, cost of an event by kind, peak memory
# make fuzz   a minute of fuzzing for each parser (meant for a schedule, not for every change)
# make swarm  a minute of random machines, workloads and schedulers, each run checked (SECONDS, SEED, RUNS)
# make lint   formatting and lints, as errors (lint-live: those of the live scheduler)

CARGO ?= cargo
FUZZ_SECONDS ?= 60

.PHONY: demo test test-vm validation live test-live smoke-live lint-live deb bench fuzz swarm lint setup setup-live

setup:
	@tools/setup

setup-live:
	@tools/setup 'clang>=18:clang-19' pkg-config:pkg-config libelf.pc:libelf-dev zlib.pc:zlib1g-dev

demo: setup
	$(CARGO) build --release --locked --package roost
	@tools/demo

test: setup
	$(CARGO) test --workspace --locked --profile checked

# One guest at a time: each has as many CPUs as the host can bear. clang builds a small scheduler;
# without it that test is skipped.
test-vm: setup
	-@tools/setup clang:clang mke2fs:e2fsprogs
	ROOST_VM=1 $(CARGO) test --locked --profile checked --package roost-vm --package roost \
		--test guest --test guests -- --test-threads=1 --nocapture

# What Linux did is kept for a test that needs no guest.
OBSERVED = crates/roost/tests/data/linux-7.2.json
# Status 1 says that a bar is missed.
validation: setup
	$(CARGO) build --release --locked --package roost
	{ echo "# Results of \`make validation\`, $$(date +%F)"; echo; \
	  target/release/roost validate --save $(OBSERVED) --format markdown || [ $$? = 1 ]; } \
	  >docs/validation-results.md

# A workspace of its own, with a target folder of its own.
LIVE = --manifest-path crates/live/Cargo.toml --target-dir target/live --locked
live: setup-live
	$(CARGO) build --release $(LIVE)
	@echo built target/live/release/scx_roost

# ROOST_VM=0: without guests.
ROOST_VM ?= 1
test-live: setup-live
	ROOST_VM=$(ROOST_VM) $(CARGO) test --profile checked $(LIVE) -- --test-threads=1 --nocapture

smoke-live: setup-live
	-@tools/setup mke2fs:e2fsprogs
	ROOST_VM=1 $(CARGO) test --profile checked $(LIVE) --test smoke -- --nocapture

lint-live: setup-live
	$(CARGO) fmt --manifest-path crates/live/Cargo.toml --check
	$(CARGO) clippy $(LIVE) --all-targets -- -D warnings

deb: live
	$(CARGO) build --release --locked --package roost
	rm -rf target/man && target/release/roost man target/man
	strip -g -o target/man/roost target/release/roost
	@command -v cargo-deb >/dev/null || $(CARGO) install --locked cargo-deb
	CARGO_TARGET_DIR=target/live $(CARGO) deb --manifest-path crates/live/Cargo.toml --no-build --locked --output target/
	@echo built target/roost_*.deb

bench: setup
	$(CARGO) bench --locked --package roost

lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# The sanitizers that libFuzzer needs are unstable compiler flags. New inputs go to the first folder
# named; the tests' data are where it starts.
FUZZ_RUN = RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run
fuzz: setup
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	mkdir -p fuzz/corpus/hwloc fuzz/corpus/rtapp fuzz/corpus/ftrace fuzz/corpus/memory fuzz/corpus/settings
	$(FUZZ_RUN) hwloc fuzz/corpus/hwloc crates/machine/tests/data -- -max_total_time=$(FUZZ_SECONDS)
	$(FUZZ_RUN) rtapp fuzz/corpus/rtapp crates/workload/tests/data -- -max_total_time=$(FUZZ_SECONDS)
	$(FUZZ_RUN) ftrace fuzz/corpus/ftrace crates/measure/tests/data/trace -- -max_total_time=$(FUZZ_SECONDS)
	$(FUZZ_RUN) memory fuzz/corpus/memory -- -max_total_time=$(FUZZ_SECONDS)
	$(FUZZ_RUN) settings fuzz/corpus/settings -- -max_total_time=$(FUZZ_SECONDS)

# What fails prints the command that repeats it. RUNS=1 runs one case, however long it takes.
SECONDS ?= 60
SEED ?= 1
RUNS ?= 0
swarm: setup
	$(CARGO) run --quiet --locked --profile checked --package roost-swarm -- $(SEED) $(SECONDS) $(RUNS)
