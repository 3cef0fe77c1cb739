# What an operator does while pods run: certificates, restore, upgrade; sourced by hack/e2e.d/run.
# shellcheck shell=bash

# Renewed in time, and when they have ended.
step_certificates() {
    local before node renewed seconds
    before=$(serials)
    start_load "${NODES[@]}"
    run_job renew metes-certificates metes-system
    eventually 240 "all members have new certificates" all_differ member "$before"
    expect_none_failed
    let_end
    before=$(serials)
    seconds=$SECONDS
    run_job renew metes-certificates metes-system
    kubectl -n metes-system scale deployment metes-signer --replicas=2
    eventually 240 "all nodes and members have new certificates" all_differ . "$before"
    for node in "${NODES[@]}"; do eventually 60 "ADDs succeed on $node" last_ok "$node"; done
    eventually 120 "etcd has all members" all_members
    renewed=$((SECONDS - seconds))
    stop_load
    expect_whole "${NODES[@]}"
    outcome "renewed under load, no ADD failed; when all had ended, ADDs said so, and $renewed s after a renewal all" \
        "was well: $FIGURES"
}

# All certificates of etcd and its nodes end now: they are made again with the same keys, for no time at all. A member
# that starts meanwhile has nobody to talk to. The signer is away.
let_end() {
    local file name node folder=$WORK/ended
    mkdir -p "$folder"
    kubectl -n metes-system scale deployment metes-signer --replicas=0
    eventually 60 "the signer is away" kubectl -n metes-system wait --for=delete pod \
        -l app.kubernetes.io/name=metes-signer --timeout=5s
    for file in tls.crt tls.key; do file_of metes-ca $file >"$folder/ca-$file"; done
    for name in metes-etcd-server metes-etcd-peer; do
        for file in tls.crt tls.key; do file_of $name $file >"$folder/$file"; done
        openssl x509 -x509toreq -copy_extensions copyall -in "$folder/tls.crt" -signkey "$folder/tls.key" |
            openssl x509 -req -copy_extensions copyall -days 0 -CA "$folder/ca-tls.crt" -CAkey "$folder/ca-tls.key" \
                -CAcreateserial -out "$folder/ended"
        kubectl -n metes-system patch secret $name \
            --patch "$(jq -n --rawfile crt "$folder/ended" '{stringData: {"tls.crt": $crt}}')"
    done
    kubectl -n metes-system delete pod etcd-0 --wait=false
    each age_identity 0
    for node in "${NODES[@]}"; do
        eventually 90 "ADDs on $node say what has ended" \
            grep -q "etcd's certificate has expired" "$LOG/load/$node.errors"
        eventually 60 "metes doctor on $node says that both have ended" doctor_says_ended "$node"
    done
}

# file_of SECRET FILE
file_of() { kubectl -n metes-system get secret "$1" -o json | jq -r --arg file "$2" '.data[$file] | @base64d'; }

doctor_says_ended() { doctor_says "$1" "the client, .* expired" && doctor_says "$1" "etcd, .* expired"; }

# serials: a line for each node's own certificate and for its member's.
serials() {
    local node file
    for node in "${NODES[@]}"; do
        file=$(on "$node" jq -r .etcd.cert_file "$CNI_CONF/metes.d/metes.conf")
        echo "$node $(on "$node" openssl x509 -noout -serial -in "$file")"
        echo "$node member $(timeout 5 openssl s_client -connect "${NODE_IP[$node]}:12379" </dev/null 2>/dev/null |
            openssl x509 -noout -serial)"
    done
}

# all_differ WORD SERIALS: the lines of serials with that word.
all_differ() { [ -z "$(comm -12 <(grep "$1" <<<"$2" | sort) <(serials | sort))" ]; }

# The snapshot knows pods that are gone, and not those that came after them. All databases are younger than it.
step_restore() {
    local old before uids
    start_databases
    run_block "for n in 0 1 2; do kubectl -n metes-system exec etcd-\$n -c care -- /metes-install etcd-snapshot; done"
    copy_snapshot
    mapfile -t old < <(where alpha | cut -d ' ' -f 2 | grep -v /db-)
    kubectl -n work delete pod "${old[@]#*/}" --wait=false >>"$LOG/kubectl"
    kubectl -n work scale deployment web --replicas=18
    uids=$(database_uids)
    kubectl -n work rollout restart statefulset db
    expect_new "$uids"
    tell_networks
    expect_agreement 21
    before=$(alive)
    each put_snapshot
    run_block "kubectl -n metes patch cronjob metes-reconciler -p '{\"spec\": {\"suspend\": true}}'"
    run_block "kubectl apply -k manifests/etcd-restore"
    on alpha cat "$CNI_CONF/10-default.conflist" >"$WORK/network"
    kubectl -n metes create configmap metes-default-network --from-literal=path=/etc/metes/default-network.conflist \
        --from-file=default-network.conflist="$WORK/network"
    run_block "kubectl -n metes-system scale statefulset etcd --replicas=3"
    run_block "kubectl -n metes create job adopt --from=cronjob/metes-adopt"
    suspend_cronjob true
    kubectl -n metes delete configmap metes-default-network
    [ "$(alive)" = "$before" ] || die "pods have other addresses; before: $before"
    eventually 180 "passes free what pods of the snapshot had" agree_after_pass 21 3
    expect_kept "the restore"
    ping_storage
    # No DEL frees what an adopted pod had: the reconciler does, when the pod is gone.
    uids=$(database_uids)
    kubectl -n work rollout restart statefulset db
    eventually 180 "passes give the databases' addresses to the next ones" new_after_pass "$uids"
    expect_kept "a rolling restart after the restore"
    end_databases
    kubectl delete -f hack/e2e.d/nad.yaml
    kubectl -n work scale deployment web --replicas=12
    kubectl -n work rollout restart deployment web
    eventually 180 "passes free what adopted pods had" agree_after_pass 12 0
    expect_whole "${NODES[@]}"
    outcome "21 pods ran on at their addresses, 3 of them databases; the snapshot knew $((12 - ${#old[@]}))"
}

# copy_snapshot: has the newest snapshot of a node copied to a claim, and the copy printed.
copy_snapshot() {
    kubectl apply -f hack/e2e.d/volume.yaml
    kubectl apply -k manifests/etcd-snapshots-copy
    run_job copy metes-etcd-snapshots-copy metes-system
    run_block "kubectl -n metes-system create job copies --from=cronjob/metes-etcd-snapshots-read"
    mv "$WORK/copy/restore.db" "$WORK/snapshot"
    kubectl delete -k manifests/etcd-snapshots-copy --timeout=120s
    kubectl delete -f hack/e2e.d/volume.yaml --timeout=60s
}

# tell_networks: writes what Multus would write: what the second network is, and which addresses databases have.
tell_networks() {
    local node address namespace name second
    kubectl apply -f hack/e2e.d/nad.yaml
    on alpha cat /etc/cni/two.d/20-storage.conflist >"$WORK/storage"
    jq -n --rawfile config "$WORK/storage" '{apiVersion: "k8s.cni.cncf.io/v1", kind: "NetworkAttachmentDefinition",
        metadata: {name: "storage", namespace: "work"}, spec: {config: $config}}' >"$WORK/nad"
    eventually 30 "the second network is defined" kubectl apply -f "$WORK/nad"
    while read -r node address name; do
        namespace=$(namespaces_with "$node" eth0 "$address")
        second=$(on "$node" nsenter --net="$namespace" ip -json -4 address show eth1 | jq -r '.[0].addr_info[0].local')
        kubectl -n work annotate pod "$name" "k8s.v1.cni.cncf.io/network-status=$(jq -n --arg first "$address" \
            --arg second "$second" '[{name: "default-network", interface: "eth0", ips: [$first], default: true},
                {name: "work/storage", interface: "eth1", ips: [$second]}]')" </dev/null
    done < <(databases | jq -r '.items[] | "\(.spec.nodeName) \(.status.podIP) \(.metadata.name)"')
}

# agree_after_pass PODS ADDRESSES: the second number is of the second network.
agree_after_pass() {
    pass
    agree "$1" && storage_held "$2"
}

put_snapshot() { on "$1" tee /var/lib/metes-etcd-snapshots/restore.db <"$WORK/snapshot" >/dev/null; }

# run_job NAME CRONJOB [NAMESPACE]
run_job() {
    local namespace=${3:-metes}
    kubectl -n "$namespace" delete job "$1" --ignore-not-found
    kubectl -n "$namespace" create job "$1" --from="cronjob/$2"
    eventually 120 "the job $1 ends" kubectl -n "$namespace" wait --for=condition=complete "job/$1" --timeout=5s
    kubectl -n "$namespace" logs "job/$1"
}

# The plugin goes to another build and etcd down by a minor version, then both back, while pods start and end.
step_upgrade() {
    local old folder=$WORK/upgrade
    old=$(plugins)
    mkdir -p "$folder"
    cat >"$folder/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../copy/hack/e2e.d/cluster]
images: [{name: localhost/metes-install, newTag: next}, {name: quay.io/coreos/etcd, newTag: v3.5}]
YAML
    start_load "${NODES[@]}"
    etcdctl downgrade enable 3.5
    roll_out "$folder" 3.5
    eventually 30 "all nodes have the other plugin" all_plugins_differ "$old"
    roll_out "$WORK/copy/hack/e2e.d/cluster" 3.6
    eventually 30 "all nodes have the plugin that they had" plugins_are "$old"
    stop_load
    expect_none_failed
    expect_whole "${NODES[@]}"
    older_refuses
    outcome "3 nodes had another build and 3 members etcd 3.5, and went back; $FIGURES"
}

# From two namespaces to two others, and from those to the first ones. The others have what a new user applies: Pod
# Security is strict in one of them, and its pods are in the network of pods.
step_move() {
    local moved
    start_load "${NODES[@]}"
    COPY=$WORK/moved move
    moved=$(kubectl get namespaces -l app.kubernetes.io/part-of=metes -o name | sort | paste -sd ' ')
    [ "$moved" = "namespace/net namespace/net-system" ] || die "metes is in $moved"
    eventually 60 "the viewer is ready" kubectl -n net rollout status deployment/metes-viewer --timeout=5s
    kubectl -n net exec deploy/metes-viewer -- /metes list >"$LOG/viewer"
    kubectl -n net create job pass --from=cronjob/metes-reconciler
    eventually 90 "a pass of the reconciler ends" kubectl -n net wait --for=condition=complete job/pass --timeout=5s
    CHANGE='s/net-system/@/g; s/metes-system/net-system/g; s/@/metes-system/g; s/ metes$/ net/' move
    stop_load
    expect_none_failed
    expect_whole "${NODES[@]}"
    outcome "3 members of etcd and all else moved twice: $FIGURES"
}

move() {
    run_block "kubectl create namespace net-system"
    run_block "kubectl delete namespace metes-system metes"
}

# roll_out FOLDER MINOR: as docs/install.md has it, until etcd's cluster has this minor version.
roll_out() {
    kubectl -n metes-system delete job metes-certificates --ignore-not-found
    kubectl apply -k "$1" >>"$LOG/kubectl"
    kubectl -n work rollout restart deployment web
    eventually 240 "etcd is of version $2" etcd_is "$2"
    eventually 60 "etcd is ready" kubectl -n metes-system rollout status statefulset/etcd --timeout=5s
    eventually 240 "the installer is ready" \
        kubectl -n metes-system rollout status daemonset/metes-installer --timeout=5s
}

# etcd_is MINOR: all members are.
etcd_is() {
    etcdctl endpoint status --cluster -w json |
        jq -e --arg minor "$1." 'length == 3 and all(.[].Status; .version | startswith($minor))'
}

plugins_are() { [ "$(plugins)" = "$1" ]; }

# A newer metes says in the store that only its like may write. This one then gives out nothing.
older_refuses() {
    local meta before
    meta=$(etcdctl get --print-value-only /metes/v1/meta)
    etcdctl put /metes/v1/meta "$(jq -c '.min_writer += 1' <<<"$meta")"
    before=$(meta_and_records)
    kubectl -n work scale deployment web --replicas=13
    eventually 60 "an ADD says that the store is for a newer metes" refused
    doctor_says alpha "use a newer metes" || die "metes doctor does not say it"
    [ "$(meta_and_records)" = "$before" ] || die "meta or a record has changed; before: $before"
    etcdctl put /metes/v1/meta "$meta"
    expect_agreement 13
    kubectl -n work scale deployment web --replicas=12
    expect_agreement 12
}

refused() { kubectl -n work get events | grep "install the newer metes on this node"; }

meta_and_records() { etcdctl get /metes/v1/meta && records; }

plugins() {
    local node
    for node in "${NODES[@]}"; do echo "$node $(on "$node" sha256sum "$CNI_BIN/metes")"; done
}

all_plugins_differ() { [ -z "$(comm -12 <(echo "$1") <(plugins))" ]; }
