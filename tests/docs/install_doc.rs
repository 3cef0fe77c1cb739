//! Each block of docs/install.md is used as it stands there, and by one: a step of hack/e2e, which has whole nodes;
//! this file, which runs it against a real kube-apiserver or on a machine whose folders and network are a test's own;
//! or the parser of configurations (tests/docs/readme.rs). Where a block shows what its commands print, they print
//! that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::DeleteOptions;
use serde_json::{Value, json};
use support::{
    Block, Bridge, Cluster, Etcd, KubeApi, Manifests, Netns, Node, Outcome, Run, Shown, metes, metes_install,
    normalized, tool, wait_for,
};
use tempfile::TempDir;

const PAGE: &str = "docs/install.md";
const BLOCK_MAX: Duration = Duration::from_secs(60);
const NAMESPACES: [&str; 2] = ["metes-system", "metes"];
/// The pods of etcd.
const MEMBERS: &str = "/api/v1/namespaces/metes-system/pods";
/// Stands between the outputs of two commands.
const BETWEEN: char = '\u{1e}';
/// As the page shows it.
const CONTAINER: &str = "6f1c0d2b9e5513a07c3eb81d44a0f4182e07a92c6d9b3e60a2f71c52d86e90b4";

/// Blocks that are run nowhere, each by its first command, and why.
const BY_NOBODY: [(&str, &str); 1] = [(
    "hack/release --dry-run --registry registry.example",
    "it needs skopeo and a registry; hack/e2e imports the images",
)];

/// Runs a block, and looks at its effects.
type Case = fn(&Lab, &Block);

/// The blocks that run against a kube-apiserver.
const IN_A_CLUSTER: [(&str, Case); 7] = [
    ("label=metes.dev.node-restriction.kubernetes.io/etcd", a_kubelet_is_refused),
    ("kubectl apply -k manifests/namespaces", another_etcd_is_used),
    ("kubectl apply -f manifests/examples/bridge.yaml", a_pod_gets_a_second_interface),
    ("kubectl -n metes-system create job renew --from=cronjob/metes-certificates", certificates_are_renewed),
    ("kubectl -n metes-system delete job metes-certificates --ignore-not-found", the_authority_is_replaced),
    (
        "kubectl -n metes-system exec etcd-0 -c etcd -- etcdctl endpoint status --cluster -w table",
        members_are_asked,
    ),
    (
        "for n in 0 1 2; do kubectl -n metes-system exec etcd-$n -c care -- /metes-install etcd-defragment; done",
        space_is_gained,
    ),
];

/// The blocks that run on a machine: each with the files before, the question afterwards, and a part of the answer.
const ON_A_MACHINE: [(&str, &str, &str, &str); 3] = [
    (
        "etcdutl snapshot restore db --skip-hash-check --data-dir rescued",
        "start_etcd; etcdctl put /metes/kept 'is kept'; kill $!; wait $! || true; cp data/member/snap/db db",
        "etcdutl snapshot status restore.db; etcdctl get /metes/kept",
        "is kept",
    ),
    (
        "hack/tool deps",
        "start_etcd; echo '{\"etcd\": {\"endpoints\": [\"http://127.0.0.1:2379\"]}}' >metes.conf",
        "test ! -e /opt/cni/bin/.metes.new; stat -c '%U %a %n' /etc/cni/net.d/metes.d/metes.conf",
        "root 644 /etc/cni/net.d/metes.d/metes.conf",
    ),
    (
        "export CNI_PATH=/opt/cni/bin NETCONFPATH=/etc/cni/net.d",
        "start_etcd; cp programs/metes programs/bridge /opt/cni/bin; ln -s /opt/cni/bin/metes /usr/local/bin
         cp storage.conflist /etc/cni/net.d",
        "ip link show br-storage 2>&1 || true",
        "does not exist",
    ),
];

/// The console blocks, each by its first command without the comment.
fn blocks() -> BTreeMap<String, Block> {
    let mut blocks = BTreeMap::new();
    for block in Block::all(PAGE) {
        match block.language.as_str() {
            "console" => {
                let commands = block.commands();
                let first = commands[0].command.split(" # ").next().unwrap_or_default().trim_end().to_owned();
                assert!(blocks.insert(first.clone(), block).is_none(), "two blocks begin with {first}");
            }
            // tests/docs/readme.rs gives each to the real parser.
            "json" => {}
            other => panic!("nobody runs a block of the language {other:?}: {}", block.text()),
        }
    }
    blocks
}

/// The blocks that steps of hack/e2e run: the words of each `run_block "..."`.
fn by_steps() -> Vec<String> {
    let folder = support::root().join("hack/e2e.d/steps");
    let mut claims = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let text = fs::read_to_string(entry.path()).expect("a script");
        for rest in text.split("run_block \"").skip(1) {
            let line = rest.lines().next().unwrap_or_default();
            let words = line.strip_suffix('"').unwrap_or_else(|| panic!("{line} does not end the line"));
            claims.push(words.replace("\\\"", "\"").replace("\\$", "$"));
        }
    }
    claims
}

#[test]
fn each_block_is_run_by_one() {
    let mut claims = by_steps();
    assert!(claims.len() > 5, "{claims:?}");
    claims.extend(IN_A_CLUSTER.map(|(first, _)| first.to_owned()));
    claims.extend(ON_A_MACHINE.map(|(first, ..)| first.to_owned()));
    claims.extend(BY_NOBODY.map(|(first, _)| first.to_owned()));
    let blocks = blocks();
    for first in blocks.keys() {
        let count = claims.iter().filter(|claim| *claim == first).count();
        assert_eq!(
            count, 1,
            "{PAGE}: the block that begins with `{first}` is run by {count} steps and tests"
        );
    }
    for claim in claims {
        assert!(blocks.contains_key(&claim), "{PAGE} has no block that begins with `{claim}`");
    }
}

/// The steps find the same commands in the page as the tests.
#[test]
fn steps_read_the_page_as_tests_do() {
    for (first, block) in blocks() {
        let script = ". hack/e2e.d/document.sh; commands_of \"$1\"";
        let read = Run::new("bash").arguments([
            "-c",
            &format!("cd '{}'; {script}", support::root().display()),
            "bash",
            &first,
        ]);
        let lines = |text: &str| text.lines().map(|line| line.trim_start().to_owned()).collect::<Vec<_>>();
        let commands: Vec<String> = block.commands().into_iter().map(|shown| shown.command).collect();
        assert_eq!(lines(&read.run().stdout), lines(&commands.join("\n")), "{first}");
    }
}

#[test]
fn what_nobody_runs_is_well_formed_and_names_files_that_are_there() {
    let blocks = blocks();
    for (first, why) in BY_NOBODY {
        let commands: Vec<String> = blocks[first].commands().into_iter().map(|shown| shown.command).collect();
        let outcome = Run::new("bash").arguments(["-n"]).stdin(commands.join("\n")).run();
        assert!(outcome.succeeded() && outcome.stderr.is_empty(), "{why}: {outcome}");
        let text = commands.join(" ");
        let files: Vec<&str> = text
            .split_whitespace()
            .filter(|word| ["hack/", "manifests/"].iter().any(|b| word.starts_with(b)))
            .collect();
        assert!(!files.is_empty(), "{text}");
        for file in files {
            assert!(support::root().join(file).exists(), "{PAGE} names {file}");
        }
    }
}

#[test]
fn blocks_are_run_on_a_machine() {
    let blocks = blocks();
    for (first, before, after, answer) in ON_A_MACHINE {
        let said = Machine::new().run(&blocks[first], before, after);
        assert!(said.contains(answer), "after {first}, `{after}` says {said:?}, and not {answer:?}");
    }
}

/// A folder with programs, to be run where the machine's folders and network are a copy.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = |name: &str| folder.path().join(name);
        for name in ["bin", "programs"] {
            fs::create_dir(path(name)).expect("a folder can be made");
        }
        let clients = tool("etcd-clients");
        for (name, program) in [
            ("bin/etcd", tool("etcd")),
            ("bin/etcdctl", clients.join("etcdctl")),
            ("bin/etcdutl", clients.join("etcdutl")),
            ("bin/cnitool", tool("cnitool")),
            ("programs/metes", metes()),
            ("programs/bridge", tool("cni-plugins").join("bridge")),
            ("hack", support::root().join("hack")),
        ] {
            symlink(program, path(name)).expect("a program can be linked");
        }
        // The program is built already: the other tests run the same one.
        let cargo = "#!/bin/sh -e\n[ \"$*\" = 'build --release --locked' ]\n\
                     mkdir -p target/release\ncp -L programs/metes target/release\n";
        write_program(&path("bin/cargo"), cargo);
        let network =
            Block::all(PAGE).into_iter().map(|block| block.text()).find(|text| text.contains("\"plugins\""));
        fs::write(path("storage.conflist"), network.expect("a network for cnitool"))
            .expect("a file can be written");
        Self { folder }
    }

    /// The output of `after`. The block succeeds, and prints what it shows.
    #[track_caller]
    fn run(&self, block: &Block, before: &str, after: &str) -> String {
        let folder = self.folder.path().display();
        let prepare = format!(
            "mount --make-rprivate /
            hostname alpha
            ip link set lo up
            mount -t tmpfs tmpfs /run
            for folder in etc opt usr/local var/lib; do
                disk=/run/disk/$folder
                mkdir -p $disk/upper $disk/work
                mount -t overlay overlay -o lowerdir=/$folder,upperdir=$disk/upper,workdir=$disk/work /$folder
            done
            rm -rf /etc/cni /opt/cni /var/lib/cni /usr/local/bin/metes
            mkdir -p /opt/cni/bin /etc/cni/net.d
            cd '{folder}'
            PATH='{folder}/bin':/usr/local/bin:$PATH
            start_etcd() {{
                etcd --data-dir data --log-level error >etcd.log 2>&1 &
                until etcdctl endpoint health >health.log 2>&1; do sleep 0.1; done
            }}
            {before}"
        );
        let shell = Run::new("unshare")
            .arguments(["--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .arguments(["bash", "-c", &script(block, &prepare, after)]);
        expect_as_shown(block, &shell.run())
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a script can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode can be set");
}

/// Runs all commands in one shell, with a mark after the output of each.
fn script(block: &Block, before: &str, after: &str) -> String {
    let mut script = format!("set -eo pipefail\n{before}\n");
    for Shown { command, .. } in block.commands() {
        script += &format!("printf '{BETWEEN}'\n{{ {command}\n}} 2>&1\n");
    }
    script + &format!("printf '{BETWEEN}'\n{after}\n")
}

/// The run of a script succeeded, and each command whose output the page shows has printed that. Returns the output
/// after them.
#[track_caller]
fn expect_as_shown(block: &Block, outcome: &Outcome) -> String {
    assert!(outcome.succeeded(), "{PAGE}: a command fails: {outcome}");
    let said: Vec<&str> = outcome.stdout.split(BETWEEN).collect();
    let commands = block.commands();
    assert_eq!(said.len(), commands.len() + 2, "{outcome}");
    for (Shown { command, output }, said) in commands.iter().zip(&said[1..]) {
        let same = output.is_empty() || comparable(output) == comparable(said);
        assert!(same, "{PAGE} shows of `{command}`:\n{output}\nand it prints:\n{said}");
    }
    said[said.len() - 1].to_owned()
}

/// The normalized lines, without the id that a node without a name of its own adds to the machine's name.
fn comparable(text: &str) -> Vec<String> {
    let is_hex = |text: &str| text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let word = |word: &str| match word.split_once('-') {
        Some((name, id)) if is_hex(id) => format!("{name}-ID"),
        _ => word.to_owned(),
    };
    let line = |line: String| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    normalized(text).into_iter().map(line).collect()
}

#[test]
fn blocks_are_run_in_a_cluster() {
    let blocks = blocks();
    let lab = Lab::new();
    for (first, run) in IN_A_CLUSTER {
        run(&lab, &blocks[first]);
    }
    lab.cluster.assert_clean();
}

/// A real API server with everything installed. The test does the work of controllers and kubelets.
struct Lab {
    api: KubeApi,
    kubeconfig: PathBuf,
    cluster: Cluster,
    node: Node,
    netns: Netns,
    /// True if the pod's network is up.
    attached: RefCell<bool>,
    folder: TempDir,
    etcd: Etcd,
    /// Removed with it.
    _made: (Manifests, Bridge),
}

impl Lab {
    fn new() -> Self {
        let lab = Self::empty();
        let outcome = lab.shell("kubectl apply -k manifests").run();
        assert!(outcome.succeeded(), "{outcome}");
        for name in ["etcd-0", "etcd-1", "etcd-2"] {
            lab.api.pod("metes-system", name).label("app.kubernetes.io/name", "metes-etcd").create();
        }
        wait_for("the certificates", BLOCK_MAX, || {
            lab.control();
            lab.certificate("metes-signer", "tls.crt")
                .map(|_| ())
                .ok_or_else(|| "they are not there".to_owned())
        });
        lab
    }

    /// With nothing of metes.
    fn empty() -> Self {
        let (api, etcd) = (KubeApi::start(), Etcd::with_args(&["--quota-backend-bytes=16777216"]));
        api.install_crds();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (cluster, bridge, netns) = (Cluster::on(&etcd), Bridge::new(), Netns::new());
        let node = cluster.node_with("delta", json!({"cluster": "prod-1"}));
        let manifests = Manifests::copy();
        for folder in ["base", "byo-etcd"] {
            manifests.edit(&format!("{folder}/metes.conf"), "change-me", "prod-1");
        }
        manifests.edit("examples/bridge.yaml", "\"br-storage\"", &format!("\"{}\"", bridge.name()));
        symlink(manifests.path(""), folder.path().join("manifests")).expect("a folder can be linked");
        fs::create_dir(folder.path().join("bin")).expect("a folder can be made");
        symlink(metes(), folder.path().join("bin/metes")).expect("a program can be linked");
        symlink(tool("cni-plugins").join("bridge"), folder.path().join("bin/bridge"))
            .expect("it can be linked");
        let kubeconfig = api.kubeconfig(folder.path());
        let attached = RefCell::new(false);
        let _made = (manifests, bridge);
        let lab = Self { api, kubeconfig, cluster, node, netns, attached, folder, etcd, _made };
        write_program(&lab.path("bin/kubectl"), &lab.kubectl());
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// kubectl, but a command that it executes in a pod is run here. The object that it names must be there.
    fn kubectl(&self) -> String {
        let kubectl = tool("kubectl").display().to_string();
        let etcdctl = tool("etcd-clients").join("etcdctl").display().to_string();
        let (metes, netns) = (metes().display().to_string(), self.netns.name().to_owned());
        format!(
            "#!/bin/bash -e
            before=()
            for word; do
                [ \"$word\" != exec ] || break
                before+=(\"$word\")
            done
            [ \"$word\" = exec ] || exec '{kubectl}' \"$@\"
            shift ${{#before[@]}}
            case $2 in
            */*) object=$2 ;;
            *) object=pod/$2 ;;
            esac
            '{kubectl}' \"${{before[@]}}\" get \"$object\" >/dev/null
            while [ \"$1\" != -- ]; do shift; done
            shift
            case $1 in
            /metes-install) [ \"$2\" = etcd-defragment ]; exec '{etcdctl}' defrag ;;
            /metes) shift; exec '{metes}' \"$@\" ;;
            etcdctl) shift; exec '{etcdctl}' \"$@\" ;;
            ip) exec ip netns exec '{netns}' \"$@\" ;;
            esac
            echo \"nobody stands in for $1\" >&2
            exit 1
            "
        )
    }

    /// A shell whose folder has the content of the repository, on a machine with this cluster.
    fn shell(&self, script: &str) -> Run {
        let path = std::env::var("PATH").unwrap_or_default();
        Run::new("bash")
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("METES_CONF", self.node.host_file())
            .env("ETCDCTL_ENDPOINTS", self.etcd.endpoint())
            .arguments(["-c", &format!("cd '{}'\n{script}", self.folder.path().display())])
    }

    #[track_caller]
    fn run(&self, block: &Block) {
        let mut running = self.shell(&script(block, "", "")).spawn();
        wait_for("a block", BLOCK_MAX, || {
            self.control();
            if running.is_running() { Err(block.text()) } else { Ok(()) }
        });
        expect_as_shown(block, &running.wait());
    }

    /// Brings the work of controllers and kubelets one step forward.
    fn control(&self) {
        for job in
            NAMESPACES.iter().flat_map(|name| self.items(&format!("/apis/batch/v1/namespaces/{name}/jobs")))
        {
            if job["status"]["completionTime"].is_null() {
                self.run_job(&job);
            }
        }
        for pod in self.items(MEMBERS) {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                self.api.delete(&format!("{MEMBERS}/{}", text(&pod["metadata"]["name"])));
            }
        }
        for pod in self.items("/api/v1/namespaces/default/pods") {
            if pod["metadata"]["name"] == "with-storage" && !self.attached.replace(true) {
                self.attach("ADD", &pod);
                let ready = json!({"type": "Ready", "status": "True"});
                let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
                self.api.patch("/api/v1/namespaces/default/pods/with-storage/status", &status);
            }
        }
    }

    fn items(&self, path: &str) -> Vec<Value> {
        self.api.get(path)["items"].as_array().expect("a list").clone()
    }

    /// As Multus does for the pod's annotation.
    fn attach(&self, verb: &str, pod: &Value) {
        let name = pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"]
            .as_str()
            .expect("it names a network");
        let path =
            format!("/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/{name}");
        let config = self.api.get(&path)["spec"]["config"].as_str().expect("a configuration").to_owned();
        let uid = pod["metadata"]["uid"].as_str().expect("it has a UID");
        let outcome = Run::new(self.path("bin/bridge"))
            .env("CNI_COMMAND", verb)
            .env("METES_CONF", self.node.host_file())
            .container(CONTAINER)
            .ifname("net1")
            .netns(self.netns.path())
            .cni_path(self.path("bin"))
            .pod("default", "with-storage", uid)
            .stdin(config)
            .run();
        assert!(outcome.succeeded(), "{outcome}");
    }

    /// Runs the one container of its pod.
    fn run_job(&self, job: &Value) {
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["name"], "certificates", "nobody stands in for it");
        let arguments = container["args"].as_array().into_iter().flatten().map(text);
        let outcome = Run::new(metes_install())
            .env("KUBECONFIG", &self.kubeconfig)
            .env("NAMESPACE", text(&job["metadata"]["namespace"]))
            .arguments(arguments)
            .arguments([format!("--template={}", self.path("manifests/base/metes.conf").display())])
            .run();
        assert!(outcome.succeeded(), "{}: {outcome}", job["metadata"]["name"]);
        let now = &job["metadata"]["creationTimestamp"];
        let at = json!({"status": "True", "lastProbeTime": now, "lastTransitionTime": now});
        let is_true = |kind: &str| with_key(&at, "type", kind);
        let status = json!({"status": {
            "startTime": now, "completionTime": now, "succeeded": 1, "ready": 0, "terminating": 0,
            "conditions": [is_true("SuccessCriteriaMet"), is_true("Complete")],
        }});
        let job = with_key(&with_key(job, "apiVersion", "batch/v1"), "kind", "Job");
        let path = format!("{}/status", self.api.path_of(&job));
        self.api.patch(&path, &status);
    }

    /// The content of a Secret's file, if the Secret is there.
    fn certificate(&self, secret: &str, file: &str) -> Option<String> {
        let path = |namespace| format!("/api/v1/namespaces/{namespace}/secrets/{secret}");
        let secret = NAMESPACES.iter().find_map(|namespace| self.api.find(&path(namespace)))?;
        Some(text(&secret["data"][file]).to_owned())
    }

    /// The Secret changes in the next moments.
    #[track_caller]
    fn wait_for_another(&self, secret: &str, file: &str, before: &Option<String>) {
        assert!(before.is_some(), "there was none");
        wait_for("another certificate", BLOCK_MAX, || {
            self.control();
            let now = self.certificate(secret, file);
            if now.is_some() && now != *before { Ok(()) } else { Err(format!("{secret} is as it was")) }
        });
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn with_key(object: &Value, key: &str, value: &str) -> Value {
    let mut object = object.clone();
    object[key] = json!(value);
    object
}

fn another_etcd_is_used(_: &Lab, block: &Block) {
    let lab = Lab::empty();
    for user in ["node", "reconciler", "viewer", "admin"] {
        fs::create_dir(lab.path(user)).expect("a folder can be made");
        for file in ["ca.crt", "tls.crt", "tls.key"] {
            fs::write(lab.path(user).join(file), file).expect("a file can be written");
        }
    }
    lab.run(block);
    let there = |path: &str| lab.api.find(&format!("/apis/apps/v1/namespaces/metes-system/{path}")).is_some();
    assert!(there("daemonsets/metes-installer") && !there("statefulsets/etcd"), "{block:?}");
    for secret in ["metes-node", "metes-reconciler", "metes-viewer", "metes-admin"] {
        assert!(lab.certificate(secret, "tls.key").is_some(), "the pods mount it");
    }
    lab.cluster.assert_clean();
}

fn a_kubelet_is_refused(lab: &Lab, block: &Block) {
    lab.api.node("delta");
    lab.run(block);
}

fn a_pod_gets_a_second_interface(lab: &Lab, block: &Block) {
    lab.run(block);
    lab.attach("DEL", &lab.api.get("/api/v1/namespaces/default/pods/with-storage"));
    lab.cluster.assert_nothing_held();
}

fn certificates_are_renewed(lab: &Lab, block: &Block) {
    let (client, authority) =
        (lab.certificate("metes-signer", "tls.crt"), lab.certificate("metes-signer", "ca.crt"));
    lab.run(block);
    lab.wait_for_another("metes-signer", "tls.crt", &client);
    assert_eq!(lab.certificate("metes-signer", "ca.crt"), authority, "the authority stays");
}

/// The members start again by themselves, with the files that are there then.
fn the_authority_is_replaced(lab: &Lab, block: &Block) {
    let authority = lab.certificate("metes-ca", "tls.crt");
    lab.run(block);
    lab.wait_for_another("metes-ca", "tls.crt", &authority);
    for secret in ["metes-admin", "metes-signer", "metes-reconciler", "metes-etcd-peer", "metes-etcd-server"]
    {
        assert_eq!(lab.certificate(secret, "ca.crt"), lab.certificate("metes-ca", "tls.crt"), "{secret}");
    }
    let pods = lab.items(MEMBERS);
    assert!(pods.is_empty(), "a member keeps what it has read: {pods:?}");
    for name in ["etcd-0", "etcd-1", "etcd-2"] {
        lab.api.pod("metes-system", name).create();
    }
}

fn members_are_asked(lab: &Lab, block: &Block) {
    lab.run(block);
}

/// etcd is full of old revisions.
fn space_is_gained(lab: &Lab, block: &Block) {
    let store = lab.cluster.store();
    store.fill();
    let config = support::network(json!({"range": "10.70.0.0/24"}));
    let full = lab.node.add("c1").config(&config).run();
    assert!(!full.succeeded() && full.stdout.contains("103"), "{full}");
    let all = DeleteOptions::new().with_prefix();
    store.run(async |client| client.delete("/filling/", Some(all)).await);
    let revision = store.revision();
    store.run(async |client| client.compact(revision, None).await);
    lab.run(block);
    lab.node.add("c1").config(&config).run().address();
    lab.node.del("c1").config(&config).run().silent();
}
