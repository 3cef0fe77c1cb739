# The cluster, the installation and the first pods; sourced by hack/e2e.d/run.
# shellcheck shell=bash

step_nodes() {
    mkdir -p "$LOG" "$HOME" "$TMPDIR"
    make_network
    start_control_plane
    for node in "${NODES[@]}"; do
        turn_on "$node"
        [ "$node" != "${NODES[0]}" ] || probe "$node"
    done
    each import_images
    eventually 60 "all nodes register" nodes_register
    run_block "kubectl label node alpha beta gamma metes.dev.node-restriction.kubernetes.io/etcd="
    kubectl get nodes -o wide
    outcome "$(nodes_are False) nodes registered, and are NotReady without a network"
}

probe() {
    probe_container "$1" >"$LOG/probe" 2>&1 && return 0
    tail -n 3 "$LOG/probe" >&2
    say "hack/e2e cannot run here: containerd and runc cannot run a container on this machine, see above"
    exit "$CANNOT_RUN_HERE"
}

nodes_register() { [ "$(nodes_are False)" -eq ${#NODES[@]} ]; }

nodes_ready() { [ "$(nodes_are True)" -eq ${#NODES[@]} ]; }

# nodes_are STATUS: how many have this status of the condition Ready.
nodes_are() {
    kubectl get nodes -o json |
        jq --arg status "$1" '[.items[].status.conditions[] | select(.type == "Ready" and .status == $status)] | length'
}

step_install() {
    run_block "kubectl apply -k manifests"
    on alpha find "$CNI_BIN"/metes "$CNI_CONF"/metes.d -type f -exec ls -l {} +
    each write_networks
    eventually 60 "all nodes are Ready" nodes_ready
    expect_no_violation
    outcome "$(nodes_are True) nodes are Ready, with $(members) members of etcd"
}

# The operator's part, when metes is installed: the networks. The pods' way out is beside the control plane.
write_networks() {
    on "$1" tee "$CNI_CONF"/10-default.conflist >/dev/null <<JSON
{
  "cniVersion": "1.0.0",
  "name": "default-network",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "br-pods",
      "ipam": {
        "type": "metes",
        "range": "$POD_RANGE",
        "gateway": "$GATEWAY",
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
JSON
    on "$1" cp "$CNI_CONF/10-default.conflist" /etc/cni/two.d
    on "$1" tee /etc/cni/two.d/20-storage.conflist >/dev/null <<JSON
{
  "cniVersion": "1.0.0",
  "name": "storage",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "br-storage",
      "ipam": {"type": "metes", "range": "$STORAGE_RANGE", "network_name": "storage"}
    }
  ]
}
JSON
}

# How many members of etcd answer.
members() { etcdctl endpoint health --cluster -w json 2>/dev/null | jq '[.[] | select(.health)] | length'; }

# etcdctl ARGUMENT...: in the pod of a member, as docs/install.md has it.
etcdctl() { kubectl -n metes-system exec "$(a_member)" -c etcd -- etcdctl "$@"; }

a_member() {
    kubectl -n metes-system get pods -l app.kubernetes.io/name=metes-etcd -o json | jq -re '[.items[]
        | select(.metadata.deletionTimestamp == null)
        | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))][0].metadata.name'
}

step_pods() {
    local count
    kubectl create namespace work
    eventually 30 "the service account is there" kubectl -n work get serviceaccount default
    kubectl apply -f hack/e2e.d/workload.yaml
    expect_agreement 12
    show_pods
    [ "$(held | cut -d ' ' -f 1 | sort -u | wc -l)" -eq 12 ] || die "the addresses are not distinct"
    count=$(kubectl -n work get pods -o json | jq '[.items[].spec.nodeName] | unique | length')
    [ "$count" -eq ${#NODES[@]} ] || die "the pods are on $count nodes"
    ping_pods
    metrics_need_a_certificate
    if kubectl -n metes exec deploy/metes-viewer -- /metes hold 10.244.0.250 --note "by a viewer"; then
        die "a viewer may make a hold"
    fi
    run_block "kubectl -n metes create job admin --from=cronjob/metes-admin"
    outcome "12 pods on $count nodes have 12 addresses, and each reaches each"
}

# As Prometheus asks each member of etcd, and the installer on each node.
metrics_need_a_certificate() {
    local file node folder=$WORK/metrics
    mkdir -p "$folder"
    for file in ca.crt tls.crt tls.key; do
        kubectl -n metes get secret metes-metrics -o json | jq -r --arg file $file '.data[$file] | @base64d' \
            >"$folder/$file"
    done
    for node in "${NODES[@]}"; do
        curl --silent --fail --cacert "$folder/ca.crt" --cert "$folder/tls.crt" --key "$folder/tls.key" \
            "https://${NODE_IP[$node]}:12384/metrics" | grep -c '^etcd_' >>"$LOG/metrics" ||
            die "etcd on $node shows no metrics"
        ! curl --silent --cacert "$folder/ca.crt" "https://${NODE_IP[$node]}:12384/metrics" ||
            die "etcd on $node shows its metrics to everyone"
        # Each installer has made its own certificate.
        curl --silent --insecure --cert "$folder/tls.crt" --key "$folder/tls.key" \
            "https://${NODE_IP[$node]}:12383/metrics" | grep '^metes_node_runs_total{verb="ADD",code="0"} [1-9]' ||
            die "the installer on $node shows no ADDs"
        ! curl --silent --insecure "https://${NODE_IP[$node]}:12383/metrics" ||
            die "the installer on $node shows its metrics to everyone"
    done
}
