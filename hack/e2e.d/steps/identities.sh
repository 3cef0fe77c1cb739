# Identities of nodes: from one key to them, renewal, a node that somebody has taken over; sourced by hack/e2e.d/run.
# shellcheck shell=bash

readonly TAKEN=$WORK/taken

# All nodes go to one key and back to identities, which are then renewed before they end.
step_identities() {
    local folder=$WORK/one-key before
    mkdir -p "$folder"
    cat >"$folder/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../copy/hack/e2e.d/cluster]
components: [../copy/manifests/one-key]
YAML
    start_load "${NODES[@]}"
    kubectl -n metes-system delete job metes-certificates --ignore-not-found
    kubectl apply -k "$folder" >>"$LOG/kubectl"
    kubectl -n metes-system delete deployment metes-signer --ignore-not-found
    eventually 240 "all nodes have one key" all_are metes-node
    run_block "kubectl -n metes-system delete job/metes-certificates --ignore-not-found"
    eventually 240 "all nodes have identities" have_identities
    before=$(serials)
    each age_identity
    eventually 180 "identities of which nine days are left are renewed" all_differ "^[a-z]* serial" "$before"
    eventually 30 "the new ones are of the same nodes" have_identities
    stop_load
    expect_none_failed
    expect_whole "${NODES[@]}"
    outcome "3 nodes went to one key and back to identities, and renewed them: $FIGURES"
}

# common_name NODE: of the certificate that its runs use.
common_name() {
    local file
    file=$(on "$1" jq -r .etcd.cert_file "$CNI_CONF/metes.d/metes.conf")
    on "$1" openssl x509 -noout -subject -nameopt multiline -in "$file" | sed -n 's/^ *commonName *= //p'
}

# all_are NAME
all_are() {
    local node
    for node in "${NODES[@]}"; do [ "$(common_name "$node")" = "$1" ] || return 1; done
}

have_identities() {
    local node
    for node in "${NODES[@]}"; do [ "$(common_name "$node")" = "metes-node/e2e/$node" ] || return 1; done
}

# age_identity NODE [DAYS]: its certificate ends in nine days, or in these.
age_identity() {
    local file folder=$WORK/aged/$1
    file=$(on "$1" jq -r .etcd.cert_file "$CNI_CONF/metes.d/metes.conf")
    mkdir -p "$folder"
    for name in tls.crt tls.key; do file_of metes-node-ca $name >"$folder/ca-$name"; done
    on "$1" cat "$file" >"$folder/tls.crt"
    on "$1" cat "${file%.crt}.key" >"$folder/tls.key"
    openssl x509 -x509toreq -in "$folder/tls.crt" -signkey "$folder/tls.key" 2>>"$LOG/openssl" |
        openssl x509 -req -days "${2:-9}" -CA "$folder/ca-tls.crt" -CAkey "$folder/ca-tls.key" -CAcreateserial \
            -extfile <(echo extendedKeyUsage=clientAuth) -out "$folder/aged" 2>>"$LOG/openssl"
    on "$1" sh -c "umask 077 && cat >$file.new && mv $file.new $file" <"$folder/aged"
}

# The node delta is one that somebody has taken over: its kubelet's credentials are used here, and so is the token of
# its installer's pod. Then it is revoked, and its name is given to another machine.
step_taken_node() {
    local seconds token
    mkdir -p "$TAKEN"
    register_taken
    start_load "${NODES[@]}"
    token=$(token_of_taken)
    seconds=$SECONDS
    request "$token" 'metes-node\/e2e\/delta' && eventually 30 "the signer gives delta an identity" is_signed
    seconds=$((SECONDS - seconds))
    file_of_config_map >"$TAKEN/ca.crt"
    eventually 20 "etcd answers delta" etcdctl_of_taken alpha get /metes/v1/meta
    add_of_taken || die "an ADD on delta failed: $(cat "$TAKEN/answer")"
    refuse_certificates "$token"
    refuse_in_kubernetes
    refuse_in_etcd
    run_block "kubectl -n metes-system exec etcd-0 -c care -- /metes-install revoke delta"
    eventually 20 "etcd refuses delta" nothing_answers
    ! add_of_taken || die "an ADD of a revoked node succeeded: $(cat "$TAKEN/answer")"
    request "$token" 'metes-node\/e2e\/delta' && eventually 30 "delta gets no other certificate" is_denied revoked
    CHANGE='s/prod-1/e2e/' run_block "kubectl -n metes-system rollout restart statefulset/etcd"
    request "$token" 'metes-node\/e2e\/delta' && eventually 30 "another machine gets an identity" is_signed
    eventually 20 "etcd answers it" etcdctl_of_taken alpha get /metes/v1/meta
    kubectl delete node delta
    operator release --node delta --container taken --yes
    stop_load
    expect_none_failed
    expect_whole "${NODES[@]}"
    outcome "delta had its identity in $seconds s, was refused all that is documented, and then everything; $FIGURES"
}

as_kubelet() { KUBECONFIG=$KUBE/delta kubectl "$@"; }

# A node of which nothing runs but what is done here. It has room, so that its pods are bound to it.
register_taken() {
    as_kubelet create -f - <<YAML
apiVersion: v1
kind: Node
metadata: {name: delta, labels: {kubernetes.io/os: linux, kubernetes.io/hostname: delta}}
YAML
    kubectl patch node delta --subresource=status -p '{"status": {
        "capacity": {"cpu": "1", "memory": "1Gi", "pods": "10"},
        "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}]}}'
    eventually 60 "the installer's pod is bound to delta" pod_of_taken
}

pod_of_taken() {
    kubectl -n metes-system get pods -l app.kubernetes.io/name=metes-installer --field-selector spec.nodeName=delta \
        -o json | jq -re '.items[0].metadata | "\(.name) \(.uid)"'
}

# As a kubelet gets it for a pod of its node.
token_of_taken() {
    local name uid
    read -r name uid < <(pod_of_taken)
    as_kubelet -n metes-system create token metes-installer --bound-object-kind=Pod --bound-object-name="$name" \
        --bound-object-uid="$uid"
}

# request TOKEN NAME: asks the signer for a certificate with this name; REQUEST is the name of the request.
request() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
        -keyout "$TAKEN/new.key" -out "$TAKEN/new.csr" 2>>"$LOG/openssl"
    REQUEST=$(jq -n --rawfile csr "$TAKEN/new.csr" '{apiVersion: "certificates.k8s.io/v1",
        kind: "CertificateSigningRequest", metadata: {generateName: "metes-node-"}, spec: {request: ($csr | @base64),
        signerName: "metes.dev/etcd-client", usages: ["digital signature", "client auth"]}}' |
        KUBECONFIG=/dev/null kubectl --server="https://$CONTROL_PLANE:443" \
            --certificate-authority="$PKI/kubernetes.crt" --token="$1" create -f - -o name)
}

is_signed() {
    kubectl get "$REQUEST" -o json | jq -re .status.certificate | base64 -d >"$TAKEN/new.crt" || return 1
    mv "$TAKEN/new.crt" "$TAKEN/tls.crt"
    mv "$TAKEN/new.key" "$TAKEN/tls.key"
}

# is_denied WORDS
is_denied() {
    kubectl get "$REQUEST" -o json | jq -re 'if .status.certificate then error("it was signed") else
        .status.conditions[] | select(.type == "Denied") | .message end' | grep "$1"
}

file_of_config_map() { as_kubelet -n metes-system get configmap metes-ca -o json | jq -r '.data["ca.crt"]'; }

# No name but the node's own, and not for the kubelet's own account.
refuse_certificates() {
    local name
    for name in 'metes-node\/e2e\/alpha' metes-etcd-server root; do
        request "$1" "$name" && eventually 30 "a certificate for $name is denied" is_denied delta
    done
    request "$(sed -n 's/.*token: \(.*\)}/\1/p' "$KUBE/delta")" 'metes-node\/e2e\/delta' &&
        eventually 30 "a certificate for the kubelet is denied" is_denied system:node:delta
}

# docs/security.md: what the kubelet's identity does not get.
refuse_in_kubernetes() {
    local name
    for name in metes-etcd-server metes-etcd-peer metes-ca metes-node-ca metes-signer; do
        grep Forbidden <(as_kubelet -n metes-system get secret $name 2>&1) || die "delta's kubelet reads $name"
    done
    grep "not allowed to modify labels" \
        <(as_kubelet label node delta metes.dev.node-restriction.kubernetes.io/etcd= 2>&1) ||
        die "delta's kubelet makes it a node of etcd"
}

# etcdctl_of_taken MEMBER ARGUMENT...: with the files of the node.
etcdctl_of_taken() {
    "$ETCD_CLIENTS/etcdctl" --endpoints="https://${NODE_IP[$1]}:12379" --cacert="$TAKEN/ca.crt" \
        --cert="$TAKEN/tls.crt" --key="$TAKEN/tls.key" --command-timeout=5s "${@:2}"
}

# tests/commands/tenants.rs has each key; this is the list of docs/security.md by a real installation's roles.
refuse_in_etcd() {
    local request
    while read -r request; do
        # shellcheck disable=SC2086 # It is several words.
        grep "permission denied" <(etcdctl_of_taken alpha $request 2>&1 </dev/null) >>"$LOG/taken" ||
            die "delta may: etcdctl $request"
    done <<END
put /metes/v1/pool/mine x
put /metes/v1/owner/-/@net/1/hold x
put /metes/v1/owner/other/alpha/c/eth0 x
put /metes/v1/tombstone/other/alpha/c/eth0 x
put /metes/v1/pod/other/u/eth0/net x
put /metes/v1/seen/e2e/alpha x
put /other/v1/meta x
get /metes-signer/ --prefix
member add mine --peer-urls=https://192.168.77.99:12380
user add mine --new-user-password=x
role grant-permission metes-node readwrite /
compact 1
snapshot save $TAKEN/snapshot
END
}

nothing_answers() {
    local member
    for member in "${NODES[@]}"; do
        ! etcdctl_of_taken "$member" get /metes/v1/meta && ! etcdctl_of_taken "$member" lease grant 60 &&
            ! etcdctl_of_taken "$member" member list || return 1
    done
}

# add_of_taken: an ADD by the plugin, with delta's files.
add_of_taken() {
    jq --arg folder "$TAKEN/" '.node_name = "delta" | .spool_dir = $folder + "spool"
        | .etcd.ca_file = $folder + "ca.crt" | .etcd.cert_file = $folder + "tls.crt"
        | .etcd.key_file = $folder + "tls.key"' \
        hack/e2e.d/cluster/metes.conf >"$TAKEN/metes.conf"
    chmod 0600 "$TAKEN"/*
    on alpha env METES_CONF="$TAKEN/metes.conf" CNI_COMMAND=ADD CNI_CONTAINERID=taken CNI_NETNS=/none CNI_IFNAME=eth0 \
        CNI_PATH=/opt/cni/bin "$CNI_BIN/metes" >"$TAKEN/answer" <<'JSON'
{"cniVersion": "1.0.0", "name": "load", "type": "bridge",
 "ipam": {"type": "metes", "range": "10.57.0.0/24", "network_name": "load"}}
JSON
}
