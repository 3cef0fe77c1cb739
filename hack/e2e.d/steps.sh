# The steps that run on the node; sourced by hack/e2e.d/node.
# shellcheck shell=bash

readonly FIRST_RANGE=10.244.0.2-10.244.0.15/24 SECOND_RANGE=10.244.0.101-10.244.0.200/24
LEAKED= # what nobody gives back any more: lines like those of held

start_runtime() {
    mount_folders
    make_network
    start_containerd
    probe_container >"$LOG/probe" 2>&1 || {
        tail -n 3 "$LOG/probe" >&2
        say "hack/e2e cannot run here: containerd and runc cannot run a container on this machine, see above"
        exit "$CANNOT_RUN_HERE"
    }
}

node_becomes_ready() {
    make_certificates
    start_etcds
    start_control_plane
    start_kubelet
    eventually 120 "the node is Ready" node_is_ready
    kubectl get nodes -o wide
}

node_is_ready() {
    kubectl get node "$NODE" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}' | grep -x True
}

install_plugin() {
    kubectl apply -f manifests/namespace.yaml
    kubectl -n metes create secret generic metes-client \
        --from-file=ca.crt="$PKI/etcd.crt" --from-file=tls.crt="$PKI/metes.crt" --from-file=tls.key="$PKI/metes.key"
    kubectl apply -k hack/e2e.d/cluster
    eventually 60 "the installer's pod is ready" kubectl -n metes rollout status daemonset/metes-installer --timeout=5s
    find "$CNI_BIN/metes" /etc/cni/net.d/metes.d -type f -exec ls -l {} +
    metes check
}

deployment_comes_up() {
    kubectl create namespace work
    eventually 30 "the service account is there" kubectl -n work get serviceaccount default
    kubectl apply -f hack/e2e.d/workload.yaml
    expect_agreement 8
    show_pods
    [ "$(held | cut -d ' ' -f 1 | sort -u | wc -l)" -eq 8 ] || die "the addresses are not distinct"
    ping_pods
}

scale_down_and_up() {
    local number
    for number in 3 10 8; do
        kubectl -n work scale deployment web --replicas=$number
        expect_agreement $number
        echo "$number pods hold $number addresses"
    done
    ping_pods
}

metes() { "$CNI_BIN/metes" "$@"; }

# The first range has too few addresses for all pods. They start when the pool has both. Then the first one is drained.
pool_grows_and_drains() {
    local network=/etc/cni/net.d/10-default.conflist drain names
    metes pool from-nad $network --name pods | metes pool apply --yes -f -
    metes pool from-nad $network --name pods --nad >$network.new
    mv $network.new $network
    pool_of "$FIRST_RANGE" | metes pool apply --yes -f -
    expect_agreement 8
    kubectl -n work scale deployment web --replicas=60
    eventually 60 "pods wait for addresses" pods_wait
    pool_of "$FIRST_RANGE" "$SECOND_RANGE" | metes pool apply --yes -f -
    expect_agreement 60
    metes pool status
    timeout 120 "$CNI_BIN/metes" pool drain pods --range "$FIRST_RANGE" --yes --wait >"$LOG/drain" 2>&1 &
    drain=$!
    eventually 30 "the first range drains" grep -q '^held in' "$LOG/drain"
    readarray -t names < <(in_first_range | cut -d ' ' -f 2)
    kubectl -n work delete pod "${names[@]#*/}" --wait=false
    wait $drain || die "the drain has failed: $(tail -n 5 "$LOG/drain")"
    tail -n 2 "$LOG/drain"
    expect_agreement 60
    [ -z "$(in_first_range)" ] || die "pods have addresses of the range that was drained: $(in_first_range)"
    metes pool close pods --range "$FIRST_RANGE" --yes
    kubectl -n work scale deployment web --replicas=8
    expect_agreement 8
    ping_pods
}

# pool_of RANGE...: prints the pool of the node's pods.
pool_of() {
    printf 'pool: pods\norder: lowest\nranges:\n'
    printf -- "- {range: %s, gateway: $GATEWAY}\n" "$@"
}

pods_wait() { kubectl -n work get events | grep "pool pods of network default"; }

# in_first_range: prints those lines of alive whose addresses lie there.
in_first_range() { alive | awk -F '[. ]' '$4 <= 15'; }

# held, alive: print lines of "ADDRESS NAMESPACE/NAME UID": what metes holds, and which pods Kubernetes runs.
held() {
    metes list -o json | jq -r '.[] | "\(.address) \(.pod.namespace)/\(.pod.name) \(.pod.uid)"' | sort
}

alive() {
    kubectl get pods --all-namespaces -o json | jq -r '.items[]
        | select(.spec.hostNetwork != true and .status.podIP != null)
        | select(.status.phase != "Succeeded" and .status.phase != "Failed")
        | "\(.status.podIP) \(.metadata.namespace)/\(.metadata.name) \(.metadata.uid)"' | sort
}

show_pods() {
    metes list
    kubectl -n work get pods -o wide
}

# expect_agreement COUNT: COUNT pods run, and exactly these pods hold addresses.
expect_agreement() {
    eventually 120 "$1 pods run, and metes list names exactly them" agree "$1"
}

agree() {
    local pods
    pods=$(alive)
    [ "$(running)" -eq "$1" ] && [ "$(wc -l <<<"$pods")" -eq "$1" ] &&
        diff <(echo "$pods") <(held | grep -vxF "${LEAKED:-nothing}")
}

running() {
    kubectl -n work get pods -o json | jq '[.items[] | select(.metadata.deletionTimestamp == null)
        | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))] | length'
}

# An address that was given again within seconds does not answer at once: the bridge's host still has the old MAC.
ping_pods() {
    local address
    for address in $(alive | cut -d ' ' -f 1); do
        eventually 120 "a pod answers at $address" ping -c 1 -W 1 "$address"
    done
    echo "every pod answers at its address"
}

# some_pods COUNT: prints COUNT lines of alive, of pods of the Deployment.
some_pods() { alive | grep ' work/' | head -n "$1"; }

# force_delete LINES: deletes pods as a person does who does not wait for the node.
force_delete() {
    local names
    readarray -t names < <(cut -d ' ' -f 2 <<<"$1")
    kubectl -n work delete pod "${names[@]#*/}" --force --grace-period=0 2>>"$LOG/kubectl"
}

# The wrapper fails only for DEL, so that the pods that replace the deleted ones get addresses.
leak_by_failing_plugin() {
    local victims
    victims=$(some_pods 3)
    mv "$CNI_BIN/metes" "$CNI_BIN/metes.kept"
    cat >"$CNI_BIN/metes.new" <<SH
#!/bin/sh
if [ "\$CNI_COMMAND" = DEL ]; then
    echo '{"cniVersion": "1.0.0", "code": 999, "msg": "made to fail by hack/e2e"}'
    exit 1
fi
exec $CNI_BIN/metes.kept "\$@"
SH
    chmod 0755 "$CNI_BIN/metes.new"
    mv "$CNI_BIN/metes.new" "$CNI_BIN/metes"
    force_delete "$victims"
    eventually 60 "a DEL fails" grep -q "made to fail by hack/e2e" "$LOG/containerd"
    remove_sandboxes "$victims"
    mv "$CNI_BIN/metes.kept" "$CNI_BIN/metes"
    LEAKED=$victims
    expect_agreement 8
    expect_leaked
}

# remove_sandboxes LINES: without the kubelet. containerd looks for existing sandboxes only when it starts.
remove_sandboxes() {
    local uid id
    while read -r _ _ uid; do
        for id in $(ctr --namespace k8s.io containers list --quiet "labels.\"io.kubernetes.pod.uid\"==$uid"); do
            ctr --namespace k8s.io task delete --force "$id" 2>>"$LOG/ctr" || true
            ctr --namespace k8s.io containers delete "$id" 2>>"$LOG/ctr" || true
        done
    done <<<"$1"
    end_hard containerd
    start_containerd
}

# Makes the node one that comes back with an empty disk: no containers, no sandboxes, no DELs, the same pods to run.
leak_by_crash() {
    local victims survivors sandboxes
    victims=$(some_pods 2)
    survivors=$(alive | grep -vxF "$victims")
    sandboxes=$(sandboxes_of "$survivors")
    end_hard kubelet
    end_hard containerd
    kill_containers
    lose_containers
    force_delete "$victims"
    LEAKED+=$'\n'$victims
    start_containerd
    start_kubelet
    eventually 120 "the pods that survived have new sandboxes" all_new "$sandboxes" "$survivors"
    expect_agreement 8
    expect_leaked
    [ -z "$(comm -23 <(echo "$survivors") <(held))" ] || die "a pod that survived lost its address"
    ping_pods
    echo "the pods that were not deleted have new sandboxes at the addresses they had"
}

# sandboxes_of LINES: prints the ids of the sandboxes that hold the addresses.
sandboxes_of() {
    metes list -o json | jq -r '.[] | "\(.address) \(.pod.namespace)/\(.pod.name) \(.pod.uid) \(.container_id)"' |
        grep -F "$1" | cut -d ' ' -f 4 | sort
}

# all_new SANDBOXES LINES: checks that none of the sandboxes holds an address of the lines any more.
all_new() { [ -z "$(comm -12 <(echo "$1") <(sandboxes_of "$2"))" ]; }

# This process namespace has only the node's processes.
kill_containers() {
    local process
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe") in
        */containerd-shim*) kill -KILL "${process#/proc/}" || true ;;
        esac
    done
    find /sys/fs/cgroup -path "*/$CGROUP/*" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un |
        while read -r process; do kill -KILL "$process" 2>/dev/null || true; done
}

lose_containers() {
    local place
    tac /proc/self/mounts | cut -d ' ' -f 2 | grep -E '^/run/(containerd|netns)/|^/var/lib/kubelet/pods/' |
        while read -r place; do umount --lazy "$place" 2>>"$LOG/umount" || true; done
    find /var/lib/containerd /run/containerd /run/netns /var/lib/kubelet/pods -mindepth 1 -delete
}

expect_leaked() {
    local given_back
    given_back=$(comm -23 <(sort <<<"$LEAKED") <(held))
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
    tail -n +1 /var/log/pods/metes_metes-reconciler-*/reconciler/*.log
    no_job_failed >/dev/null || die "a job of the CronJob failed: its words are above"
    LEAKED=
    expect_agreement 8
    [ "$(rows_without_leaked)" = "$kept" ] || die "a record of a running pod has changed; before: $kept"
    ping_pods
    show_pods
}

rows_without_leaked() {
    metes list -o json |
        jq -c --arg leaked "$LEAKED" '($leaked | split("\n") | map(split(" ")[0])) as $gone
            | .[] | select(.pod.namespace == "work") | select(.address | IN($gone[]) | not)'
}

suspend_cronjob() { kubectl -n metes patch cronjob metes-reconciler --patch "{\"spec\": {\"suspend\": $1}}"; }

free_or_failed() { leaked_are_free || ! no_job_failed; }

leaked_are_free() { [ -z "$(comm -12 <(sort <<<"$LEAKED") <(held))" ]; }

no_job_failed() {
    kubectl -n metes get jobs -o json | jq -e '[.items[] | select((.status.failed // 0) > 0)] == []'
}

no_job_runs() {
    kubectl -n metes get jobs -o json | jq -e '[.items[] | select((.status.active // 0) > 0)] == []'
}

uninstaller_refuses() {
    kubectl -n metes delete daemonset metes-installer
    kubectl apply -k manifests/uninstall
    eventually 60 "the uninstaller refuses" grep -h "refused: this node holds" -r /var/log/pods --include='*.log'
    cat "$WORK/eventually"
    kubectl -n metes delete daemonset metes-uninstall
    metes list >/dev/null || die "the plugin or its host file is gone"
    expect_agreement 8
}

delete_everything() {
    kubectl delete namespace work --wait=false
    eventually 90 "no address is held" nothing_held
    metes list
    metes pool close pods --range "$SECOND_RANGE" --yes
    metes pool delete pods --yes
    metes check
}

nothing_held() { [ -z "$(held)" ]; }

uninstall() {
    kubectl apply -k manifests/uninstall
    eventually 60 "the uninstaller's pod is ready" \
        kubectl -n metes rollout status daemonset/metes-uninstall --timeout=5s
    [ ! -e "$CNI_BIN/metes" ] || die "the plugin is still there"
    [ ! -e /etc/cni/net.d/metes.d/metes.conf ] || die "the host file is still there"
    echo "left in $CNI_BIN: $(cd "$CNI_BIN" && echo *)"
}
