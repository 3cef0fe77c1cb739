# The files of a release, and nothing else, are installed and upgraded; sourced by hack/e2e.d/run. A node has nothing of
# metes when a step begins and when it ends.
# shellcheck shell=bash

readonly DIST=$WORK/dist
# docs/install.md has other addresses. Here metes serves the default network.
readonly OF_THIS_CLUSTER="s/10\.0\.0\.1\([123]\)/192.168.77.1\1/g; s/ install\.yaml/ install-host-network.yaml/g"

step_release() {
    each import_by_digest
    COPY=$DIST \
        run_block "openssl dgst -sha256 -verify metes.pub -signature <(base64 --decode SHA256SUMS.sig) SHA256SUMS"
    COPY=$DIST CHANGE=$OF_THIS_CLUSTER \
        run_block "nodes='s/192.0.2.11/10.0.0.11/; s/192.0.2.12/10.0.0.12/; s/192.0.2.13/10.0.0.13/'"
    released_works
    package_works
    sed -i "s|$(digest_of metes-install)|$(digest_of_next)|" "$DIST/install-host-network.yaml"
    kubectl -n metes-system delete job metes-certificates --ignore-not-found
    kubectl apply -f "$DIST/install-host-network.yaml"
    upgraded_works
    remove_pods_and_plugin
    kubectl delete --ignore-not-found -f "$DIST/install-host-network.yaml" >>"$LOG/kubectl"
    nothing_is_left
    outcome "install.yaml was installed and upgraded, and kubectl metes ran"
}

step_chart() {
    local before
    PATH=$HELM_3:$PATH
    COPY=$DIST CHANGE="$OF_THIS_CLUSTER; s/allowed=any/allowed=any,hostNetwork=true/" \
        run_block "endpoints='{https://10.0.0.11:12379,https://10.0.0.12:12379,https://10.0.0.13:12379}'"
    released_works
    before=$(certificates)
    "$HELM_4/helm" upgrade metes "$DIST"/metes-*.tgz --namespace metes-release --reset-then-reuse-values \
        --set "images.install=localhost/metes-install@$(digest_of_next)" --wait --timeout 5m
    upgraded_works
    [ "$(certificates)" = "$before" ] || die "the upgrade has made certificates anew: $before, $(certificates)"
    remove_pods_and_plugin
    helm uninstall metes --namespace metes-release
    kubectl get namespace metes-system metes
    kubectl delete namespace metes-system metes metes-release >>"$LOG/kubectl"
    nothing_is_left
    outcome "helm 3 installed the chart with --wait, and helm 4 upgraded it"
}

# As on a node without a registry. Manifests of a release name images by their digests.
import_by_digest() {
    local name file
    for name in metes-install metes-reconciler; do
        for file in "$DIST/$name"-*.tar "$WORK/images/next.tar"; do
            on "$1" ctr --namespace k8s.io images import --digests --base-name "localhost/$name" "$file" \
                >>"$LOG/$1/images"
        done
    done
}

digest_of() { digest_in "$DIST/$1"-*.tar; }

digest_of_next() { digest_in "$WORK/images/next.tar"; }

# digest_in ARCHIVE
digest_in() { tar --extract --to-stdout --file "$1" index.json | jq -r '.manifests[0].digest'; }

released_works() {
    expect_no_violation
    each write_networks
    eventually 60 "all nodes are Ready" nodes_ready
    kubectl create namespace work
    eventually 30 "the service account is there" kubectl -n work get serviceaccount default
    kubectl apply -f hack/e2e.d/workload.yaml
    expect_agreement 12
    PLUGINS=$(plugins)
    # It is a plugin of kubectl.
    cp "$DIST/kubectl-metes" "$HOME"
    PATH=$HOME:$PATH kubectl metes list --no-headers | wc -l | grep -x 12 || die "kubectl metes lists no 12 addresses"
    PATH=$HOME:$PATH kubectl metes hold 10.244.0.250 --network default --note release
    PATH=$HOME:$PATH kubectl metes holds --no-headers | grep 10.244.0.250 || die "kubectl metes has set nothing aside"
    PATH=$HOME:$PATH kubectl metes hold --remove 10.244.0.250 --network default
}

# Debian's package, in a root that has nothing but dpkg's own files.
package_works() {
    local root=$WORK/clean-root
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
    touch "$root/var/lib/dpkg/status"
    dpkg --root="$root" --install "$DIST"/metes_*_amd64.deb >>"$LOG/dpkg"
    chroot "$root" /usr/bin/metes --version
    chroot "$root" /usr/lib/cni/metes --version
    dpkg --root="$root" --purge metes >>"$LOG/dpkg"
    [ -z "$(find "$root" -name '*metes*')" ] || die "the package leaves $(find "$root" -name '*metes*')"
}

upgraded_works() {
    eventually 240 "all nodes have the other plugin" all_plugins_differ "$PLUGINS"
    eventually 240 "the installer is ready" \
        kubectl -n metes-system rollout status daemonset/metes-installer --timeout=5s
    kubectl -n work rollout restart deployment web
    expect_agreement 12
    expect_no_violation
}

# certificates: their Secrets, with a number that changes when they do.
certificates() {
    kubectl get secrets --all-namespaces -o json |
        jq -r '.items[] | select(.metadata.namespace == "metes-system" or .metadata.namespace == "metes")
            | "\(.metadata.namespace)/\(.metadata.name) \(.metadata.resourceVersion)"' | sort
}

remove_pods_and_plugin() {
    delete_pods
    kubectl -n metes-system delete daemonset metes-installer
    tar --extract --gzip --directory "$TMPDIR" --file "$DIST"/metes-manifests-*.tar.gz
    kubectl apply -k "$TMPDIR/manifests/uninstall"
    kubectl -n metes-system rollout status daemonset/metes-uninstall --timeout=2m
    kubectl delete -k "$TMPDIR/manifests/uninstall"
}

nothing_is_left() {
    each remove_data
    eventually 60 "the namespace of pods is gone" no_namespace work
    [ -z "$(of_metes)" ] || die "objects are left: $(of_metes)"
    each expect_clean
}

no_namespace() { ! kubectl get namespace "$1"; }
