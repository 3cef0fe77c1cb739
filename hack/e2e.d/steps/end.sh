# metes is uninstalled; sourced by hack/e2e.d/run.
# shellcheck shell=bash

step_uninstall() {
    uninstaller_refuses
    delete_pods
    uninstall
    each expect_clean
    outcome "no file, no process and no object of metes is left"
}

uninstaller_refuses() {
    kubectl -n metes-system delete daemonset metes-installer
    kubectl apply -k "$WORK/copy/manifests/uninstall"
    eventually 60 "the uninstaller refuses" grep -h "refused: this node holds" -r "$LOG" --include='*.log'
    kubectl delete -k "$WORK/copy/manifests/uninstall"
    metes list >/dev/null || die "the plugin or its host file is gone"
    expect_agreement 12
}

delete_pods() {
    kubectl delete namespace work --wait=false
    eventually 120 "no address is held" nothing_held
    expect_no_violation
}

uninstall() {
    run_block "kubectl delete --ignore-not-found -k manifests/installer"
    run_block "kubectl delete --ignore-not-found -k manifests/uninstall"
    each remove_data
    [ -z "$(of_metes)" ] || die "objects are left: $(of_metes)"
}

remove_data() { on "$1" rm -rf /var/lib/metes-etcd /var/lib/metes-etcd-snapshots; }

# of_metes: prints all objects that are labelled as part of metes.
of_metes() {
    kubectl get "$(kubectl api-resources --verbs=list -o name | paste -sd ,)" --all-namespaces \
        -l app.kubernetes.io/part-of=metes -o name --ignore-not-found 2>/dev/null
}

# The networks are the operator's, and an empty folder beside them stays.
expect_clean() {
    local left
    left=$(on "$1" find /etc /opt /var/lib /var/lib/cni /run -xdev -path '*metes*' -not -type d)
    [ -z "$left" ] || die "left on $1: $left"
    ! on "$1" pgrep -l 'etcd|metes' || die "processes are left on $1"
}
