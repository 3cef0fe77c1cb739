# Names, addresses and how programs are started and waited for; sourced by hack/e2e.d/run and hack/e2e.d/node.
# Everything is in its own namespaces, so addresses and ports are fixed, and the machine's usual paths are used.
# shellcheck shell=bash disable=SC2034

readonly NODES=(alpha beta gamma)
declare -rA NODE_IP=([alpha]=192.168.77.11 [beta]=192.168.77.12 [gamma]=192.168.77.13)
readonly CONTROL_PLANE=192.168.77.1
readonly GATEWAY=10.244.0.1 # of the pods: it is beside the control plane
readonly POD_RANGE=10.244.0.0/24
readonly STORAGE_RANGE=10.56.0.0/24
readonly SERVICE_RANGE=10.96.0.0/16
readonly API_SERVICE=10.96.0.1
readonly CNI_BIN=/opt/cni/bin
readonly CNI_CONF=/etc/cni/net.d
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
    local seconds=$1 what=$2 end=$((SECONDS + $1)) said=$TMPDIR/said.$BASHPID
    shift 2
    until "$@" >"$said" 2>&1; do
        expect_running
        [ $SECONDS -lt $end ] ||
            die "waited $seconds s in vain: $what. The last try of '$*' said: $(tail -n 5 "$said")"
        sleep 0.3
    done
}

# each COMMAND WORD...: runs COMMAND NODE WORD... for all nodes at the same time.
each() {
    local node children=() child
    for node in "${NODES[@]}"; do
        "$1" "$node" "${@:2}" &
        children+=($!)
    done
    for child in "${children[@]}"; do wait "$child" || die "$* failed on a node"; done
}
