# The nodes: turned on and off, joined, and their containerd and kubelet; sourced by hack/e2e.d/run.
# shellcheck shell=bash

readonly NAMESPACES=(--mount --net --pid --uts --ipc)

# on NODE COMMAND...: runs it on the node.
on() {
    local node=$1
    shift
    nsenter --target "$(<"$WORK/nodes/$node/boot/pid")" "${NAMESPACES[@]}" -- "$@"
}

# turn_on NODE
turn_on() {
    local node=$1
    mkdir -p "$WORK/nodes/$node" "$LOG/$node"
    rm -rf "$WORK/nodes/$node/boot"
    launch "$node/machine" unshare "${NAMESPACES[@]}" --fork --kill-child hack/e2e.d/node "$node"
    eventually 20 "$node has booted" test -s "$WORK/nodes/$node/boot/pid"
    plug_in "$node"
    start_containerd "$node"
    start_kubelet "$node"
}

# turn_off NODE: at once, as by its switch. With its first process, the kernel ends all others of its namespace.
turn_off() {
    local node=$1 name
    kill -KILL "$(<"$WORK/nodes/$node/boot/pid")"
    for name in "${!PID[@]}"; do
        case $name in
        "$node"/*) { wait "${PID[$name]}" || true; } 2>/dev/null && unset "PID[$name]" ;;
        esac
    done
    # The kernel removes the other end of the cables at a later time.
    for name in machines pods storage; do ip link delete "$name-$node" 2>/dev/null || true; done
    find /sys/fs/cgroup -depth -path "*/$CGROUP/$node/*" -type d -exec rmdir {} + 2>/dev/null || true
}

is_on() { [ -n "${PID[$1/machine]:-}" ]; }

# a_node: prints one that is on.
a_node() {
    local node
    for node in "${NODES[@]}"; do is_on "$node" && echo "$node" && return 0; done
    return 1
}

# plug_in NODE: the machine's own interface, and an uplink for each bridge of pods.
plug_in() {
    local node=$1 pid
    pid=$(<"$WORK/nodes/$node/boot/pid")
    cable "$node" machines "$pid" eth0
    on "$node" ip address add "${NODE_IP[$node]}/24" dev eth0
    on "$node" ip route add default via "$CONTROL_PLANE"
    bridge_with_uplink "$node" pods "$pid"
    bridge_with_uplink "$node" storage "$pid"
}

# cable NODE BRIDGE PID INTERFACE: from a port of the bridge to an interface of the node.
cable() {
    ip link add "$2-$1" master "$2" type veth peer name "$4" netns "$3"
    ip link set "$2-$1" up
    on "$1" ip link set "$4" up
}

bridge_with_uplink() {
    on "$1" ip link add "br-$2" type bridge
    on "$1" ip link set "br-$2" up
    cable "$1" "$2" "$3" "up-$2"
    on "$1" ip link set "up-$2" master "br-$2"
}

# start NODE PROGRAM ARGUMENT...: in the background, with its log on the node.
# shellcheck disable=SC2016 # The node's shell knows its own process.
start() {
    local node=$1 program=$2
    launch "$node/$program" on "$node" sh -c 'echo $$ >"/run/$0.pid" && exec "$0" "$@"' "${@:2}"
}

# stop_hard NODE PROGRAM
# shellcheck disable=SC2016
stop_hard() {
    on "$1" sh -c 'kill -KILL "$(cat "/run/$0.pid")"' "$2"
    { wait "${PID[$1/$2]}" || true; } 2>/dev/null
    unset "PID[$1/$2]"
}

# Where containerd has its configuration on any node: the installer reads it there. A pod with the RuntimeClass
# two-networks has an interface in each of the networks in two.d, of which the first is the default one.
start_containerd() {
    on "$1" mkdir -p /etc/containerd /etc/cni/two.d
    on "$1" tee /etc/containerd/config.toml >/dev/null <<TOML
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:e2e"
  # If the machine is itself a container, no process may lower its score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$CNI_BIN"
    conf_dir = "$CNI_CONF"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.two-networks]
    runtime_type = "io.containerd.runc.v2"
    cni_conf_dir = "/etc/cni/two.d"
    cni_max_conf_num = 2
TOML
    start "$1" containerd --config /etc/containerd/config.toml
    eventually 60 "containerd answers on $1" cri_answers "$1"
}

# cri_answers NODE: a kubelet ends at once while containerd still reads what ran before. `ctr` does not ask that
# service, so this is a call of gRPC by hand, with an empty message.
cri_answers() {
    printf '\0\0\0\0\0' |
        on "$1" curl --silent --include --max-time 5 --http2-prior-knowledge --unix-socket "$CONTAINERD_SOCKET" \
            --header 'content-type: application/grpc' --header 'te: trailers' --data-binary @- \
            http://localhost/runtime.v1.RuntimeService/Version | grep --text --quiet 'grpc-status: 0'
}

import_images() {
    local image
    for image in "$WORK"/images/*.tar "$TARGET_DIR"/images/*.tar; do
        on "$1" ctr --namespace k8s.io images import "$image" >>"$LOG/$1/images"
    done
}

# It evicts no pod because the machine is busy, and it writes no rule into iptables. What changes in a Secret is on the
# node within seconds.
start_kubelet() {
    cat >"$WORK/nodes/$1/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/kubernetes.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$CONTAINERD_SOCKET
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP/$1
failCgroupV1: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
resolvConf: $WORK/nodes/$1/boot/resolv.conf
volumePluginDir: /var/lib/kubelet/plugins
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi, nodefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 2s
nodeLeaseDurationSeconds: 8
syncFrequency: 10s
YAML
    start "$1" kubelet --config="$WORK/nodes/$1/kubelet.yaml" --kubeconfig="$KUBE/$1" --node-ip="${NODE_IP[$1]}" \
        --hostname-override="$1"
}

# probe_container NODE: runs a container that does nothing, without Kubernetes. If that fails, the machine is the
# reason.
probe_container() {
    on "$1" timeout 60 ctr --namespace probe images import "$WORK/images/pause.tar" &&
        on "$1" timeout 60 ctr --namespace probe run --detach --cgroup "/$CGROUP/$1/probe" localhost/pause:e2e probe &&
        on "$1" timeout 60 ctr --namespace probe tasks delete --force probe &&
        on "$1" timeout 60 ctr --namespace probe containers delete probe
}
