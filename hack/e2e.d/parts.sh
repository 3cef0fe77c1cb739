# The parts of the node, sourced by hack/e2e.d/node: their paths, and how each part is started.
# Everything is in its own namespaces, so addresses and ports are fixed, and the machine's usual paths are used.
# shellcheck shell=bash

readonly NODE=metes-e2e-node
readonly BRIDGE=metes0
readonly GATEWAY=10.244.0.1 # the node, as its pods see it
readonly POD_RANGE=10.244.0.0/24
readonly SERVICE_RANGE=10.96.0.0/16
readonly API_SERVICE=10.96.0.1
readonly STORE=https://$GATEWAY:2479
readonly CNI_BIN=/opt/cni/bin
readonly CONTAINERD_SOCKET=/run/containerd/containerd.sock
readonly LOG=$WORK/log PKI=$WORK/pki KUBE=$WORK/kube
export KUBECONFIG=$KUBE/admin HOME=$WORK/home TMPDIR=$WORK/tmp
PATH=$KUBERNETES:$PATH
declare -A PID

# launch NAME COMMAND...: starts it in the background, with its own log.
launch() {
    local name=$1
    shift
    "$@" </dev/null >>"$LOG/$name" 2>&1 &
    PID[$name]=$!
}

# end_hard NAME: bash need not tell that it was killed.
end_hard() {
    kill -KILL "${PID[$1]}"
    { wait "${PID[$1]}" || true; } 2>/dev/null
    unset "PID[$1]"
}

expect_running() {
    local name
    for name in "${!PID[@]}"; do
        kill -0 "${PID[$name]}" 2>/dev/null || die "$name has ended; its last words: $(tail -n 5 "$LOG/$name")"
    done
}

# eventually SECONDS WHAT COMMAND...: until COMMAND succeeds.
eventually() {
    local seconds=$1 what=$2 end=$((SECONDS + $1))
    shift 2
    until "$@" >"$WORK/eventually" 2>&1; do
        expect_running
        [ $SECONDS -lt $end ] ||
            die "waited $seconds s in vain: $what. The last try of '$*' said: $(tail -n 5 "$WORK/eventually")"
        sleep 0.3
    done
}

# The node's folders are mounted over the machine's: a write to /etc/cni goes into a folder of this run.
mount_folders() {
    local name
    mkdir -p "$LOG" "$PKI" "$KUBE" "$HOME" "$TMPDIR"
    mount --make-rshared /
    for name in etc opt var; do
        mkdir -p "$WORK/over/$name" "$WORK/over/$name.work"
        mount -t overlay overlay -o "lowerdir=/$name,upperdir=$WORK/over/$name,workdir=$WORK/over/$name.work" "/$name"
    done
    mount -t tmpfs -o mode=0755 tmpfs /run
    # An overlay cannot be on an overlay, and this node must not use what the machine's own containerd has.
    for name in containerd kubelet cni log; do
        mkdir -p "$WORK/state/$name" "/var/lib/$name"
        [ "$name" = log ] || mount --bind "$WORK/state/$name" "/var/lib/$name"
    done
    mount --bind "$WORK/state/log" /var/log
    for name in /etc/cni /opt/cni; do
        [ ! -e $name ] || rm -rf $name
    done
    mkdir -p /etc/cni/net.d $CNI_BIN
    : >"$WORK/resolv.conf"
}

# The only service needed is that of the API: its address on the loopback replaces kube-proxy.
make_network() {
    hostname $NODE
    ip link set lo up
    ip address add $API_SERVICE/32 dev lo
    # With its own MAC address. Else it has that of a port and changes it when that pod ends: pods lose their gateway.
    ip link add $BRIDGE address 02:6d:65:74:65:73 type bridge
    ip address add $GATEWAY/${POD_RANGE#*/} dev $BRIDGE
    ip link set $BRIDGE up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    cp "$CNI_PLUGINS/bridge" "$CNI_PLUGINS/loopback" $CNI_BIN
    cat >/etc/cni/net.d/10-default.conflist <<JSON
{
  "cniVersion": "1.0.0",
  "name": "default-network",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "$BRIDGE",
      "isDefaultGateway": true,
      "ipam": {"type": "metes", "range": "$POD_RANGE", "gateway": "$GATEWAY"}
    }
  ]
}
JSON
}

start_containerd() {
    cat >"$WORK/containerd.toml" <<TOML
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:e2e"
  # If the machine is itself a container, no process may lower its score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNI_BIN"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
TOML
    launch containerd containerd --config "$WORK/containerd.toml"
    eventually 30 "containerd answers" ctr version
    import_images
}

import_images() {
    local image
    for image in "$WORK/pause.tar" "$TARGET_DIR"/images/*.tar; do
        [ ! -e "$image" ] || ctr --namespace k8s.io images import "$image" >>"$LOG/images"
    done
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
        "IP:127.0.0.1,IP:$GATEWAY,IP:$API_SERVICE,DNS:kubernetes.default.svc"
    openssl genrsa -out "$PKI/service-accounts.key" 2048 2>>"$LOG/openssl"
    make_authority etcd
    make_certificate etcd etcd-server serverAuth,clientAuth "IP:127.0.0.1,IP:$GATEWAY"
    make_certificate etcd metes clientAuth DNS:metes
}

# Two etcds, as README demands: metes must not reach what Kubernetes stores.
start_etcds() {
    launch etcd-kubernetes "$ETCD" --name kubernetes --data-dir "$WORK/etcd-kubernetes" --log-level warn \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
        --initial-cluster kubernetes=http://127.0.0.1:2380 --unsafe-no-fsync
    launch etcd-metes "$ETCD" --name metes --data-dir "$WORK/etcd-metes" --log-level warn \
        --listen-client-urls $STORE --advertise-client-urls $STORE \
        --listen-peer-urls http://127.0.0.1:2480 --initial-advertise-peer-urls http://127.0.0.1:2480 \
        --initial-cluster metes=http://127.0.0.1:2480 \
        --cert-file "$PKI/etcd-server.crt" --key-file "$PKI/etcd-server.key" \
        --client-cert-auth --trusted-ca-file "$PKI/etcd.crt"
    eventually 30 "Kubernetes' etcd answers" curl --silent --fail http://127.0.0.1:2379/health
    eventually 30 "metes' etcd answers" curl --silent --fail --cacert "$PKI/etcd.crt" --cert "$PKI/metes.crt" \
        --key "$PKI/metes.key" $STORE/health
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
  cluster: {server: "https://127.0.0.1:443", certificate-authority: $PKI/kubernetes.crt}
users:
- name: $1
  user: {token: $token}
contexts:
- name: e2e
  context: {cluster: e2e, user: $1}
current-context: e2e
YAML
}

start_control_plane() {
    write_kubeconfig admin admin system:masters
    write_kubeconfig controller-manager system:kube-controller-manager
    write_kubeconfig scheduler system:kube-scheduler
    write_kubeconfig kubelet system:node:$NODE system:nodes
    launch kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
        --bind-address=0.0.0.0 --secure-port=443 --advertise-address=$GATEWAY \
        --service-cluster-ip-range=$SERVICE_RANGE \
        --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
        --token-auth-file="$KUBE/tokens" \
        --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$PKI/service-accounts.key" \
        --service-account-signing-key-file="$PKI/service-accounts.key"
    eventually 60 "kube-apiserver is ready" kubectl get --raw /readyz
    launch kube-controller-manager kube-controller-manager --kubeconfig="$KUBE/controller-manager" \
        --use-service-account-credentials --service-account-private-key-file="$PKI/service-accounts.key" \
        --root-ca-file="$PKI/kubernetes.crt" --leader-elect=false
    launch kube-scheduler kube-scheduler --kubeconfig="$KUBE/scheduler" --leader-elect=false
}

# It evicts no pod because the machine is busy, and it writes no rule into iptables.
start_kubelet() {
    cat >"$WORK/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
resolvConf: $WORK/resolv.conf
volumePluginDir: /var/lib/kubelet/plugins
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi, nodefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 2s
YAML
    launch kubelet kubelet --config="$WORK/kubelet.yaml" --kubeconfig="$KUBE/kubelet" --node-ip=$GATEWAY \
        --hostname-override=$NODE
}

# Runs a container that does nothing, without Kubernetes. If that fails, the machine is the reason.
probe_container() {
    timeout 60 ctr --namespace probe images import "$WORK/pause.tar" &&
        timeout 60 ctr --namespace probe run --detach --cgroup "/$CGROUP/probe" localhost/pause:e2e probe &&
        timeout 60 ctr --namespace probe tasks delete --force probe &&
        timeout 60 ctr --namespace probe containers delete probe
}
