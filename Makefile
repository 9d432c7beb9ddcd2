# make demo   builds roost and compares two schedulers on a machine you probably do not own
# make test   builds and runs all tests (about ten minutes after the build, on two cores)
# make test-vm  boots guests; fetches a kernel and QEMU first (WITHOUT="guests clang": leaves out, and names,
#               what needs these; without that it fails where they cannot be had)
# make test-long  what takes longer than a test may: all rows of sysbench, and rows of autonuma-benchmark that only many
#               seeds establish: a quarter of an hour
# make test-look  opens reports in a browser (chromium, installed if missing): minutes; screenshots are kept in
#               target/tmp/look
# make measure  prints what figures in the docs were measured with: the daemon's cost, the exact lane's pages
# make validation  sets fair@7.2 beside Linux 7.2 anew: two hours; writes docs/validation-results.md
# make live   builds the live scheduler (clang 18 or newer, libelf and zlib, installed if missing; Rust 1.91)
#             POLICY=my_rule.h builds a rule of your own into it (docs/use/own-rule.md)
# make test-live  its tests, and guests in which it schedules (WITHOUT as for test-vm): an hour
# make soak-live  a mixed load in guests of ten kinds, a quarter of an hour each
# make smoke-live  ten seconds of the live scheduler in one guest, with hackbench: a minute
# make python  the Python package as a wheel, in a virtual environment in which its tests and notebooks run (Python 3.10)
# make deb    a Debian package of both programs, with manual pages and a systemd unit
# make book   the pages of docs/ as a site with search, target/book (builds mdbook first if it is missing)
# make bench  cost of an event, peak memory, and ratios to an earlier commit, which it builds first
# make fuzz   a minute of fuzzing for each parser (meant for a schedule, not for every change)
# make swarm  a minute of random machines, workloads and schedulers, each run checked (SECONDS, SEED, RUNS)
# make reference  writes docs/reference.md, which the program knows
# make lint   formatting and lints, as errors (lint-live: those of the live scheduler)

CARGO ?= cargo
# What `make demo` is built with; CI takes that of the tests, which is built already.
DEMO_PROFILE ?= release
FUZZ_SECONDS ?= 60

.PHONY: demo test test-vm test-long test-look measure validation live bpf-object test-live smoke-live soak-live lint-live python deb book bench fuzz swarm lint reference setup setup-live

setup:
	@tools/setup

setup-live:
	@tools/setup 'clang>=18:clang-19' pkg-config:pkg-config libelf.pc:libelf-dev zlib.pc:zlib1g-dev

demo: setup
	$(CARGO) build --profile $(DEMO_PROFILE) --locked --package roost
	@DEMO_PROFILE=$(DEMO_PROFILE) tools/demo

test: setup
	$(CARGO) test --workspace --locked --profile checked

# What this host lacks, of: guests (a kernel and QEMU), clang. Tests that need it are left out and named.
WITHOUT ?=
without = $(filter $(1),$(WITHOUT))

# Tests that boot guests are ignored unless they are asked for. What is named program_ is what guests run,
# and what is named measures_ only prints.
IN_GUESTS = --ignored --skip program_ --skip measures_ --test-threads=1 --nocapture
# One guest at a time: each has as many CPUs as the host can bear. clang builds a small scheduler.
test-vm: setup
ifneq (,$(call without,guests))
	@echo "LEFT OUT (WITHOUT=guests): all tests that boot guests"
else
ifneq (,$(call without,clang))
	@echo "LEFT OUT (WITHOUT=clang): tests named sched_ext"
else
	-@tools/setup clang:clang
endif
	-@tools/setup mke2fs:e2fsprogs
	$(CARGO) test --locked --profile checked --package roost-vm --package roost \
		--test guest --test guests -- $(IN_GUESTS) $(if $(call without,clang),--skip sched_ext)
endif

test-long: setup
	$(CARGO) test --locked --profile checked --package roost --test oltp --test numa -- --ignored --nocapture

test-look:
	@tools/setup chromium:chromium
	$(CARGO) test --locked --profile checked --package roost --test browser -- --ignored

measure: setup
	$(CARGO) test --locked --profile checked --package roost-memory --package roost \
		--test cost --test guests -- --ignored --nocapture measures_

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
live: export ROOST_POLICY = $(abspath $(POLICY))
live: setup-live
	$(CARGO) build --release $(LIVE)
	@echo built target/live/release/scx_roost

# After a change of bpf/ or policy/include: what the simulation runs as the scheduler `roost`.
bpf-object: live
	@tools/bpf-object

# WITHOUT=guests: only what needs none. What is named quarter_hours takes one each: make soak-live.
test-live: setup-live
	$(CARGO) test --profile checked $(LIVE)
ifneq (,$(call without,guests))
	@echo "LEFT OUT (WITHOUT=guests): all tests that boot guests"
else
	$(CARGO) test --profile checked $(LIVE) -- $(IN_GUESTS) --skip quarter_hours
endif

smoke-live: setup-live
ifneq (,$(call without,guests))
	@echo "LEFT OUT (WITHOUT=guests): ten seconds of the live scheduler in a guest"
else
	-@tools/setup mke2fs:e2fsprogs
	$(CARGO) test --profile checked $(LIVE) --test smoke -- --ignored --nocapture
endif

soak-live: setup-live
	$(CARGO) test --profile checked $(LIVE) --test mixed -- --ignored --test-threads=1 --nocapture

lint-live: setup-live
	$(CARGO) fmt --manifest-path crates/live/Cargo.toml --check
	$(CARGO) clippy $(LIVE) --all-targets --profile checked -- -D warnings

# A workspace of its own, with a target folder and a virtual environment of its own.
PYTHON ?= python3
PYTHON_PROFILE ?= release
VENV = target/python/venv
python: setup
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "roost's package needs Python 3.10 with venv" >&2; exit 1; }
	[ -x $(VENV)/bin/pip ] || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet 'maturin>=1.9,<2'
	rm -rf target/python/wheels
	$(VENV)/bin/maturin build --manifest-path python/Cargo.toml --target-dir target/python --profile $(PYTHON_PROFILE) \
		--locked --out target/python/wheels
	$(VENV)/bin/pip install --quiet --force-reinstall --no-deps target/python/wheels/roost-*.whl
	$(VENV)/bin/pip install --quiet "$$(echo target/python/wheels/roost-*.whl)[test]"
	cd python && ../$(VENV)/bin/mypy --strict -p roost
	@: not in python/, where the package without its library would be found first
	cd target/python && ../../$(VENV)/bin/pytest -c ../../python/pyproject.toml --rootdir ../../python ../../python/tests

deb: live
	@tools/setup dpkg-shlibdeps:dpkg-dev
	$(CARGO) build --release --locked --package roost
	@tools/deb target/release/roost target/live/release/scx_roost

# The pages of docs/ with search.
book:
	@command -v mdbook >/dev/null || $(CARGO) install --locked mdbook
	mdbook build docs
	@echo built target/book/index.html

bench: setup
	$(CARGO) bench --locked --package roost

reference: setup
	$(CARGO) run --quiet --locked --profile checked --package roost -- man target/man
	cp target/man/reference.md docs/

# As the tests are built: what they are built with is built once.
lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --profile checked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --profile checked

# The sanitizers that libFuzzer needs are unstable compiler flags. New inputs go to the first folder
# named; the tests' data are where it starts.
FUZZ_RUN = RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run
FUZZ_TARGETS = hwloc lscpu synthetic archive rtapp ftrace memory settings object btf
# Where a target has tests' data to start from.
SEEDS_hwloc = crates/machine/tests/data
SEEDS_rtapp = crates/workload/tests/data
SEEDS_ftrace = crates/measure/tests/data/trace
SEEDS_object = crates/scx/tests/data
fuzz: setup
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	mkdir -p $(FUZZ_TARGETS:%=fuzz/corpus/%)
	$(foreach target,$(FUZZ_TARGETS),$(FUZZ_RUN) $(target) fuzz/corpus/$(target) $(SEEDS_$(target)) \
		-- -max_total_time=$(FUZZ_SECONDS) &&) true

# What fails prints the command that repeats it. RUNS=1 runs one case, however long it takes.
SECONDS ?= 60
SEED ?= 1
RUNS ?= 0
swarm: setup
	$(CARGO) run --quiet --locked --profile checked --package roost-swarm -- $(SEED) $(SECONDS) $(RUNS)
