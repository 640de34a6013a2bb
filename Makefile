# The verbs of this repository. Each installs what it lacks on a Debian or Ubuntu machine with Rust, and says so.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test lint bench peers test-speed test-bare test-vm test-peers fuzz fuzz-build build clean programs shipped pinned lab-programs cni-programs store-programs fuzz-tools
# Verbs share the target folder, so `make lint test` runs them one after the other.
.NOTPARALLEL:

# How long `make fuzz` runs each target.
SECONDS_EACH ?= 20

# Which parts `make bench` runs, all unless told: `make bench PARTS=cni`.
PARTS ?=

# A program that needs no libraries starts in a third of the time: what the CNI plugins are built for.
STATIC := $(shell uname -m)-unknown-linux-musl

CARGO_DENY := 0.20.2
CARGO_FUZZ := 0.13.2
FUZZ := PATH="$(CURDIR)/target/tools/bin:$$PATH" cargo +nightly fuzz

# Namespaces need root: without it, test programs are run by sudo, and nothing else is.
ifneq ($(shell id -u),0)
TRIPLE := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
export CARGO_TARGET_$(TRIPLE)_RUNNER := $(CURDIR)/scripts/as-root
endif

help: ## list the verbs
	@echo "flannel, the network of pods. Verbs:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r verb what; \
	    do printf '  make %-11s %s\n' "$$verb" "$$what"; done

demo: pinned lab-programs ## build, then see two racks of nodes come up, break and heal (root)
	cargo build -p flanneld -p flannel-cni -p flannelctl -p flannel-lab
	scripts/as-root target/debug/flannelctl lab demo

test: programs lab-programs cni-programs store-programs test-speed ## run every test, those in network namespaces too (root)
	scripts/check-flags
	cargo test --workspace --no-fail-fast

lint: pinned fuzz-tools ## formatting, clippy, licences, bans, rustdoc, and that the fuzz targets build
	@scripts/need-tool cargo-deny $(CARGO_DENY)
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	scripts/check-cni-crates
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	target/tools/bin/cargo-deny --log-level error check bans licenses sources
	$(FUZZ) build --dev

test-speed: programs shipped lab-programs cni-programs ## count the instructions of the CNI plugins, and weigh them (root)
	@scripts/need-packages valgrind:valgrind
	scripts/as-root target/debug/flannel-bench size instructions

bench: shipped lab-programs cni-programs peers ## measure against the goals, and the CNI plugins against Go's (root)
	@scripts/need-packages valgrind:valgrind
	cargo build --release -p flanneld -p flannelctl -p flannel-bench
	cargo build --profile cni -p flannel-cni
	scripts/as-root target/release/flannel-bench $(PARTS)

peers: ## build the Go programs that we are tested against, once, into target/peers/bin
	@scripts/build-peers

test-peers: programs lab-programs cni-programs store-programs peers ## run the tests that need the Go programs, podman and containerd (root)
	@scripts/need-packages podman:podman containerd:containerd runc:runc busybox:busybox-static curl:curl
	CNI_PLUGINS="ours:$(CURDIR)/target/peers/bin" cargo test -p conformance-tests -- --peers
	ETCD="$(CURDIR)/target/peers/bin/etcd" cargo test -p flannel-leases --test etcd
	KUBE_PEERS="$(CURDIR)/target/peers/bin" cargo test -p flannel-leases --test kubernetes -- --ignored
	ETCD="$(CURDIR)/target/peers/bin/etcd" cargo test -p store-tests -- --peers
	@scripts/need-packages conntrack:conntrack
	@scripts/unpack-packages target/peers/firewalld firewalld
	ETCD="$(CURDIR)/target/peers/bin/etcd" cargo test -p rule-tests --test rules -- --peers

test-bare: ## try demo and test in a fresh Debian that has nothing but make, git and Rust (root, not in CI)
	scripts/as-root scripts/test-bare

test-vm: programs lab-programs cni-programs ## run on Debian's kernel, in a virtual machine, what this one may lack
	scripts/test-vm

fuzz: fuzz-tools ## run every fuzz target for SECONDS_EACH (20) seconds
	@for target in $$($(FUZZ) list); do \
	    echo "==> $$target"; mkdir -p "fuzz/corpus/$$target"; \
	    $(FUZZ) run "$$target" "fuzz/corpus/$$target" "fuzz/seeds/$$target" -- \
	        -max_total_time=$(SECONDS_EACH) -timeout=10 || exit 1; \
	done

fuzz-build: fuzz-tools ## build the fuzz targets as they are fuzzed, optimised
	$(FUZZ) build

build: pinned ## build every program, optimised, into target/release
	cargo build --release --workspace --bins

clean: ## remove everything that was built, tools included
	rm -rf target fuzz/target

programs: pinned
	cargo build --workspace --bins

# The CNI program as it is shipped.
shipped: pinned
	rustup target add $(STATIC)
	cargo build --profile cni --target $(STATIC) -p flannel-cni

pinned:
	@scripts/need-packages cc:gcc /usr/include/stdlib.h:libc6-dev
	@scripts/need-rust pinned

lab-programs:
	@scripts/need-packages ip:iproute2 bridge:iproute2 ping:iputils-ping unshare:util-linux nsenter:util-linux \
	    setpriv:util-linux mount:mount tcpdump:tcpdump hostname:hostname kill:procps ss:iproute2

# etcd is a store that clusters already have; a lab may run on it.
store-programs:
	@scripts/need-packages etcd:etcd-server etcdctl:etcd-client openssl:openssl

cni-programs:
	@scripts/need-packages /usr/lib/cni/bridge:containernetworking-plugins nft:nftables iptables-save:iptables \
	    strace:strace

fuzz-tools: pinned
	@scripts/need-packages c++:g++
	@scripts/need-rust nightly
	@scripts/need-tool cargo-fuzz $(CARGO_FUZZ)
