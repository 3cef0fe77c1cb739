# What an operator sees of pods and addresses; sourced by hack/e2e.d/run.
# shellcheck shell=bash

LEAKED= # what nobody gives back any more: lines like those of held

# metes ARGUMENT...: on a node that is on.
metes() { on "$(a_node)" "$CNI_BIN"/metes "$@"; }

# operator ARGUMENT...: a command that nodes have no right to, in a pod of its own, as docs/install.md has it.
operator() {
    local job=operator-$RANDOM
    {
        kubectl -n metes create job "$job" --from=cronjob/metes-admin
        kubectl -n metes wait --for=jsonpath='{.status.ready}'=1 "job/$job" --timeout=60s
    } </dev/null >>"$LOG/kubectl" 2>&1 || die "no pod for an operator: $(tail -n 3 "$LOG/kubectl")"
    kubectl -n metes exec -i "job/$job" -- /metes "$@" || die "the operator's command failed: metes $*"
    kubectl -n metes delete job "$job" --wait=false >>"$LOG/kubectl"
}

# held, alive: print lines of "ADDRESS NAMESPACE/NAME UID": what metes holds for pods in the default network, and which
# pods Kubernetes runs there.
held() { records | jq -r 'select(.network == "default") | "\(.address) \(.pod.namespace)/\(.pod.name) \(.pod.uid)"'; }

records() { metes list -o json | jq -c '.[] | select(.pod != null)' | sort; }

alive() {
    kubectl get pods --all-namespaces -o json | jq -r '.items[]
        | select(.spec.hostNetwork != true and .status.podIP != null)
        | select(.status.phase != "Succeeded" and .status.phase != "Failed")
        | "\(.status.podIP) \(.metadata.namespace)/\(.metadata.name) \(.metadata.uid)"' | sort
}

# expect_agreement COUNT: COUNT pods run, and exactly these pods hold addresses.
expect_agreement() {
    eventually "${WAIT:-120}" "$1 pods run, and metes list names exactly them" agree "$1"
}

agree() {
    local pods
    pods=$(alive)
    [ "$(running)" -eq "$1" ] && [ "$(wc -l <<<"$pods")" -eq "$1" ] &&
        diff <(echo "$pods") <(held | sort | grep -vxF "${LEAKED:-nothing}")
}

# How many pods of the namespace work are Ready.
running() {
    kubectl -n work get pods -o json | jq '[.items[] | select(.metadata.deletionTimestamp == null)
        | select(any(.status.conditions[]?; .type == "Ready" and .status == "True"))] | length'
}

show_pods() {
    metes list
    kubectl -n work get pods -o wide
}

nothing_held() { [ -z "$(held)" ]; }

# expect_no_violation: metes check finds nothing wrong.
expect_no_violation() { metes check || die "metes check finds violations"; }

# doctor_says NODE WORDS: prints the lines; metes doctor fails if anything is bad.
doctor_says() { { on "$1" "$CNI_BIN"/metes doctor || true; } | grep "$2"; }

# namespaces_with NODE INTERFACE ADDRESS...: prints the network namespaces on the node with one of the addresses there.
namespaces_with() {
    local node=$1 interface=$2 name address
    for name in $(on "$node" ls /run/netns); do
        address=$(on "$node" ip -netns "$name" -4 -o address show "$interface" 2>/dev/null | awk '{ print $4 }')
        [[ -z "$address" || " ${*:3} " != *" ${address%/*} "* ]] || echo "/run/netns/$name"
    done
}

# Each pod asks for an answer of each other pod. An address that was given again within seconds does not answer at
# once: neighbours still have the old MAC.
ping_pods() {
    local addresses
    mapfile -t addresses < <(alive | cut -d ' ' -f 1)
    each ping_from "${addresses[@]}"
    echo "each of ${#addresses[@]} pods reaches all others"
}

# ping_from NODE ADDRESS...: from all pods on the node.
ping_from() {
    local namespace
    for namespace in $(namespaces_with "$1" eth0 "${@:2}"); do
        # shellcheck disable=SC2016 # The addresses are the words of the inner shell.
        eventually 60 "a pod on $1 reaches all others" on "$1" nsenter --net="$namespace" bash -c '
            for address; do ping -q -c 1 -W 1 "$address" >/dev/null & pids+=($!); done
            for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
            exit ${failed:-0}' ping "${@:2}"
    done
}

# where NODE: prints those lines of alive whose pods of the Deployment are on the node.
where() {
    local names
    names=$(kubectl -n work get pods --field-selector "spec.nodeName=$1" -o name | sed 's|^pod/|work/|')
    alive | grep -wF "${names:-nothing}" || true
}

# force_delete LINES: deletes pods as a person does who does not wait for the node.
force_delete() {
    local names
    readarray -t names < <(cut -d ' ' -f 2 <<<"$1")
    kubectl -n work delete pod "${names[@]#*/}" --force --grace-period=0 >>"$LOG/kubectl" 2>&1
}
