# make demo   builds roost and compares two schedulers on a machine you probably do not own
# make test   builds and runs all tests (five to ten minutes after the build, on two cores). SEED=2 tries other random
#             inputs than SEED=1, the default
# make test-vm  tests in guests; fetches a kernel and QEMU first. If they cannot be had, it fails;
#               WITHOUT="guests clang" names and leaves out the tests that need them; QUICK=1 leaves out moved pages,
#               databases and the domains of all presets, which take minutes
# make test-long  all rows of sysbench, and rows of autonuma-benchmark that take minutes: a quarter of an hour
# make test-released  schedulers of sched-ext/scx as released, on machines of 16 to 512 CPUs and on all presets (builds
#             them first, which takes what `make live` needs, and a quarter of an hour)
# make test-look  opens reports in a browser (installs chromium if it is missing): minutes. Screenshots are kept in
#               target/tmp/look
# make measure  measures figures of the docs again, and prints them: the cost of the daemon, the pages of exact guests
# make validation  compares fair@7.2 with Linux 7.2 again: two hours; writes docs/validation-results.md
# make live   builds the live scheduler (installs clang 18 or newer, libelf and zlib if they are missing; Rust 1.91)
#             POLICY=my_rule.h builds a rule of your own into it (docs/use/own-rule.md)
# make test-live  tests of the live scheduler, also in guests (WITHOUT as for test-vm): an hour
# make soak-live  the live scheduler under a mixed load, in ten kinds of guests for a quarter of an hour each
# make smoke-live  the live scheduler in a guest, ten seconds with hackbench: a minute
# make python  the Python package as a wheel; runs its tests and notebooks in a virtual environment (Python 3.10)
# make deb    a Debian package of both programs, with manual pages and a systemd unit
# make book   the pages of docs/ as a site with search, target/book (builds mdbook first if it is missing: a minute)
# make fast   roost optimised by a profile of its own runs, target/fast/release/roost: the same results, sooner. It
#             builds twice. The Debian package has this program
# make bench  the simulator's cost of an event and peak memory, and ratios of that program to an earlier commit's, which
#             it builds too
# make fuzz   a minute of fuzzing for each parser (meant for a schedule, not for every change)
# make swarm  a minute of random machines, workloads and schedulers, each run checked (SECONDS, SEED, RUNS).
#             SCHEDULER=roost runs only the shipped program. FAULTS=on: all its runs have faults; FAULTS=off: none has.
#             SCHEDULES=1000000: small runs of it, until so many different schedules were seen (about an hour)
# make reference  writes docs/reference.md from the program's tables
# make bpf-object  compiles bpf/ for the simulation again (clang 18 or newer)
# make lint   formatting and lints, as errors (lint-live: those of the live scheduler)

CARGO ?= cargo
# The profile of `make demo`. CI uses the profile of the tests, because it is built already.
DEMO_PROFILE ?= release
FUZZ_SECONDS ?= 60
# Set by CI: run the programs that `make test` has built. Cargo would build all crates again, because the tests use more
# features of libraries.
BUILT ?=
BUILT_IN = $(or $(CARGO_TARGET_DIR),target)/checked

# The first seed of the swarm, and that of the properties' random inputs: a commit is tested with the same inputs.
SEED ?= 1
export PROPTEST_RNG_SEED = $(SEED)

.PHONY: demo test test-vm test-long test-released test-look measure validation live bpf-object test-live smoke-live \
	soak-live lint-live python fast deb book bench fuzz swarm lint reference setup setup-live

setup:
	@tools/setup

setup-live:
	@tools/setup 'clang>=18:clang-19' pkg-config:pkg-config libelf.pc:libelf-dev zlib.pc:zlib1g-dev

demo: setup
	$(if $(BUILT),,$(CARGO) build --profile $(DEMO_PROFILE) --locked --package roost)
	@DEMO_PROFILE=$(DEMO_PROFILE) tools/demo

test: setup
	$(CARGO) test --workspace --locked --profile checked

# What this host lacks: guests (a kernel and QEMU), clang, or both. Tests that need these are named and left out.
WITHOUT ?=
without = $(filter $(1),$(WITHOUT))

# Tests that boot guests are ignored by default. program_ marks functions that guests run, measures_ functions that only
# print, live_scheduler tests that need scx_roost.
IN_GUESTS = --ignored --skip program_ --skip measures_ --nocapture
# A guest alone keeps hardly more than one CPU busy. Where pages are timed, it has the host for itself. clang builds a
# small scheduler.
GUESTS = $(if $(QUICK),2,1)
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
	$(CARGO) test --workspace --locked --profile checked --test guest --test guests -- $(IN_GUESTS) \
		--test-threads=$(GUESTS) --skip live_scheduler $(if $(call without,clang),--skip sched_ext) \
		$(if $(QUICK),--skip moved:: --skip databases --skip every_preset)
endif

test-long: setup
	$(CARGO) test --locked --profile checked --package roost --test oltp --test numa -- --ignored --nocapture

# Their loaders need not be fast.
RELEASED = scx_bpfland@1.1.4 scx_cosmos@1.1.7 scx_lavd@1.1.2 scx_layered@1.1.4 scx_rusty@1.1.4
test-released: setup setup-live
	BPF_CLANG=$$(tools/clang) $(CARGO) install --locked --debug --root target/released \
		--target-dir target/released/build $(RELEASED)
	PATH=$(CURDIR)/target/released/bin:$$PATH $(CARGO) test --workspace --locked --profile checked --test released \
		-- --ignored --nocapture

test-look:
	@tools/setup chromium:chromium
	$(CARGO) test --workspace --locked --profile checked --test browser -- --ignored

measure: setup
	$(CARGO) test --locked --profile checked --package roost-memory --package roost \
		--test cost --test guests -- --ignored --nocapture measures_

# The counters of Linux are kept here, for a test that needs no guest.
OBSERVED = crates/roost/tests/data/linux-7.2.json
# Status 1 means that a bar was missed.
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

# Needed after a change of bpf/ or policy/include. The simulation runs this object as the scheduler `roost`.
bpf-object: live
	@tools/bpf-object

# WITHOUT=guests runs only tests that need no guest. Tests named quarter_hours belong to make soak-live.
test-live: setup-live
	$(CARGO) test --profile checked $(LIVE)
ifneq (,$(call without,guests))
	@echo "LEFT OUT (WITHOUT=guests): all tests that boot guests"
else
	$(CARGO) test --profile checked $(LIVE) -- $(IN_GUESTS) --test-threads=1 --skip quarter_hours
	PATH=$(CURDIR)/target/live/checked:$$PATH $(CARGO) test --locked --profile checked --package roost \
		--test guests -- --ignored live_scheduler
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

# In a virtual environment of its own. maturin would build all crates again, for the same reason as at BUILT. So CI
# packs the library that the tests' build has made.
define built-wheel
	$(CARGO) build --workspace --lib --tests --locked --profile checked
	rm -rf target/python/wheel
	$(VENV)/bin/maturin pep517 write-dist-info --manifest-path python/Cargo.toml \
		--metadata-directory target/python/wheel
	cp -r python/roost target/python/wheel/
	cp $(BUILT_IN)/lib_roost.so target/python/wheel/roost/_roost.abi3.so
	$(VENV)/bin/wheel pack target/python/wheel --dest-dir $(WHEELS)
endef
PYTHON ?= python3
VENV = target/python/venv
WHEELS = target/python/wheels
# Else pyo3 asks the linker for Python's library.
export PYO3_BUILD_EXTENSION_MODULE = 1
python: setup
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "roost's package needs Python 3.10 with venv" >&2; exit 1; }
	[ -x $(VENV)/bin/pip ] || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet 'maturin>=1.9,<2' wheel
	rm -rf $(WHEELS) && mkdir -p $(WHEELS)
	$(if $(BUILT),$(built-wheel),$(VENV)/bin/maturin build --manifest-path python/Cargo.toml --release --locked \
		--out $(WHEELS))
	$(VENV)/bin/pip install --quiet --force-reinstall --no-deps $(WHEELS)/roost-*.whl
	$(VENV)/bin/pip install --quiet "$$(echo $(WHEELS)/roost-*.whl)[test]"
	cd python && ../$(VENV)/bin/mypy --strict -p roost
	@: not in python/, because Python would find the package without its library there first
	cd target/python && ../../$(VENV)/bin/pytest -c ../../python/pyproject.toml --rootdir ../../python \
		../../python/tests

# The compiler arranges the program by how often each branch is taken in the runs of tools/profile.
PROFILE = $(abspath target/fast/roost.profdata)
fast: setup
	@tools/profile $(PROFILE)
	RUSTFLAGS="-Cprofile-use=$(PROFILE)" $(CARGO) build --release --locked --package roost --target-dir target/fast
	@echo built target/fast/release/roost

deb: live fast
	@tools/setup dpkg-shlibdeps:dpkg-dev
	@tools/deb target/fast/release/roost target/live/release/scx_roost

# The pages of docs/ with search. The book needs neither mdbook's server nor fast code, so mdbook is built without them.
MDBOOK = target/mdbook/bin/mdbook
book: setup
	@[ -x $(MDBOOK) ] || CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=0 $(CARGO) install --locked \
		--root target/mdbook --no-default-features --features search --version 0.5.4 mdbook
	$(MDBOOK) build docs
	@echo built target/book/index.html

bench: fast
	FAST_ROOST=$(abspath target/fast/release/roost) $(CARGO) bench --locked --package roost

reference: setup
	$(CARGO) run --quiet --locked --profile checked --package roost -- man target/man
	cp target/man/reference.md docs/

# With the profile of the tests, so that dependencies are built only once.
lint: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --profile checked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --profile checked

# RUSTC_BOOTSTRAP allows the unstable compiler flags of the sanitizers, which libFuzzer needs. It writes new inputs to
# the first folder, and starts with the data of the tests.
FUZZ_RUN = RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run
FUZZ_TARGETS = hwloc lscpu synthetic archive rtapp ftrace memory settings object btf program
# The tests' data of a target.
SEEDS_hwloc = crates/machine/tests/data
SEEDS_rtapp = crates/workload/tests/data
SEEDS_ftrace = crates/measure/tests/data/trace
SEEDS_object = crates/scx/tests/data
fuzz: setup
	@command -v cargo-fuzz >/dev/null || $(CARGO) install --locked cargo-fuzz
	mkdir -p $(FUZZ_TARGETS:%=fuzz/corpus/%)
	$(foreach target,$(FUZZ_TARGETS),$(FUZZ_RUN) $(target) fuzz/corpus/$(target) $(SEEDS_$(target)) \
		-- -max_total_time=$(FUZZ_SECONDS) &&) true

# A case that fails prints the command that repeats it. RUNS=1 runs one case to its end, even beyond SECONDS. SCHEDULES
# does not end with SECONDS either.
SECONDS ?= 60
RUNS ?= 0
FAULTS ?=
SCHEDULER ?=
SCHEDULES ?=
SWARM_SWITCHES = $(FAULTS:%=faults=%) $(SCHEDULER:%=scheduler=%) $(SCHEDULES:%=schedules=%)
swarm: setup
	$(if $(BUILT),$(BUILT_IN)/roost-swarm,$(CARGO) run -q --locked --profile checked --package roost-swarm --) \
		$(SEED) $(SECONDS) $(RUNS) $(SWARM_SWITCHES)
