# Pods of a StatefulSet, whose addresses outlive them; sourced by hack/e2e.d/run.
# shellcheck shell=bash

readonly STICKY='"sticky": "pod", "keep": "1h", "range"'
DATABASES= # lines of "NAME ADDRESS"

step_sticky() {
    local uids
    start_databases
    uids=$(database_uids)
    kubectl -n work rollout restart statefulset db
    expect_new "$uids"
    expect_kept "a rolling restart"
    uids=$(database_uids)
    kubectl -n work delete pod db-0 db-1 db-2 --force --grace-period=0 >>"$LOG/kubectl" 2>&1
    expect_new "$uids"
    expect_kept "pods were deleted by force"
    uids=$(database_uids)
    kubectl -n work scale statefulset db --replicas=0
    eventually 90 "no database is left" no_databases
    [ "$(database_addresses)" = "$DATABASES" ] || die "without databases, these are held: $(database_addresses)"
    kubectl -n work scale statefulset db --replicas=3
    expect_new "$uids"
    expect_kept "they were scaled to 0 and to 3"
    lose_database
    end_databases
    expect_whole "${NODES[@]}"
    outcome "3 databases kept their addresses over restarts, deletions by force, a scale to 0 and the loss of a node"
}

start_databases() {
    each change_storage 's/"range"/'"$STICKY"'/'
    kubectl apply -f hack/e2e.d/statefulset.yaml
    expect_new ""
    DATABASES=$(database_addresses)
    expect_kept "the start"
}

# Their addresses are free then.
end_databases() {
    local kept
    kubectl -n work delete statefulset db
    eventually 90 "no database is left" no_databases
    mapfile -t kept < <(cut -d ' ' -f 2 <<<"$DATABASES")
    operator hold --remove "${kept[@]}" --network storage
    each change_storage "s/$STICKY/\"range\"/"
    eventually 60 "the second network is empty" storage_held 0
}

# change_storage NODE SCRIPT: of sed, for the file of the second network.
change_storage() {
    local file=/etc/cni/two.d/20-storage.conflist
    on "$1" sed "$2" "$file" >"$WORK/storage-$1"
    on "$1" cp "$WORK/storage-$1" "$file.new"
    on "$1" mv "$file.new" "$file"
}

databases() { kubectl -n work get pods -l app=db -o json; }

no_databases() { [ "$(databases | jq '.items | length')" -eq 0 ]; }

database_uids() { databases | jq -r '.items[].metadata.uid' | sort; }

# expect_new UIDS: three databases are Ready, and none of these pods is among them.
expect_new() { eventually 180 "three other databases are Ready" are_new "$1"; }

are_new() {
    local now
    now=$(databases | jq -r '.items[] | select(.metadata.deletionTimestamp == null)
        | select(any(.status.conditions[]?; .type == "Ready" and .status == "True")) | .metadata.uid' | sort)
    [ "$(wc -l <<<"$now")" -eq 3 ] && [ -z "$(comm -12 <(echo "$1") <(echo "$now"))" ]
}

database_addresses() {
    records | jq -r 'select(.network == "storage" and (.pod.name | startswith("db-"))) |
        "\(.pod.name) \(.address)"' | sort
}

# expect_kept WORDS: after this, each database has its address, and no other pod has one of them.
expect_kept() {
    [ "$(database_addresses)" = "$DATABASES" ] ||
        die "after $1, databases have $(database_addresses); before: $DATABASES"
    eventually 60 "each address of a database is on one interface" on_one_interface_each
    expect_no_violation
    echo "after $1, databases have their addresses:"
    echo "$DATABASES"
}

# Nodes that are off have none.
on_one_interface_each() {
    local node address found
    while read -r _ address; do
        found=0
        for node in "${NODES[@]}"; do
            found=$((found + $(namespaces_with "$node" eth1 "$address" 2>/dev/null </dev/null | wc -l)))
        done
        [ "$found" -eq 1 ] || return 1
    done <<<"$DATABASES"
}

# gamma is turned off, for good as far as Kubernetes knows. The next pod of the name waits for a pass, and no longer.
lose_database() {
    local lost uid
    lost=$(kubectl -n work get pods -l app=db --field-selector spec.nodeName=gamma -o name | head -n 1)
    [ -n "$lost" ] || die "no database is on gamma"
    uid=$(kubectl -n work get "$lost" -o jsonpath='{.metadata.uid}')
    turn_off gamma
    eventually 60 "gamma is NotReady" node_is Unknown gamma
    kubectl taint node gamma node.kubernetes.io/out-of-service=nodeshutdown:NoExecute
    eventually 180 "the next pod of the name waits" waits_for_seat
    eventually 180 "passes give the seat to the next pod" new_after_pass "$uid"
    expect_kept "the loss of a node"
    turn_on gamma
    kubectl taint node gamma node.kubernetes.io/out-of-service-
    eventually 120 "gamma is Ready" node_is True gamma
    eventually 120 "etcd has all members" all_members
}

waits_for_seat() { kubectl -n work get events | grep "is in use since"; }

new_after_pass() {
    pass
    are_new "$1"
}
