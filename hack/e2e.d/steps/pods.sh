# Networks, pools, and what happens to addresses as pods come and go; sourced by hack/e2e.d/run.
# shellcheck shell=bash

readonly FIRST_RANGE=10.244.0.2-10.244.0.40/24 SECOND_RANGE=10.244.0.101-10.244.0.200/24

# Multus would add the second network; here containerd itself does, for a RuntimeClass.
step_networks() {
    kubectl apply -f hack/e2e.d/two-networks.yaml
    expect_agreement 15
    eventually 30 "three pods have an address of the second network" storage_held 3
    records | jq -r 'select(.network == "storage") | "\(.address) \(.ifname) \(.pod.name) on \(.node)"'
    ping_pods
    ping_storage
    kubectl -n work delete daemonset two-networks
    expect_agreement 12
    eventually 60 "the second network is empty" storage_held 0
    outcome "3 pods on 3 nodes had an address of each network, and reached each other on both"
}

storage_held() { [ "$(storage_addresses | sort -u | wc -l)" -eq "$1" ]; }

storage_addresses() { records | jq -r 'select(.network == "storage") | .address'; }

# From each pod that is in it.
ping_storage() {
    local addresses
    mapfile -t addresses < <(storage_addresses)
    each ping_storage_from "${addresses[@]}"
}

ping_storage_from() {
    local node=$1 namespace address reached=0
    for namespace in $(namespaces_with "$node" eth1 "${@:2}"); do
        for address in "${@:2}"; do
            eventually 30 "a pod on $node reaches $address on its second interface" \
                on "$node" nsenter --net="$namespace" ping -q -c 1 -W 1 -I eth1 "$address"
        done
        reached=$((reached + 1))
    done
    [ "$reached" -eq 1 ] || die "on $node, $reached pods have a second interface"
}

step_scale() {
    local number
    for number in 3 18 12; do
        kubectl -n work scale deployment web --replicas=$number
        expect_agreement $number
        echo "$number pods hold $number addresses"
    done
    ping_pods
    outcome "3, 18 and 12 pods held as many addresses"
}

# The first range has too few addresses for all pods. They start when the pool has both. Then the first one is drained.
step_pool() {
    local network=$CNI_CONF/10-default.conflist drain names
    metes pool from-nad "$network" --name pods | operator pool apply --yes -f -
    metes pool from-nad "$network" --name pods --nad >"$WORK/network"
    each write_network "$network"
    pool_of "$FIRST_RANGE" | operator pool apply --yes -f -
    expect_agreement 12
    kubectl -n work scale deployment web --replicas=60
    eventually 60 "pods wait for addresses" pods_wait
    pool_of "$FIRST_RANGE" "$SECOND_RANGE" | operator pool apply --yes -f -
    WAIT=180 expect_agreement 60
    metes pool status
    operator pool drain pods --range "$FIRST_RANGE" --yes --wait </dev/null >"$LOG/drain" 2>&1 &
    drain=$!
    eventually 30 "the first range drains" grep -q '^held in' "$LOG/drain"
    readarray -t names < <(in_first_range | cut -d ' ' -f 2)
    kubectl -n work delete pod "${names[@]#*/}" --wait=false >>"$LOG/kubectl"
    wait $drain || die "the drain has failed: $(tail -n 5 "$LOG/drain")"
    tail -n 2 "$LOG/drain"
    expect_agreement 60
    [ -z "$(in_first_range)" ] || die "pods have addresses of the range that was drained: $(in_first_range)"
    operator pool close pods --range "$FIRST_RANGE" --yes
    # A Deployment that shrinks may take all its pods from one node. New pods are spread over all.
    kubectl -n work scale deployment web --replicas=0
    eventually 120 "all addresses are given back" nothing_held
    kubectl -n work scale deployment web --replicas=12
    expect_agreement 12
    ping_pods
    outcome "60 pods took the second range, and ${#names[@]} left the first one, which was drained and closed"
}

# write_network NODE FILE: replaces the network by what is in $WORK/network.
write_network() {
    on "$1" cp "$WORK/network" "$2.new"
    on "$1" mv "$2.new" "$2"
}

# pool_of RANGE...: prints the pool of the nodes' pods.
pool_of() {
    printf 'pool: pods\norder: lowest\nranges:\n'
    printf -- "- {range: %s, gateway: $GATEWAY}\n" "$@"
    printf 'routes:\n- {dst: 0.0.0.0/0}\n'
}

pods_wait() { kubectl -n work get events | grep "pool pods of network default"; }

# in_first_range: prints those lines of alive whose addresses lie there.
in_first_range() { alive | awk -F '[. ]' '$4 <= 40'; }
