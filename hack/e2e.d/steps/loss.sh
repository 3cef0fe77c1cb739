# Nodes that are lost and come back; sourced by hack/e2e.d/run.
# shellcheck shell=bash

# gamma is turned off, with its member of etcd. A node that is not Ready may still run its pods, until an operator says
# that it is off.
step_node_loss() {
    local lost
    start_load alpha beta
    lost=$(where gamma)
    turn_off gamma
    eventually 60 "gamma is NotReady" node_is Unknown gamma
    eventually 120 "12 pods run on the other nodes" twelve_run
    pass
    [ -z "$(comm -23 <(echo "$lost") <(held | sort))" ] || die "an address of a pod on gamma was freed too early"
    kubectl taint node gamma node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    eventually 120 "gamma's pods are given up" gone "$lost"
    pass
    eventually 120 "the addresses of gamma's pods are free" freed_by_passes "$lost"
    stop_load
    expect_none_failed
    turn_on gamma
    kubectl taint node gamma node.kubernetes.io/out-of-service-
    eventually 120 "gamma is Ready" node_is True gamma
    eventually 120 "etcd has all members" all_members
    expect_whole "${NODES[@]}"
    outcome "$(wc -l <<<"$lost") addresses of gamma were kept while nobody knew, and freed after the taint; $FIGURES"
}

# node_is STATUS NODE: of its condition Ready.
node_is() {
    kubectl get node "$2" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}' | grep -x "$1"
}

twelve_run() { [ "$(running)" -eq 12 ]; }

# gone LINES: none of these pods is known to Kubernetes.
gone() { [ -z "$(comm -12 <(echo "$1") <(alive))" ]; }

# pass: the reconciler makes a pass, as an operator asks for one.
pass() {
    kubectl -n metes delete job pass --ignore-not-found >>"$LOG/kubectl"
    kubectl -n metes create job pass --from=cronjob/metes-reconciler >>"$LOG/kubectl"
    eventually 90 "a pass of the reconciler ends" kubectl -n metes wait --for=condition=complete job/pass --timeout=5s
    kubectl -n metes logs job/pass
}

freed_by_passes() {
    pass
    [ -z "$(comm -12 <(echo "$1") <(held | sort))" ]
}

# The member of a node that is drained does not come back to it, so the next drain waits, and a majority stays.
step_drain() {
    start_load "${NODES[@]}"
    drain alpha 120s || die "alpha cannot be drained"
    if drain beta 20s; then die "two nodes of etcd are drained at once"; fi
    grep -q "disruption budget" "$LOG/drain" || die "another reason: $(tail -n 3 "$LOG/drain")"
    [ "$(members)" -eq 2 ] || die "etcd has $(members) members, not 2"
    kubectl uncordon alpha
    drain beta 120s || die "beta cannot be drained after alpha is back"
    [ "$(members)" -eq 2 ] || die "etcd has $(members) members, not 2"
    kubectl uncordon beta
    eventually 120 "etcd has all members" all_members
    stop_load
    expect_none_failed
    # The pods that moved spread again.
    kubectl -n work rollout restart deployment web
    expect_whole "${NODES[@]}"
    outcome "two nodes of etcd were drained, one after the other; $FIGURES"
}

# drain NODE TIMEOUT
drain() {
    kubectl drain "$1" --ignore-daemonsets --delete-emptydir-data --timeout="$2" >>"$LOG/drain" 2>&1
}

# gamma comes back as a machine that was installed anew under its old name.
step_empty_disk() {
    local seconds=$SECONDS
    turn_off gamma
    rm -rf "$WORK/nodes/gamma/disk"
    turn_on gamma
    import_images gamma
    eventually 120 "the installer is ready on gamma" kubectl -n metes-system rollout status daemonset/metes-installer \
        --timeout=5s
    write_networks gamma
    # A step before this one may have moved the network into a pool.
    on alpha cat "$CNI_CONF/10-default.conflist" >"$WORK/network"
    write_network gamma "$CNI_CONF/10-default.conflist"
    eventually 120 "gamma is Ready" node_is True gamma
    eventually 180 "etcd has all members" all_members
    etcdctl member list -w table
    # No DEL comes for the sandboxes that were on the disk.
    eventually 120 "passes free what gamma's pods had" agree_after_pass 12 0
    expect_whole gamma
    outcome "gamma has an empty disk, and serves as a member and for pods again after $((SECONDS - seconds)) s"
}

# expect_whole NODE...: all is as it should be, and the nodes serve pods.
expect_whole() {
    local figures=$FIGURES
    expect_agreement 12
    start_load "$@"
    stop_load
    FIGURES=$figures
    expect_none_failed
    ping_pods
    expect_no_violation
}

# All nodes lose power at the same time, and come back with their disks.
step_power_cut() {
    local before node seconds
    before=$(alive)
    for node in "${NODES[@]}"; do turn_off "$node"; done
    eventually 60 "all nodes are NotReady" none_ready
    seconds=$SECONDS
    for node in "${NODES[@]}"; do turn_on "$node"; done
    eventually 180 "all nodes are Ready" nodes_ready
    eventually 180 "etcd has all members" all_members
    WAIT=240 expect_whole "${NODES[@]}"
    outcome "after $((SECONDS - seconds)) s all pods run, $(comm -12 <(echo "$before") <(alive) | wc -l) of 12 at the" \
        "address they had"
}

none_ready() { [ "$(nodes_are True)" -eq 0 ]; }
