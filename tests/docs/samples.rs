//! The samples of commands on the pages for users are the output of the real binary. Each line `# ...` of their console
//! blocks is run, in order, with a shell and a real etcd. Parts that differ from run to run are compared by their form
//! alone.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::{Value, json};

use support::{Block, Cluster, Etcd, Node, Run, Running, Shown, metes, network_as, normalized, wait_for};

const WATCH_MAX: Duration = Duration::from_secs(30);
/// The mark that a page puts before typed text.
const PROMPT: &str = "# ";
const QUESTION: &str = "[y/N]";
/// The characters that a page shows of a container's id, which the command prints whole.
const ID_SHOWN: usize = 12;
/// Files that samples name, and which block of YAML of a page each has.
const FILES: [(&str, &str, usize); 3] =
    [("storage.yaml", "README.md", 0), ("pool.yaml", "docs/pools.md", 0), ("racks.yaml", "docs/pools.md", 1)];
const PAGES: [&str; 4] = ["docs/commands.md", "docs/holds.md", "docs/pools.md", "docs/validate.md"];
const CONTAINERS: [&str; 4] = [
    "6f1c0d2b9e5513a07c3eb81d44a0f4182e07a92c6d9b3e60a2f71c52d86e90b4",
    "b81d44a07c3e6f1c0d2b9e55a92c6f4182e07d9b3e60a2f71c52d86e90b413a0",
    "e07a92c6f4181d9b3e60a2f76f1c0d2b9e5513a07c3eb81d44a01c52d86e90b4",
    "1d9b3e60a2f76f1c0d2b9e5513a07c3eb81d44a0e07a92c6f4181c52d86e90b4",
];

/// The texts of the blocks of a language.
fn blocks(file: &str, language: &str) -> Vec<Block> {
    Block::all(file).into_iter().filter(|block| block.language == language).collect()
}

/// The samples of blocks that begin with a line of the shell of a node: others need a cluster.
fn samples(file: &str) -> Vec<Shown> {
    let on_a_node = |block: &Block| block.lines.first().is_some_and(|line| line.starts_with(PROMPT));
    blocks(file, "console").into_iter().filter(on_a_node).flat_map(|block| block.commands()).collect()
}

/// The form of a text. Long ids are cut, and the answers of a person are left out.
fn comparable(text: &str) -> Vec<String> {
    let mut text = text.replace(&format!("{QUESTION} y\n"), &format!("{QUESTION} "));
    for id in CONTAINERS {
        text = text.replace(id, &format!("{}...", &id[..ID_SHOWN]));
    }
    normalized(&text)
}

/// The state before the samples: three pods hold addresses, and the reconciler has seen that one of them is gone.
struct Scene {
    cluster: Cluster,
    node: Node,
}

impl Scene {
    fn new(etcd: &Etcd) -> Self {
        let cluster = Cluster::on(etcd);
        let in_cluster = |name| cluster.node_with(name, json!({"cluster": "prod-1"}));
        let (first, second) = (in_cluster("worker-1"), in_cluster("worker-2"));
        add(&first, CONTAINERS[0], "db-0", "10.56.0.16");
        add(&second, CONTAINERS[1], "db-1", "10.56.0.17");
        add(&second, CONTAINERS[2], "job-7", "10.56.0.99");
        let (store, gone) = (cluster.store(), format!("prod-1/worker-2/{}/net1", CONTAINERS[2]));
        let owner = store.key(&format!("v1/owner/{gone}"));
        let revision = store.run(async |client| Ok(client.get(owner, None).await?.kvs()[0].mod_revision()));
        let orphan = json!({"v": 1, "reason": "pod-gone", "revision": revision, "grace": 300}).to_string();
        store.put_leased(&format!("v1/orphan/{gone}"), orphan, 600);
        let folder = cluster.folder();
        symlink(metes(), folder.join("metes")).expect("a link can be made");
        for (name, file, index) in FILES {
            fs::write(folder.join(name), blocks(file, "yaml")[index].text()).expect("a file can be written");
        }
        Self { cluster, node: first }
    }

    /// As a person who answers yes.
    fn shell(&self, command: &str) -> Run {
        let path = std::env::var("PATH").unwrap_or_default();
        let folder = self.cluster.folder().display();
        Run::new("bash")
            .env("METES_CONF", self.node.host_file())
            .env("HOME", self.cluster.folder())
            .env("PATH", format!("{folder}:{path}"))
            .arguments(["-c", &format!("cd {folder} && {command}")])
            .stdin("y\n")
    }

    fn run(&self, command: &str) -> String {
        self.shell(&format!("{{ {command}\n}} 2>&1")).run().stdout
    }

    /// The output of a watch while a pod comes and goes.
    fn watch(&self, etcd: &Etcd, command: &str) -> String {
        let watch: Running = self.shell(&format!("exec {command} >watched 2>&1")).spawn();
        wait_for("a watch", WATCH_MAX, || match etcd.metric("etcd_debugging_mvcc_watcher_total", &[]) {
            1.0.. => Ok(()),
            count => Err(count.to_string()),
        });
        add(&self.node, CONTAINERS[3], "ci", "10.56.0.18");
        self.node.del(CONTAINERS[3]).ifname("net1").config(&storage()).run().silent();
        let file = self.cluster.folder().join("watched");
        let read = || fs::read_to_string(&file).unwrap_or_default();
        wait_for("two lines of a watch", WATCH_MAX, || match read().lines().count() {
            2.. => Ok(()),
            _ => Err(read()),
        });
        watch.interrupt();
        watch.wait();
        read()
    }
}

fn storage() -> Value {
    let ipam = json!({"range": "10.56.0.0/16", "exclude": ["10.56.0.0/28"], "gateway": "10.56.255.254",
        "network_name": "storage"});
    network_as("1.0.0", "storage", ipam)
}

fn add(node: &Node, container: &str, pod: &str, address: &str) {
    let uid = format!("{}-4c55-4f7e-9a4b-6f1c0d2b9e55", &container[..8]);
    let args = format!("K8S_POD_NAMESPACE=prod;K8S_POD_NAME={pod};K8S_POD_UID={uid};IP={address}");
    let run = node.add(container).ifname("net1").args(&format!("IgnoreUnknown=1;{args}"));
    assert_eq!(run.config(&storage()).run().address(), address);
}

/// Shows, for each sample that differs, the output of the real run.
fn differences(file: &str, etcd: &Etcd) -> String {
    let scene = Scene::new(etcd);
    let mut told = String::new();
    for Shown { command, output: shown } in samples(file) {
        let printed = match command.contains(" --watch-only") {
            true => scene.watch(etcd, &command),
            false => scene.run(&command),
        };
        if comparable(&printed) != comparable(&shown) {
            told += &format!("{file} shows of `{command}`:\n{shown}\nand it prints:\n{printed}\n");
        }
    }
    scene.cluster.assert_clean();
    told
}

#[test]
fn pages_show_what_commands_print() {
    let etcd = Etcd::start();
    let told: String = PAGES.map(|file| differences(file, &etcd)).concat();
    assert!(told.is_empty(), "{told}");
}
