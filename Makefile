# Towpath: the commands of the repository. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
export CARGO_BUILD_JOBS ?= $(shell nproc)

.PHONY: help demo test check lint deny fuzz soak build bench-proxy bench-gateway bench-config bench-idle bench-route bench-ring bench-balance bench-fresh bench-control drill drill-zones object-storage ci clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

build: ## the release binary, target/release/towpath
	@scripts/ensure.sh "The build" cc
	cargo build --release --locked --package towpath

demo: ## start the platform with the sample shop (CHECK=1: try every printed command, stop, exit 0 or 1)
	@scripts/ensure.sh "The demo" cc python3 venv node npm go curl
	@examples/shop/demo.sh

test: ## every test; starts its own NATS and PostgreSQL
	@scripts/ensure.sh "The test suite" cc python3 venv node npm java maven go php curl git nats postgres pgbouncer redis iproute faketime openssl haproxy
	@scripts/ensure-cargo.sh cargo-nextest 0.9.143 "it runs the tests, each in a process of its own"
	@tests/object-storage/ensure.sh >/dev/null
	cargo nextest run --workspace --locked

S3_SERVER ?=
object-storage: ## S3 clients through the gateway to S3_SERVER (host:port that takes any key; default: moto, started by it)
	@scripts/ensure.sh "The test" cc python3 venv openssl
	cargo build --quiet --locked --package towpath
	@$$(tests/object-storage/ensure.sh)/bin/python tests/object-storage/proof.py $${CARGO_TARGET_DIR:-target}/debug/towpath $(if $(S3_SERVER),--server $(S3_SERVER))

lint: ## formatting, clippy, documentation, layers, sizes
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
	cargo xtask layers
	cargo xtask size
	cargo xtask adrs

deny: ## licences, bans and sources of all dependencies
	@scripts/ensure-cargo.sh cargo-deny 0.20.2 "it checks licences and sources of dependencies"
	cargo deny --log-level error check licenses bans sources
	@scripts/advisories.sh

FUZZ_SECONDS ?= 20
fuzz: ## every fuzz target for FUZZ_SECONDS (default 20)
	@scripts/ensure.sh "The fuzzer" cc cxx
	cargo xtask fuzz $(FUZZ_SECONDS)

SEEDS ?= 200
soak: ## SEEDS simulated clusters (default 200) under faults, with fresh seeds
	cargo run --quiet --locked --package towpath-sim --bin simulate -- --seeds $(SEEDS)

bench-route: ## match + lane + tier + pick over 100,000 routes; one change of that table
	cargo run --quiet --release --locked --package towpath-route --example bench_route

bench-ring: ## 100 managers and 1,000,000 resources: lookups, balance, what a change moves and costs
	cargo run --quiet --release --locked --package towpath-plan --example bench_ring

bench-balance: ## the balancers against each other, discrete-event and seeded
	cargo run --quiet --release --locked --package towpath-sim --bin bench_balance

bench-proxy: ## CPU per request beside nginx and HAProxy, same work, same run
	@scripts/ensure.sh "The bench" cc python3 nginx haproxy wrk
	@bench/proxy/run.sh

bench-gateway: build ## the gateway alone, with plugins, 1,001 routes, HTTP/2 and TLS, beside nginx (PARTS="http h2 tls plugins")
	@scripts/ensure.sh "The bench" cc python3 nginx wrk h2load openssl
	@python3 bench/gateway/run.py $${CARGO_TARGET_DIR:-target}/release/towpath $(PARTS)

bench-config: build ## 100,000 routes: loading, one more under load, creations and deletions without end
	@scripts/ensure.sh "The bench" cc python3
	@python3 bench/gateway/config.py $${CARGO_TARGET_DIR:-target}/release/towpath

bench-idle: build ## bytes of memory an idle connection and a WebSocket
	@scripts/ensure.sh "The bench" cc python3
	@python3 bench/gateway/idle.py $${CARGO_TARGET_DIR:-target}/release/towpath

bench-fresh: build ## from a ready instance to its first answer; from a killed one to silence
	@scripts/ensure.sh "The bench" python3
	@python3 bench/fresh/run.py $${CARGO_TARGET_DIR:-target}/release/towpath

KILLS ?= 50
bench-control: build ## the control plane: writes beside pgbench, kills, more managers, 1,000 cells (PARTS="load kills"; KILLS=3)
	@scripts/ensure.sh "The bench" cc python3 nats postgres wrk
	@KILLS=$(KILLS) python3 bench/control/run.py $${CARGO_TARGET_DIR:-target}/release/towpath $(PARTS)

drill-zones: build ## kill a node and a zone behind a gateway under load: failed requests and time to shift (CHECK=1)
	@scripts/ensure.sh "The drill" python3
	@python3 bench/drill/zones.py $${CARGO_TARGET_DIR:-target}/release/towpath

drill: build ## kill each part of a small cluster under load and measure what that costs (PARTS="manager nats"; CHECK=1)
	@scripts/ensure.sh "The drill" cc python3 nats postgres
	@python3 bench/drill/run.py $${CARGO_TARGET_DIR:-target}/release/towpath $(PARTS)

check: lint test ## lint and test

ci: ## what CI runs
	.ci/run

clean: ## what the demo and the benches left
	@examples/shop/clean.sh
	rm -rf target/demo target/bench
