//! The answers of the Kubernetes API, read by the client that asks it: a server on the loopback sends the bytes.
//!
//! The first byte says what is asked, and the second one the status of the first answer. The rest are the bodies of the
//! answers, with a byte between them that no JSON has. When the bodies have run out, a listing is empty.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use metes_config::{HostFile, Settings};
use metes_core::keys::{Key, Keys};
use metes_core::pool::{Held, Owner, record};
use metes_reconciler::api::{Api, ApiError, Node, Phase, Pod, PodFilter};
use metes_reconciler::holder::{Holder, OwnerFacts, Stamp};
use metes_reconciler::import::facts::{HeldByPods, World};
use metes_reconciler::import::gather::{gather, wanted_pods};
use metes_reconciler::import::gathered::Refused;
use metes_reconciler::import::nads::{Plugin, Use};
use metes_reconciler::import::objects;
use metes_reconciler::kubernetes::Kubernetes;
use metes_reconciler::nad::Definitions;
use metes_reconciler::pools::Pools;
use metes_reconciler::running::Running;
use metes_reconciler::verdict::{Graces, Keep, orphaned};
use metes_reconciler::world::{Nodes, Pods};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

/// Between two bodies.
const BETWEEN: u8 = 0xff;
const STATUS: [u16; 6] = [200, 200, 404, 403, 410, 500];
const NO_MORE: &str = r#"{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}"#;

pub(super) fn lists(data: &[u8]) {
    let [what, status, bodies @ ..] = data else { return };
    let bodies: Vec<&[u8]> = bodies.split(|byte| *byte == BETWEEN).collect();
    let status = STATUS[usize::from(*status) % STATUS.len()];
    SERVER.with(|server| {
        server.answers_with(status, &bodies);
        let asked = Asked { api: &server.api, is_fine: status == 200, bodies: &bodies };
        server.runtime.block_on(asked.by(*what));
    });
}

struct Asked<'a> {
    api: &'a Kubernetes,
    is_fine: bool,
    bodies: &'a [&'a [u8]],
}

impl Asked<'_> {
    async fn by(&self, what: u8) {
        match what % 7 {
            0 => self.pods().await,
            1 => self.nodes().await,
            2 => self.one_pod().await,
            3 => self.running().await,
            4 => self.definitions().await,
            5 => self.import().await,
            _ => self.cluster().await,
        }
    }

    async fn pods(&self) {
        let mut seen: Vec<Pod> = Vec::new();
        let listed = self.api.pods(PodFilter::All, &mut |pod| seen.push(pod)).await;
        let Some(items) = self.items(listed) else { return };
        assert_eq!(seen.len(), items.len());
        for (pod, item) in seen.iter().zip(&items) {
            check_pod(pod, &item["metadata"]);
        }
        check_all_are_kept(&seen);
    }

    async fn nodes(&self) {
        let mut seen: Vec<Node> = Vec::new();
        let listed = self.api.nodes(&mut |node| seen.push(node)).await;
        let Some(items) = self.items(listed) else { return };
        assert_eq!(seen.len(), items.len());
        for (node, item) in seen.iter().zip(&items) {
            let Some(metadata) = item["metadata"].as_object() else { continue };
            assert_eq!(metadata["name"], node.name.as_str());
            let conditions = item["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let says = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
            // A struct may also be written as a list of its fields.
            let may_say = |one: &Value| one.as_array() == Some(&vec![json!("Ready"), json!("True")]);
            assert!(
                !node.ready
                    || conditions.iter().any(|one| says(one) || may_say(one))
                    || item["status"].is_array()
            );
        }
    }

    async fn one_pod(&self) {
        let Ok(found) = self.api.pod("ns", "web").await else { return };
        match found {
            Some((pod, phase)) => {
                assert!(self.is_fine && pod.namespace == "ns" && pod.name == "web" && !pod.uid.is_empty());
                // A part that is skipped unread may hold what no value can hold.
                let Ok(item) = serde_json::from_slice::<Value>(self.bodies[0]) else { return };
                let says = item["status"]["phase"].as_str().or(item["status"][0].as_str());
                let has_finished = says.is_some_and(|phase| ["Succeeded", "Failed"].contains(&phase));
                assert!(phase == Phase::Active || has_finished || item.is_array(), "{item}");
            }
            // Only what is said of this very pod counts.
            None => {
                let Ok(status) = serde_json::from_slice::<Value>(self.bodies[0]) else { return };
                assert!(!self.is_fine, "{status}");
                let names =
                    status["details"]["name"] == "web" || status.is_array() || status["details"].is_array();
                assert!(names, "{status}");
            }
        }
    }

    async fn running(&self) {
        let mut seen = Vec::new();
        let mut see = |pod: &Pod, phase, running| seen.push((pod.clone(), phase, running));
        let listed = Running::list(self.api, &mut see).await;
        let Some(items) = self.items(listed) else { return };
        assert_eq!(seen.len(), items.len());
        for (pod, phase, running) in seen {
            assert_eq!(running.is_some(), phase == Phase::Active);
            let Some(running) = running else { continue };
            assert_eq!(running.pod, pod);
            let uid = &running.uid;
            assert!(*uid == pod.uid || pod.static_uids.contains(uid));
            assert!(running.asked.iter().all(|one| one.network.contains('/')), "{:?}", running.asked);
            for interface in running.interfaces.iter().flatten().flatten() {
                let addresses = interface.addresses();
                assert!(addresses.is_err() || addresses.is_ok_and(|all| all.len() == interface.ips.len()));
            }
        }
    }

    async fn definitions(&self) {
        let settings =
            HostFile::parse(br#"{"allowed":{"default":["10.0.0.0/8"]}}"#).and_then(Settings::from_host);
        let settings = settings.expect("a host file");
        let listed = Definitions::list(self.api, &settings, &Pools::default()).await;
        let count = listed.as_ref().map_or(0, Definitions::count);
        let Some(items) = self.items(listed.map(|_| ())) else { return };
        assert!(count <= items.len() && (count > 0 || items.is_empty()));
    }

    /// All that an import reads, one after the other: each of the bodies answers one listing.
    async fn import(&self) {
        let Ok(nads) = objects::nads(self.api).await else { return };
        let Ok(pools) = objects::pools(self.api).await else { return };
        let Ok(reservations) = objects::reservations(self.api).await else { return };
        let wanted = wanted_pods(&pools, &reservations);
        let Ok(pods) = objects::pods(self.api, &wanted).await else { return };
        let all_uses = nads.iter().flat_map(|nad| &nad.uses);
        let uses: Vec<&Use> = all_uses.filter(|one| one.plugin == Plugin::Whereabouts).collect();
        let keys = Keys::new("/metes/");
        let world = World {
            pools: &pools,
            reservations: &reservations,
            uses: &uses,
            others: &HashSet::new(),
            pods: &pods,
            held: &HeldByPods::default(),
            cut_off: &["cut".to_owned()],
            cluster: &"east".parse().expect("a plain name"),
        };
        let gathered = gather(&world);
        let mut taken = HashMap::new();
        for group in &gathered.groups {
            assert_eq!(keys.parse(&keys.owner(&group.owner)), Ok(Key::Owner(group.owner.clone())));
            let static_ones =
                uses.iter().filter_map(|one| one.ranges.as_ref().ok()).flat_map(|all| &all.statics);
            let is_static = |held: &Held| static_ones.clone().any(|fixed| fixed == held);
            for held in group.held.iter().filter(|held| !is_static(held)) {
                let at = (held.network.clone(), held.address);
                let other = taken.insert(at, &group.owner);
                assert!(other.is_none(), "{held:?} goes to {other:?} and to {:?}", group.owner);
            }
        }
        let refused: BTreeSet<&str> = gathered.refused.iter().map(|one| one.at.as_str()).collect();
        let stale: BTreeSet<&str> = gathered.stale.iter().map(|one| one.at.as_str()).collect();
        assert!(refused.is_disjoint(&stale));
        let is_entry = |one: &&Refused| !one.at.starts_with("annotation");
        let of_entries = gathered.refused.iter().filter(is_entry).count();
        assert!(gathered.stale.len() + of_entries <= gathered.entries);
    }

    async fn cluster(&self) {
        if let Ok(uid) = self.api.cluster_uid().await {
            assert!(self.is_fine && !uid.is_empty());
        }
    }

    /// The items of an answer that was accepted as a listing: then every page of it said that it was one.
    fn items(&self, listed: Result<(), ApiError>) -> Option<Vec<Value>> {
        listed.ok()?;
        assert!(self.is_fine, "an error is no listing");
        let mut items = Vec::new();
        for body in self.bodies {
            // One reader skips half a character in text that nobody reads; the other refuses it.
            let page: Value = serde_json::from_slice(body).ok()?;
            // A struct may also be written as a list of its fields; the rest is about what the API writes.
            let (Value::Object(page), true) = (&page, page["metadata"].is_object()) else { return None };
            assert!(page["kind"].as_str().is_some_and(|kind| kind.ends_with("List")), "{page:?}");
            assert!(page["metadata"]["resourceVersion"].is_string(), "{page:?}");
            match &page["items"] {
                Value::Null => {}
                listed => items.extend(listed.as_array().expect("items are a list").iter().cloned()),
            }
            if page["metadata"]["continue"].as_str().unwrap_or_default().is_empty() {
                return Some(items);
            }
        }
        Some(items)
    }
}

fn check_pod(pod: &Pod, metadata: &Value) {
    let Some(metadata) = metadata.as_object() else { return };
    assert_eq!(metadata["name"], pod.name.as_str());
    assert_eq!(metadata["uid"], pod.uid.as_str());
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    assert_eq!(namespace, pod.namespace);
}

/// A pod that was listed keeps what its records say, whatever else was listed.
fn check_all_are_kept(listed: &[Pod]) {
    let holders: Vec<Holder> =
        listed.iter().flat_map(|pod| [holder(pod, &pod.uid), holder(pod, "")]).collect();
    let mut pods = Pods::for_holders(&holders);
    listed.iter().for_each(|pod| pods.see(pod, Phase::Active));
    for holder in &holders {
        let verdict = orphaned(holder, &pods, &Nodes::default(), &Graces::NONE);
        let is_unlabelled = holder.record.as_ref().is_some_and(|record| record.pod.is_unknown());
        let is_nameless =
            holder.record.as_ref().is_some_and(|one| one.pod.uid.is_none() && one.pod.name.is_empty());
        let expected = match (is_unlabelled, is_nameless) {
            (true, _) => Keep::Unlabelled,
            (_, true) => Keep::PodUnnamed,
            _ => Keep::PodExists,
        };
        assert_eq!(verdict, Err(expected), "{holder:?}");
    }
}

fn holder(pod: &Pod, uid: &str) -> Holder {
    let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
    let pod = record::Pod { namespace, name, uid: uid.parse().ok() };
    let owner = Owner::named(["east", "n1", "c1", "net1"]).expect("plain names");
    let record = OwnerFacts { stamp: Stamp::Ours, pod, boot: None, replaced: false, hold: None };
    Holder { owner, revision: 1, record: Some(record) }
}

thread_local! {
    static SERVER: Server = Server::start();
}

type Answers = Arc<Mutex<VecDeque<(u16, Vec<u8>)>>>;

/// An API server that says what it is told to, and its client.
struct Server {
    runtime: Runtime,
    api: Kubernetes,
    answers: Answers,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let answers = Answers::default();
        let given = answers.clone();
        thread::spawn(move || serve(&listener, &given));
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).expect("a file");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let api = runtime.block_on(Kubernetes::new(Some(&kubeconfig), 500)).expect("a client");
        Self { runtime, api, answers }
    }

    fn answers_with(&self, status: u16, bodies: &[&[u8]]) {
        let mut answers = self.answers.lock().expect("nobody panics with it");
        answers.clear();
        answers.extend(bodies.iter().map(|body| (200, body.to_vec())));
        answers.front_mut().into_iter().for_each(|first| first.0 = status);
    }
}

fn serve(listener: &TcpListener, answers: &Answers) {
    for stream in listener.incoming().flatten() {
        let answers = answers.clone();
        thread::spawn(move || {
            // The client has closed the connection, or has found that an answer is none.
            let _ = answer(&stream, &answers);
        });
    }
}

fn answer(stream: &TcpStream, answers: &Answers) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream).lines();
    let out = RefCell::new(stream);
    loop {
        // A request has no body: it ends with an empty line.
        loop {
            match lines.next().transpose()? {
                None => return Ok(()),
                Some(line) if line.is_empty() => break,
                Some(_) => {}
            }
        }
        let next = answers.lock().expect("nobody panics with it").pop_front();
        let (status, body) = next.unwrap_or((200, NO_MORE.as_bytes().to_vec()));
        let head = format!(
            "HTTP/1.1 {status} Said\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        out.borrow_mut().write_all(&[head.as_bytes(), &body].concat())?;
    }
}
