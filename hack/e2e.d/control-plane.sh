# The control plane and the network between the nodes; sourced by hack/e2e.d/run.
# shellcheck shell=bash

# One bridge joins the nodes, and one for each network of pods joins the nodes' bridges: each network is one segment.
# The only Service needed is that of the API: its address on the loopback replaces kube-proxy.
make_network() {
    local bridge number=0
    ip link set lo up
    # With its own MAC address. Else it has that of a port and changes it when that node ends.
    for bridge in machines pods storage; do
        ip link add $bridge address 02:6d:65:74:65:$((++number + 10)) type bridge
        ip link set $bridge up
    done
    ip address add "$CONTROL_PLANE"/24 dev machines
    ip address add "$GATEWAY"/"${POD_RANGE#*/}" dev pods
    ip address add "$API_SERVICE"/32 dev lo
    echo 1 >/proc/sys/net/ipv4/ip_forward
}

make_authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$1" \
        -keyout "$PKI/$1.key" -out "$PKI/$1.crt" 2>>"$LOG/openssl"
}

# make_certificate AUTHORITY NAME USAGE ALTERNATIVES
make_certificate() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" \
        -keyout "$PKI/$2.key" -out "$PKI/$2.csr" 2>>"$LOG/openssl"
    openssl x509 -req -in "$PKI/$2.csr" -CA "$PKI/$1.crt" -CAkey "$PKI/$1.key" -CAcreateserial -days 2 \
        -extfile <(printf 'extendedKeyUsage=%s\nsubjectAltName=%s\n' "$3" "$4") -out "$PKI/$2.crt" 2>>"$LOG/openssl"
}

make_certificates() {
    make_authority kubernetes
    make_certificate kubernetes apiserver serverAuth \
        "IP:127.0.0.1,IP:$CONTROL_PLANE,IP:$API_SERVICE,DNS:kubernetes.default.svc"
    make_certificate kubernetes apiserver-kubelet clientAuth DNS:apiserver-kubelet
    openssl genrsa -out "$PKI/service-accounts.key" 2048 2>>"$LOG/openssl"
}

# Kubernetes' own. metes has another one, in its pods.
start_etcd_of_kubernetes() {
    launch etcd "$ETCD" --name kubernetes --data-dir "$WORK/etcd" --log-level warn \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
        --initial-cluster kubernetes=http://127.0.0.1:2380 --unsafe-no-fsync
    eventually 30 "Kubernetes' etcd answers" curl --silent --fail http://127.0.0.1:2379/health
}

# write_kubeconfig NAME USER [GROUP]: and the token that goes with it.
write_kubeconfig() {
    local token
    token=$(openssl rand -hex 16)
    echo "$token,$2,$1,${3:-}" >>"$KUBE/tokens"
    cat >"$KUBE/$1" <<YAML
apiVersion: v1
kind: Config
clusters:
- name: e2e
  cluster: {server: "https://$CONTROL_PLANE:443", certificate-authority: $PKI/kubernetes.crt}
users:
- name: $1
  user: {token: $token}
contexts:
- name: e2e
  context: {cluster: e2e, user: $1}
current-context: e2e
YAML
}

start_apiserver() {
    launch kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
        --bind-address=0.0.0.0 --secure-port=443 --advertise-address="$CONTROL_PLANE" \
        --service-cluster-ip-range="$SERVICE_RANGE" \
        --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
        --token-auth-file="$KUBE/tokens" --kubelet-preferred-address-types=InternalIP \
        --kubelet-client-certificate="$PKI/apiserver-kubelet.crt" --kubelet-client-key="$PKI/apiserver-kubelet.key" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$PKI/service-accounts.key" \
        --service-account-signing-key-file="$PKI/service-accounts.key"
    eventually 60 "kube-apiserver is ready" kubectl get --raw /readyz
}

# A node that does not answer is NotReady after 20 s.
start_control_plane() {
    local node
    mkdir -p "$PKI" "$KUBE"
    make_certificates
    start_etcd_of_kubernetes
    write_kubeconfig admin admin system:masters
    write_kubeconfig controller-manager system:kube-controller-manager
    write_kubeconfig scheduler system:kube-scheduler
    # delta is for a step that acts as its kubelet.
    for node in "${NODES[@]}" delta; do write_kubeconfig "$node" "system:node:$node" system:nodes; done
    start_apiserver
    # For kubectl exec and logs.
    kubectl create clusterrolebinding apiserver-kubelet --clusterrole=system:kubelet-api-admin --user=apiserver-kubelet
    start_controllers
}

start_controllers() {
    launch kube-controller-manager kube-controller-manager --kubeconfig="$KUBE/controller-manager" \
        --use-service-account-credentials --service-account-private-key-file="$PKI/service-accounts.key" \
        --root-ca-file="$PKI/kubernetes.crt" --leader-elect=false \
        --node-monitor-period=2s --node-monitor-grace-period=20s
    launch kube-scheduler kube-scheduler --kubeconfig="$KUBE/scheduler" --leader-elect=false
}
