//! A cluster of one test's own: a key prefix, a folder, and a host file for each node.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::etcd::{Etcd, host_keys};
use super::outcome::Outcome;
use super::process::{temporary, unique};
use super::run::Run;
use super::slow_links::SlowTrio;
use super::store::Store;
use super::tls::Tls;
use super::tool::metes;
use super::trio::Trio;
use super::wait::wait_for;

/// The lease of an ADD lives for 3 minutes.
const TICKETS_END_MAX: Duration = Duration::from_secs(200);

/// Ends with [`Cluster::assert_clean`]; a test that forgets it fails.
#[derive(Debug)]
pub struct Cluster {
    prefix: String,
    /// The keys with which every host file begins.
    host: Value,
    folder: TempDir,
    store: Store,
    checked: AtomicBool,
}

impl Cluster {
    /// On the etcd that all tests of the process share.
    pub fn new() -> Self {
        Self::on(Etcd::shared())
    }

    /// On a server of the test's own.
    pub fn on(etcd: &Etcd) -> Self {
        Self::at(vec![etcd.endpoint()], etcd.tls(), json!({}))
    }

    /// On three members, in the order in which the host file names them.
    pub fn on_trio(trio: &Trio) -> Self {
        // Its members are in namespaces, and so not on the loopback.
        let plaintext = if trio.tls().is_some() { json!({}) } else { json!({"allow_plaintext": true}) };
        Self::at(trio.endpoints(), trio.tls(), plaintext)
    }

    /// On three members of the loopback.
    pub fn on_slow_trio(trio: &SlowTrio) -> Self {
        Self::at(trio.endpoints(), None, json!({}))
    }

    fn at(endpoints: Vec<String>, tls: Option<&Tls>, mut host: Value) -> Self {
        let prefix = format!("/{}/", unique("test"));
        host["etcd"] = host_keys(&endpoints, tls, &prefix);
        Self {
            host,
            folder: temporary(),
            store: Store::of(endpoints, tls, &prefix),
            checked: AtomicBool::new(false),
            prefix,
        }
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The test's own folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A node with the usual host file. The same name gives the same node again.
    pub fn node(&self, name: &str) -> Node {
        self.node_with(name, json!({}))
    }

    /// A node whose host file has these keys besides or instead of the usual ones; `null` takes one away.
    pub fn node_with(&self, name: &str, keys: Value) -> Node {
        let folder = self.folder().join(name);
        fs::create_dir_all(&folder).expect("a folder can be made");
        let mut host = self.host.clone();
        let spool = folder.join("spool");
        let usual = json!({"node_name": name, "cluster": "test", "spool_dir": spool, "allowed": "any"});
        merge(&mut host, usual);
        merge(&mut host, keys);
        let node = Node { name: name.to_owned(), folder };
        node.write_host_file(host.to_string());
        node
    }

    /// `metes check`, from a node that runs no plugin.
    pub fn check(&self) -> Outcome {
        self.checked.store(true, Ordering::Relaxed);
        self.node("auditor").cli(["check"])
    }

    /// Every invariant holds, and no bit is set without a reservation.
    #[track_caller]
    pub fn assert_clean(&self) {
        let stray = self.stray_bits();
        assert!(stray.is_empty(), "bits without a reservation: {stray:?}");
    }

    /// Every invariant holds, but stray bits may be left: for a test in which runs change a page while a DEL of their
    /// node relies on it, a DEL is short of time or without space, or a pass is killed before it repairs.
    #[track_caller]
    pub fn assert_whole(&self) {
        self.stray_bits();
    }

    /// The harmless findings of `metes check`, which must find nothing worse.
    #[track_caller]
    pub fn stray_bits(&self) -> Vec<Value> {
        self.checked.store(true, Ordering::Relaxed);
        let outcome = self.node("auditor").cli(["check", "-o", "json"]);
        assert!(outcome.succeeded(), "metes check found violations: {outcome}");
        outcome.json()["stray_bits"].as_array().expect("an audit lists them").clone()
    }

    /// Nothing is held and nobody queues any more. A run that has no time to leave its queue leaves a ticket there,
    /// which ends with its lease.
    #[track_caller]
    pub fn assert_nothing_held(&self) {
        wait_for("all tickets to be gone", TICKETS_END_MAX, || match self.store.keys("v1/ticket/") {
            none if none.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        });
        let left: Vec<String> = ["v1/net/", "v1/owner/", "v1/pod/"]
            .into_iter()
            .flat_map(|part| self.store.keys(part))
            .filter(|key| !key.starts_with("v1/net/") || key.contains("/ip/"))
            .collect();
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    /// A test that breaks the store on purpose says so instead of [`Cluster::assert_clean`].
    pub fn leave_unclean(&self) {
        self.checked.store(true, Ordering::Relaxed);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let checked = self.checked.load(Ordering::Relaxed);
        assert!(checked || thread::panicking(), "this test ends without cluster.assert_clean()");
    }
}

fn merge(into: &mut Value, keys: Value) {
    let Value::Object(keys) = keys else { panic!("host file keys are an object") };
    for (key, value) in keys {
        match (&mut into[&key], value) {
            (_, Value::Null) => _ = into.as_object_mut().expect("it is an object").remove(&key),
            (old @ Value::Object(_), new @ Value::Object(_)) => merge(old, new),
            (old, new) => *old = new,
        }
    }
}

/// A machine of the cluster: a host file and a spool of its own.
#[derive(Clone, Debug)]
pub struct Node {
    name: String,
    folder: PathBuf,
}

impl Node {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn host_file(&self) -> PathBuf {
        self.folder.join("metes.conf")
    }

    pub fn spool(&self) -> PathBuf {
        self.folder.join("spool")
    }

    /// The file with the owners whose addresses the node's ADDs have reserved: hints for their DELs.
    pub fn owner_hints(&self) -> PathBuf {
        let folder =
            fs::read_dir(self.spool()).expect("a spool folder").flatten().find(|at| at.path().is_dir());
        folder.expect("a folder of the prefix").path().join("owners")
    }

    /// Removes those hints, if there are any, so that the next DELs look.
    pub fn forget_owners(&self) {
        let files = walk(&self.spool()).into_iter().filter(|file| file.ends_with("owners"));
        files.for_each(|file| fs::remove_file(file).expect("a file can be removed"));
    }

    /// The files in the spool folder, or none. That with a line for each run is none of them.
    pub fn spooled(&self) -> Vec<PathBuf> {
        walk(&self.spool()).into_iter().filter(|file| !file.ends_with("runs")).collect()
    }

    /// The files of the DELs that wait there for a later run.
    pub fn spooled_dels(&self) -> Vec<PathBuf> {
        self.spooled().into_iter().filter(|file| file.extension().is_some_and(|end| end == "del")).collect()
    }

    /// Replaces the host file, which need not be valid.
    pub fn write_host_file(&self, text: impl AsRef<[u8]>) {
        // Replaced at once, because a program of this node may be reading the present file.
        let path = self.folder.join(unique("new"));
        fs::write(&path, text).expect("a host file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("its mode can be set");
        fs::rename(path, self.host_file()).expect("a host file can be replaced");
    }

    /// Changes keys of the host file, as [`Cluster::node_with`] does.
    pub fn change_host_file(&self, keys: Value) {
        let text = fs::read(self.host_file()).expect("the host file can be read");
        let mut host = serde_json::from_slice(&text).expect("the host file is JSON");
        merge(&mut host, keys);
        self.write_host_file(host.to_string());
    }

    pub fn add(&self, container: &str) -> Run {
        self.attachment("ADD", container)
    }

    pub fn del(&self, container: &str) -> Run {
        self.attachment("DEL", container)
    }

    pub fn check(&self, container: &str) -> Run {
        self.attachment("CHECK", container)
    }

    pub fn gc(&self) -> Run {
        self.plugin("GC")
    }

    pub fn status(&self) -> Run {
        self.plugin("STATUS")
    }

    pub fn version(&self) -> Run {
        self.plugin("VERSION")
    }

    /// A verb with CNI_PATH and the host file in its environment, and nothing else.
    pub fn plugin(&self, command: &str) -> Run {
        self.prepared().env("CNI_COMMAND", command).cni_path(&self.folder)
    }

    fn attachment(&self, command: &str, container: &str) -> Run {
        // It need not exist: an IPAM plugin never enters it.
        let netns = format!("/run/netns/made-up-{container}");
        self.plugin(command).container(container).ifname("eth0").netns(netns)
    }

    /// A verb for people: `node.cli(["list", "-o", "json"])`.
    #[track_caller]
    pub fn cli<S: AsRef<str>>(&self, arguments: impl IntoIterator<Item = S>) -> Outcome {
        self.cli_run(arguments).run()
    }

    pub fn cli_run<S: AsRef<str>>(&self, arguments: impl IntoIterator<Item = S>) -> Run {
        self.prepared().arguments(arguments)
    }

    /// `metes pool`
    pub fn pool(&self, arguments: &[&str], stdin: &str) -> Outcome {
        self.pool_run(arguments, stdin).run()
    }

    pub fn pool_run(&self, arguments: &[&str], stdin: &str) -> Run {
        self.prepared().arguments(["pool"]).arguments(arguments).stdin(stdin)
    }

    /// `metes list -o json`, as an array.
    #[track_caller]
    pub fn list(&self) -> Vec<Value> {
        let list = self.cli(["list", "-o", "json"]).ok();
        list.as_array().expect("a list is an array").clone()
    }

    fn prepared(&self) -> Run {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        Run::new(PROGRAM.get_or_init(metes)).env("METES_CONF", self.host_file())
    }

    /// The environment that makes the plugin run as this node, for programs that start it.
    pub fn environment(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("METES_CONF".to_owned(), self.host_file().display().to_string())])
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry can be read").path())
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .collect();
    files.sort();
    files
}
