# ADDs and DELs on the nodes while something happens; sourced by hack/e2e.d/run.
# shellcheck shell=bash

LOADED=()
FIGURES= # of the last load

# start_load NODE...: all on one network, whose pods are namespaces that Kubernetes does not know.
start_load() {
    local node
    LOADED=("$@")
    rm -rf "$LOG/load"
    mkdir "$LOG/load"
    for node; do
        on "$node" mkdir -p /etc/cni/load.d
        on "$node" tee /etc/cni/load.d/load.conflist >/dev/null <<JSON
{
  "cniVersion": "1.0.0",
  "name": "load",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "br-storage",
      "ipam": {"type": "metes", "range": "10.57.0.0/24", "network_name": "load"}
    }
  ]
}
JSON
        launch "load/$node.log" on "$node" "$METES_ROOT/hack/e2e.d/load" "$LOG/load/$node"
    done
    for node; do eventually 20 "ADDs succeed on $node" grep -q "add ok" "$LOG/load/$node"; done
}

# stop_load: prints what the load has seen. No address may have been held twice at one time.
stop_load() {
    local node
    for node in "${LOADED[@]}"; do touch "$LOG/load/$node.stop"; done
    for node in "${LOADED[@]}"; do
        wait "${PID[load/$node.log]}" || die "the load on $node has failed: $(tail -n 5 "$LOG/load/$node.log")"
        unset "PID[load/$node.log]"
    done
    expect_no_double
    FIGURES=$(load_figures)
    echo "load: $FIGURES"
}

expect_no_double() {
    local doubled
    doubled=$(load_lines | sort -n | awk '
        $3 == "add" && $4 == "ok" { if ($6 in holder) print $6, "of", holder[$6], "and", $1; holder[$6] = $2 }
        $3 == "del" { delete holder[$6] }')
    [ -z "$doubled" ] || die "addresses were held twice at one time: $doubled"
}

# load_lines: those of all nodes, with the node's name after the time.
load_lines() {
    local node
    for node in "${LOADED[@]}"; do sed "s/ / $node /" "$LOG/load/$node"; done
}

load_figures() {
    load_lines | awk '$5 > longest { longest = $5 } $3 == "add" { n++; if ($4 != "ok") failed++ }
        END { printf "%d ADDs, %d failed, the longest ADD or DEL took %d ms", n, failed, longest }'
}

# failed_adds NODE...: how many ADDs of the load failed there.
failed_adds() { (cd "$LOG/load" && cat "$@") | awk '$2 == "add" && $3 != "ok"' | wc -l; }

# expect_none_failed: of the load.
expect_none_failed() {
    [ "$(failed_adds "${LOADED[@]}")" -eq 0 ] || die "ADDs failed: $(tail -n 5 "$LOG"/load/*.errors)"
}
