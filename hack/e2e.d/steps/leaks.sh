# Addresses that nobody gives back, and the CronJob that frees them; sourced by hack/e2e.d/run.
# shellcheck shell=bash

step_leaks() {
    local leaked
    leak_by_failing_plugin
    leak_by_crash
    leaked=$(wc -l <<<"$LEAKED")
    cronjob_frees
    outcome "$leaked addresses leaked and were freed; no record of a running pod changed"
}

# On alpha. The wrapper fails only for DEL, so that the pods that replace the deleted ones get addresses. It is mounted
# over the plugin: the installer, which has a mount of its own there, would put the plugin back.
leak_by_failing_plugin() {
    local victims plugin=$CNI_BIN/metes
    victims=$(where alpha | head -n 3)
    on alpha cp -p "$plugin" "$plugin".kept
    on alpha install -m 0755 /dev/stdin "$plugin".failing <<SH
#!/bin/sh
if [ "\$CNI_COMMAND" = DEL ]; then
    echo '{"cniVersion": "1.0.0", "code": 999, "msg": "made to fail by hack/e2e"}'
    exit 1
fi
exec $plugin.kept "\$@"
SH
    on alpha mount --bind "$plugin".failing "$plugin"
    force_delete "$victims"
    eventually 60 "a DEL fails" grep -q "made to fail by hack/e2e" "$LOG/alpha/containerd"
    remove_sandboxes alpha "$victims"
    on alpha umount --lazy "$plugin"
    on alpha rm "$plugin".failing "$plugin".kept
    LEAKED=$victims
    expect_agreement 12
    expect_leaked
}

# remove_sandboxes NODE LINES: with their networks, without the kubelet. containerd looks for existing sandboxes only
# when it starts.
remove_sandboxes() {
    local node=$1 uid id namespace addresses
    while read -r _ _ uid; do
        for id in $(on "$node" ctr --namespace k8s.io containers list --quiet \
            "labels.\"io.kubernetes.pod.uid\"==$uid" </dev/null); do
            on "$node" ctr --namespace k8s.io task delete --force "$id" 2>>"$LOG/ctr" </dev/null || true
            on "$node" ctr --namespace k8s.io containers delete "$id" 2>>"$LOG/ctr" </dev/null || true
        done
    done <<<"$2"
    mapfile -t addresses < <(cut -d ' ' -f 1 <<<"$2")
    for namespace in $(namespaces_with "$node" eth0 "${addresses[@]}"); do
        on "$node" ip netns delete "${namespace##*/}"
    done
    stop_hard "$node" containerd
    start_containerd "$node"
}

# Makes beta a node that comes back without its containers: no sandboxes, no DELs, the same pods to run.
leak_by_crash() {
    local victims survivors sandboxes
    victims=$(where beta | head -n 2)
    survivors=$(where beta | grep -vxF "$victims")
    sandboxes=$(sandboxes_of "$survivors")
    stop_hard beta kubelet
    stop_hard beta containerd
    on beta "$METES_ROOT/hack/e2e.d/lose-containers" 2>>"$LOG/lose"
    force_delete "$victims"
    LEAKED+=$'\n'$victims
    start_containerd beta
    import_images beta
    start_kubelet beta
    eventually 120 "the pods that survived have new sandboxes" all_new "$sandboxes" "$survivors"
    expect_agreement 12
    expect_leaked
    [ -z "$(comm -23 <(echo "$survivors") <(held | sort))" ] || die "a pod that survived lost its address"
    eventually 60 "etcd has all members" all_members
    ping_pods
    echo "the pods that were not deleted have new sandboxes at the addresses they had"
}

all_members() { [ "$(members)" -eq ${#NODES[@]} ]; }

# sandboxes_of LINES: prints the ids of the sandboxes that hold the addresses.
sandboxes_of() {
    records | jq -r '"\(.address) \(.pod.namespace)/\(.pod.name) \(.pod.uid) \(.container_id)"' |
        grep -F "$1" | cut -d ' ' -f 4 | sort
}

# all_new SANDBOXES LINES: checks that none of the sandboxes holds an address of the lines any more.
all_new() { [ -z "$(comm -12 <(echo "$1") <(sandboxes_of "$2"))" ]; }

expect_leaked() {
    local given_back
    given_back=$(comm -23 <(sort <<<"$LEAKED") <(held | sort))
    [ -z "$given_back" ] || die "these should have leaked, but were given back: $given_back"
    echo "held by pods that are no more:"
    echo "$LEAKED"
}

# It must run twice: an owner is freed only if an earlier pass, more than the grace ago, also saw it without its pod.
cronjob_frees() {
    local kept
    kept=$(rows_without_leaked)
    suspend_cronjob false
    eventually 240 "no address is held by a pod that is no more" free_or_failed
    suspend_cronjob true
    eventually 60 "no job runs" no_job_runs
    kubectl -n metes get jobs
    logs_of reconciler
    no_job_failed >/dev/null || die "a job of the CronJob failed: its words are above"
    LEAKED=
    expect_agreement 12
    [ "$(rows_without_leaked)" = "$kept" ] || die "a record of a running pod has changed; before: $kept"
    show_pods
}

# So many orphans look as if the API had lost its pods: nothing is freed before a person says so. Meanwhile the
# reconciler runs as a Deployment.
step_brake() {
    local leader kept
    kept=$(rows_without_leaked)
    kubectl apply -k "$WORK/copy/hack/e2e.d/serve" -l app.kubernetes.io/name=metes-reconciler
    eventually 90 "two reconcilers are ready" kubectl -n metes rollout status deployment/metes-reconciler --timeout=5s
    vanish 60
    eventually 60 "the brake holds" leader_passes brake
    leader=$(leading_reconciler)
    kubectl -n metes delete pod --field-selector "spec.nodeName=$leader" -l app.kubernetes.io/name=metes-reconciler
    eventually 30 "another reconciler leads" reconciled_elsewhere "$leader"
    eventually 30 "the brake holds there, too" leader_passes brake
    eventually 90 "the viewer tells of the brake" viewer_says "metes_reconciler_brake 1"
    are_vanished 60 || die "something was freed in spite of the brake"
    run_job dry-run metes-reconciler-dry-run
    are_vanished 60 || die "a dry run has freed something"
    run_job force metes-reconciler-force
    are_vanished 0 || die "a pass by force has left something"
    eventually 30 "the brake is off" leader_passes success
    vanish 3
    eventually 60 "the Deployment frees by itself" are_vanished 0
    [ "$(rows_without_leaked)" = "$kept" ] || die "a record of a running pod has changed; before: $kept"
    kubectl -n metes delete deployment,service metes-reconciler
    outcome "60 orphans were kept by both reconcilers of a Deployment, and freed by one Job by force; 3 without one"
}

# vanish COUNT: so many containers on alpha get addresses, of pods that Kubernetes does not know.
vanish() {
    # shellcheck disable=SC2016 # The node's shell has its own words.
    on alpha bash -c 'for ((i = 0; i < $1; i++)); do
        read -r uid </proc/sys/kernel/random/uuid
        CNI_COMMAND=ADD CNI_CONTAINERID="vanished-$i" CNI_NETNS=/run/netns/vanished CNI_IFNAME=eth0 CNI_PATH="$2" \
            CNI_ARGS="K8S_POD_NAMESPACE=work;K8S_POD_NAME=vanished-$i;K8S_POD_UID=$uid" "$2/metes" <<<"$3" || exit
    done' vanish "$1" "$CNI_BIN" \
        '{"cniVersion": "1.0.0", "name": "vanished", "ipam": {"type": "metes", "range": "10.58.0.0/24",
          "network_name": "vanished"}}' >>"$LOG/vanish"
    are_vanished "$1" || die "$1 containers should have addresses"
}

are_vanished() { [ "$(records | jq -s 'map(select(.network == "vanished")) | length')" -eq "$1" ]; }

# leading_reconciler: prints the node with the process that makes the passes.
leading_reconciler() {
    local node
    for node in "${NODES[@]}"; do
        ! grep -qx "metes_reconciler_leader 1" <(metrics_of "$node") || echo "$node"
    done
}

metrics_of() { curl --silent --max-time 2 "http://${NODE_IP[$1]}:12382/metrics"; }

# leader_passes OUTCOME: the leader has made such passes.
leader_passes() {
    grep "^metes_reconciler_passes_total{outcome=\"$1\"} [1-9]" <(metrics_of "$(leading_reconciler)")
}

# viewer_says LINE: as Prometheus asks the viewer, which is in its node's network here.
viewer_says() {
    local node
    node=$(kubectl -n metes get pods -l app.kubernetes.io/name=metes-viewer -o jsonpath='{.items[0].spec.nodeName}')
    grep -x "$1" <(curl --silent --max-time 2 "http://${NODE_IP[$node]}:12385/metrics")
}

reconciled_elsewhere() {
    local node
    node=$(leading_reconciler)
    [ -n "$node" ] && [ "$node" != "$1" ]
}

# logs_of CONTAINER: of the pods that are still known, and of those that are not.
logs_of() { find "$LOG" -path "*/pods/metes_*/$1/*.log" -exec tail -n +1 {} +; }

rows_without_leaked() {
    records | jq -c --arg leaked "$LEAKED" '($leaked | split("\n") | map(split(" ")[0])) as $gone
            | select(.pod.namespace == "work") | select(.address | IN($gone[]) | not)'
}

suspend_cronjob() { kubectl -n metes patch cronjob metes-reconciler --patch "{\"spec\": {\"suspend\": $1}}"; }

free_or_failed() { leaked_are_free || ! no_job_failed; }

leaked_are_free() { [ -z "$(comm -12 <(sort <<<"$LEAKED") <(held | sort))" ]; }

no_job_failed() {
    kubectl -n metes get jobs -o json | jq -e '[.items[] | select((.status.failed // 0) > 0)] == []'
}

no_job_runs() {
    kubectl -n metes get jobs -o json | jq -e '[.items[] | select((.status.active // 0) > 0)] == []'
}
