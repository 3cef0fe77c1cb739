# The steps in their order, "NAME: TITLE"; sourced by hack/e2e and hack/e2e.d/run. The function of a step is step_NAME,
# with underscores. All steps need the first ones. Each of the others finds the cluster whole and leaves it whole.
# shellcheck shell=bash disable=SC2034

readonly FIRST_STEPS=3
readonly STEPS=(
    "nodes: three nodes register, and wait for a network of pods"
    "install: kubectl apply -k brings etcd, certificates, plugin and reconciler; the nodes become Ready"
    "pods: pods on all nodes get addresses that are theirs alone, and reach each other"
    "networks: pods with a second network have an address of each, and reach each other on both"
    "scale: addresses come back when the Deployment shrinks, and are given again when it grows"
    "pool: the network moves into a pool, which grows while pods start and is drained"
    "leaks: addresses leak, by DELs that fail and by lost containers; the CronJob frees them and nothing else"
    "brake: so many addresses are orphaned that the reconciler, a Deployment here, frees them only by force"
    "node-loss: a node is turned off: its pods move, and its addresses come back when an operator says so"
    "sticky: databases keep their addresses: a rolling restart, deletions by force, a scale to 0, a node that is lost"
    "drain: nodes are drained by kubectl: only one of etcd's at a time, and its member waits for the end"
    "empty-disk: a node comes back with an empty disk: its member of etcd joins the others again"
    "power-cut: all nodes are turned off, and on again"
    "certificates: all certificates are renewed under load, and again after they have ended"
    "identities: all nodes go to one key for all and back to identities under load, which are renewed"
    "taken-node: somebody takes over a node and is refused what is documented; then it is revoked under load"
    "restore: an older snapshot of etcd is restored and running pods of both networks are adopted: nobody is renumbered"
    "upgrade: the plugin and etcd go to other versions and back under load; an older plugin refuses a newer store"
    "move: all of metes moves to other namespaces under load, and back"
    "api-down: the API is down under load, for E2E_API_DOWN seconds or a minute"
    "leader-lost: the leader of etcd is killed under load"
    "node-cut-off: a node and its member lose their network under load"
    "uninstall: metes is not uninstalled while pods hold addresses, and then leaves nothing"
    "release: install.yaml of a release is installed and upgraded, from its files alone"
    "chart: the Helm chart of a release is installed and upgraded with --wait; no certificate is made anew"
)
