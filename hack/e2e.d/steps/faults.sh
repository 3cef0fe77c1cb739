# What fails while pods run: the API, etcd's leader, the network of a node; sourced by hack/e2e.d/run.
# shellcheck shell=bash

# Nothing of metes on a node asks the API. The controllers end too, as those with a leader's lease do without an API.
step_api_down() {
    local name seconds=${E2E_API_DOWN:-60}
    start_load "${NODES[@]}"
    kubectl -n work rollout restart deployment web
    for name in kube-apiserver kube-controller-manager kube-scheduler; do end_hard "$name"; done
    sleep "$seconds"
    start_apiserver
    start_controllers
    eventually 120 "all nodes are Ready" nodes_ready
    # Controllers and kubelets look again at their own time. Until then the pods are the old ones.
    eventually 240 "the pods are replaced" kubectl -n work rollout status deployment/web --timeout=5s
    stop_load
    expect_none_failed
    expect_whole "${NODES[@]}"
    outcome "$seconds s without the API: $FIGURES"
}

step_leader_lost() {
    local leader term
    start_load "${NODES[@]}"
    leader=$(leader)
    term=$(term)
    on "$leader" kill -KILL "$(on "$leader" pgrep -x etcd)"
    # The same member may win: the kubelet starts it within a second.
    eventually 60 "a leader is elected" elected_after "$term"
    eventually 90 "etcd has all members" all_members
    stop_load
    expect_none_failed
    expect_whole "${NODES[@]}"
    outcome "the leader on $leader was killed: $FIGURES"
}

# leader: prints the node whose member leads.
leader() {
    local node leader
    leader=$(etcdctl endpoint status --cluster -w json |
        jq -r '.[] | select(.Status.leader == .Status.header.member_id) | .Endpoint')
    for node in "${NODES[@]}"; do
        [ "$leader" != "https://${NODE_IP[$node]}:12379" ] || echo "$node"
    done
}

term() { etcdctl endpoint status --cluster -w json | jq '[.[].Status.raftTerm] | max'; }

elected_after() { [ "$(term)" -gt "$1" ] && [ -n "$(leader)" ]; }

# gamma loses its network for long enough that ADDs there give up. The others do not notice.
step_node_cut_off() {
    local there elsewhere
    start_load "${NODES[@]}"
    ip link set machines-gamma down
    eventually 90 "ADDs fail on gamma" fails_on gamma
    eventually 120 "gamma is NotReady" node_is Unknown gamma
    ip link set machines-gamma up
    eventually 90 "gamma is Ready" node_is True gamma
    eventually 90 "etcd has all members" all_members
    eventually 60 "ADDs succeed on gamma" last_ok gamma
    stop_load
    there=$(failed_adds gamma)
    elsewhere=$(failed_adds alpha beta)
    [ "$elsewhere" -eq 0 ] || die "ADDs failed on nodes that were not cut off: $elsewhere"
    expect_whole "${NODES[@]}"
    outcome "$there ADDs failed on gamma and none elsewhere, and no address was held twice"
}

fails_on() { [ "$(failed_adds "$1")" -gt 0 ]; }

last_ok() { grep ' add ' "$LOG/load/$1" | tail -n 1 | grep -q ' ok '; }
