# Shared by the scripts in this folder; sourced, never run.
# Functions write messages to stderr and results to stdout.
# shellcheck shell=bash

set -euo pipefail

METES_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly METES_ROOT
cd "$METES_ROOT"

# Cargo takes a relative CARGO_TARGET_DIR from the current folder, which is the root from here on.
TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")
TOOLS_DIR=$TARGET_DIR/tools
export CARGO_TARGET_DIR=$TARGET_DIR
export TOOLS_DIR
readonly TARGET_DIR TOOLS_DIR

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

have() { type -P "$1" >/dev/null; }

# start_timings: from here on, this script and those that it calls note how long their parts take. tell_timings, which
# belongs into the trap of the script that started, prints it.
start_timings() {
    METES_TIMINGS=$(mktemp)
    export METES_TIMINGS
    TIMINGS_BEGIN=$SECONDS
}

tell_timings() {
    [ -n "${TIMINGS_BEGIN:-}" ] || return 0
    say "what took how long, in the order in which it ended; some parts run at the same time:"
    took "all" "$TIMINGS_BEGIN"
    cat "$METES_TIMINGS" >&2
    rm "$METES_TIMINGS"
}

# took NAME BEGIN: notes a part. BEGIN is what $SECONDS was at its beginning.
took() { [ -z "${METES_TIMINGS:-}" ] || printf '%5d s  %s\n' $((SECONDS - $2)) "$1" >>"$METES_TIMINGS"; }

# timed NAME COMMAND...: COMMAND is a program: in a function, `set -e` would not hold.
timed() {
    local name=$1 begin=$SECONDS status=0
    shift
    "$@" || status=$?
    took "$name" "$begin"
    return $status
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# need_root WHY
need_root() { is_root || die "$1 needs root: run this as root"; }

# The version that Cargo.toml says.
version_of_sources() { sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1; }

# image_of NAME: with the tag that manifests/ gives it.
image_of() { echo "$1:$(sed -n "\|name: $1\$|,\|newTag|s/ *newTag: //p" manifests/images/kustomization.yaml)"; }

# at_least FOUND WANTED: compares dotted versions.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# A person must install Rust and Go: the distribution's are too old.
need_cargo() {
    have cargo || [ ! -x "$HOME/.cargo/bin/cargo" ] || PATH=$HOME/.cargo/bin:$PATH
    have cargo || die "cargo is missing: install Rust with rustup (https://rustup.rs)"
}

need_go() {
    local wanted=1.24 found
    have go || [ ! -x /usr/local/go/bin/go ] || PATH=/usr/local/go/bin:$PATH
    have go || die "go is missing: install Go $wanted or newer (https://go.dev/dl)"
    found=$(go env GOVERSION)
    at_least "${found#go}" "$wanted" || die "go is $found: install Go $wanted or newer (https://go.dev/dl)"
}

# ensure_packages PACKAGE...: installs those that dpkg does not know as installed.
ensure_packages() {
    local package missing=()
    have apt-get || die "install by your own package manager: $*"
    for package in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    is_root || die "install first: apt-get install ${missing[*]}"
    say "installing: ${missing[*]}"
    refresh_packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >&2
}

# A fresh machine has no package lists, an old one has stale lists. One refresh in a run is enough.
refresh_packages() {
    [ -z "${METES_PACKAGES_FRESH:-}" ] || return 0
    apt-get update >&2 || say "apt-get update failed: going on with the package lists that are here"
    export METES_PACKAGES_FRESH=1
}

# Installs only what is missing on PATH, so that a tool that is there already is not installed twice.
ensure_deps() {
    local pair packages=()
    for pair in cc:build-essential protoc:protobuf-compiler ip:iproute2 ping:iputils-ping \
        flock:util-linux openssl:openssl curl:curl; do
        have "${pair%%:*}" || packages+=("${pair#*:}")
    done
    # In Debian, protoc's own .proto files are a separate package.
    if ! have protoc || [ "$(type -P protoc)" = /usr/bin/protoc ]; then
        [ -e /usr/include/google/protobuf/descriptor.proto ] || packages+=(libprotobuf-dev)
    fi
    [ ${#packages[@]} -eq 0 ] || ensure_packages "${packages[@]}"
}

# port_in_use PORT: succeeds if a process listens there.
port_in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port: prints a port below the ephemeral range, so that no outgoing connection takes it before it is used.
free_port() {
    local port try
    for try in {1..100}; do
        port=$((10000 + (RANDOM * 32768 + RANDOM + try) % 20000))
        port_in_use "$port" || { echo "$port"; return 0; }
    done
    die "no free port found in 100 tries"
}

# start_etcd FOLDER [FLAG...]: starts $ETCD on free ports of the loopback, waits until it answers,
# and sets ETCD_PID and ETCD_ENDPOINT. The caller's trap ends it with stop_etcd.
start_etcd() {
    local folder=$1 client peer try
    shift
    mkdir -p "$folder"
    client=$(free_port)
    peer=$(free_port)
    while [ "$peer" = "$client" ]; do peer=$(free_port); done
    ETCD_ENDPOINT=http://127.0.0.1:$client
    # In its own session, so that Ctrl-C reaches only the script, which then ends it.
    setsid "$ETCD" --name demo --data-dir "$folder/data" --log-level warn \
        --listen-client-urls "$ETCD_ENDPOINT" --advertise-client-urls "$ETCD_ENDPOINT" \
        --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "demo=http://127.0.0.1:$peer" "$@" </dev/null >"$folder/log" 2>&1 &
    ETCD_PID=$!
    for try in {1..300}; do
        kill -0 "$ETCD_PID" 2>/dev/null || break
        if curl --silent --noproxy '*' --max-time 1 "$ETCD_ENDPOINT/health" 2>/dev/null | grep -q '"true"'; then
            return 0
        fi
        sleep 0.1
    done
    tail -n 20 "$folder/log" >&2
    die "etcd did not answer at $ETCD_ENDPOINT within $((try / 10)) s; its last words are above"
}

stop_etcd() {
    [ -n "${ETCD_PID:-}" ] || return 0
    kill "$ETCD_PID" 2>/dev/null || true
    wait "$ETCD_PID" 2>/dev/null || true
    ETCD_PID=
}
