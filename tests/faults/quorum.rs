//! An etcd of three members, as runs see it: members die, stop, are cut off, change their leader, run out of space,
//! tidy up, or are given other certificates and roles.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use etcd_client::{CompactionOptions, DeleteOptions, Error, Permission, PermissionType, UserAddOptions};
use metes_core::limits;
use metes_engine::kv::Kv;
use metes_etcd::client as store;
use serde_json::{Value, json};
use support::{
    Cluster, Etcd, KubeApi, MEMBERS, Node, Outcome, Relays, Tls, Trio, World, in_parallel, network,
    network_as, wait_for,
};

/// The time for the work of many processes on a busy machine, with a spool that is written through.
const WORK: Duration = Duration::from_secs(2);
/// The most time that a run with two healthy members takes longer than with three: three attempts of a request. One may
/// be its own, and it may wait for two heads of its queue, one after the other, whose requests went to the same member.
const EXTRA_MAX: Duration = Duration::from_millis(4500).saturating_add(WORK);
/// The longest time of an ADD when the leader fails. It may lose a request of 1.5 s at each member: at two of them
/// before another leader is elected, and at the one that failed.
const ELECTION_MAX: Duration = Duration::from_millis(4500).saturating_add(WORK);
/// The longest time of an ADD behind tickets of runs that have ended.
const RECOVERY_MAX: Duration = Duration::from_secs(8);
/// For what the harness itself waits for.
const PATIENCE: Duration = Duration::from_secs(30);
const WORKERS: usize = 8;

/// The faults of a member.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Its machine is up: connections are refused.
    Killed,
    /// Connections are accepted, and nothing answers.
    Stopped,
    /// Nothing arrives.
    CutOff,
    /// It answers its clients, and reaches no other member.
    Isolated,
}

const FAULTS: [Fault; 4] = [Fault::Killed, Fault::Stopped, Fault::CutOff, Fault::Isolated];

impl Fault {
    fn strike(self, trio: &mut Trio, member: usize) {
        match self {
            Fault::Killed => trio.kill(member),
            Fault::Stopped => trio.stop(member),
            Fault::CutOff => trio.blackhole(member),
            Fault::Isolated => trio.isolate(member),
        }
    }

    fn end(self, trio: &mut Trio, member: usize) {
        match self {
            Fault::Killed => trio.restart(member),
            Fault::Stopped => trio.resume(member),
            Fault::CutOff => trio.heal(member),
            Fault::Isolated => trio.rejoin(member),
        }
    }
}

fn range(subnet: &str) -> Value {
    network(json!({"range": subnet}))
}

/// The containers that hold addresses, in order.
fn holders(node: &Node) -> Vec<String> {
    let text = |held: &Value| held["container_id"].as_str().unwrap_or_default().to_owned();
    let mut holders: Vec<String> = node.list().iter().map(text).collect();
    holders.sort();
    holders
}

/// Adds that many containers and deletes them again; how long the longest run took. None fails.
#[track_caller]
fn churn(node: &Node, config: &Value, name: &str, count: usize) -> Duration {
    let longest = in_parallel(WORKERS, 0..count, |index| {
        let id = format!("{name}-{index}");
        let add = node.add(&id).config(config).run();
        add.address();
        let del = node.del(&id).config(config).run();
        del.silent();
        add.elapsed.max(del.elapsed)
    });
    longest.into_iter().max().expect("there are some")
}

#[test]
fn one_member_that_fails_fails_no_run() {
    let mut trio = Trio::start();
    let config = range("10.80.0.0/24");
    let healthy = {
        let cluster = Cluster::on_trio(&trio);
        let longest = churn(&cluster.node("n1"), &config, "healthy", 100);
        cluster.assert_whole();
        longest
    };
    for fault in FAULTS {
        let cluster = Cluster::on_trio(&trio);
        let node = cluster.node("n1");
        let member = trio.follower();
        fault.strike(&mut trio, member);
        let longest = churn(&node, &config, "c", 120);
        assert!(longest < healthy + EXTRA_MAX, "{fault:?}: {longest:?}, healthy {healthy:?}");
        fault.end(&mut trio, member);
        assert_recovered(&cluster, &node, &config);
    }
}

/// A member that is back may carry out requests that it took in before it was struck: tickets in queues of runs that
/// have ended, which cost others a wait, and nothing else.
#[track_caller]
fn assert_recovered(cluster: &Cluster, node: &Node, config: &Value) {
    let longest = churn(node, config, "recovered", 2 * WORKERS);
    assert!(longest < RECOVERY_MAX, "{longest:?}");
    assert_eq!(node.spooled_dels().len(), 0, "{:?}", node.spooled());
    assert!(node.list().is_empty(), "{:?}", node.list());
    cluster.assert_whole();
}

/// A member that stands still accepts a connection and says nothing in the handshake.
#[test]
fn a_stopped_member_is_left_in_the_handshake_too() {
    let trio = Trio::start_mtls();
    let cluster = Cluster::on_trio(&trio);
    let (node, config) = (cluster.node("n1"), range("10.89.0.0/24"));
    let healthy = churn(&node, &config, "healthy", 40);
    let member = trio.follower();
    trio.stop(member);
    let longest = churn(&node, &config, "c", 60);
    assert!(longest < healthy + EXTRA_MAX, "{longest:?}, healthy {healthy:?}");
    trio.resume(member);
    assert_recovered(&cluster, &node, &config);
}

/// Counts the connections to an endpoint that never says a word.
fn silent_endpoint() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::Relaxed);
            open.push(stream);
        }
    });
    (format!("https://{address}"), asked)
}

#[test]
fn an_endpoint_that_says_nothing_is_waited_for_once() {
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let (silent, asked) = silent_endpoint();
    let config = range("10.90.0.0/24");
    cluster.node("founder").add("c").config(&config).run().address();
    for index in 0..16 {
        // Of a node that knows the store and has no lease yet: its first requests go out together.
        let node = cluster.node(&format!("n{index}"));
        let status = network_as("1.1.0", "net", json!({"range": "10.90.0.0/24"}));
        node.status().config(&status).run().silent();
        node.change_host_file(json!({"etcd": {"endpoints": [silent, etcd.endpoint()]}}));
        let before = asked.load(Ordering::Relaxed);
        let add = node.add("c").config(&config).run();
        add.address();
        let connections = asked.load(Ordering::Relaxed) - before;
        assert!(connections <= 1, "{connections} connections to the silent endpoint: {add}");
    }
    assert!(asked.load(Ordering::Relaxed) > 0, "nobody met it");
    cluster.assert_clean();
}

/// A second handshake beside a slow one is more work for members that may be slow because they have too much.
#[test]
fn a_slow_handshake_is_waited_for_before_another_one_begins() {
    const ONE_WAY: Duration = Duration::from_millis(250);
    let etcd = Etcd::start_mtls();
    let (_relays, slow) = Relays::before_endpoint(&etcd.endpoint(), ONE_WAY);
    let tls = etcd.tls().expect("it has TLS");
    let read = |path| fs::read(path).expect("a certificate can be read");
    let connect = |_| {
        let (silent, asked) = silent_endpoint();
        let kv = store::Etcd::new(store::Access {
            endpoints: vec![slow.clone(), silent],
            tls: Some(store::Tls {
                ca: read(tls.ca()),
                identity: Some((read(tls.client_cert()), read(tls.client_key()))),
                server_name: None,
            }),
            user: None,
            prefix: String::new(),
            patience: limits::ADD_DEADLINE.into(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let began = Instant::now();
        let connected =
            runtime.block_on(async { kv.connect(tokio::time::Instant::now() + limits::ADD_DEADLINE).await });
        connected.expect("etcd accepts it");
        (began.elapsed(), asked.load(Ordering::Relaxed))
    };
    // Each begins with one of the two at random.
    let connected = in_parallel(4, 0..16, connect);
    let began_with_slow = |(took, _): &&(Duration, usize)| *took < limits::HANDSHAKE_ALONE;
    let alone: Vec<_> = connected.iter().filter(began_with_slow).collect();
    assert!(!alone.is_empty() && alone.iter().all(|(_, asked)| *asked == 0), "{connected:?}");
}

/// The ADDs of several workers until they are told to stop, each of a container of its own.
struct Adds<'a> {
    node: &'a Node,
    config: &'a Value,
    next: AtomicUsize,
    answered: AtomicUsize,
    is_over: AtomicBool,
}

impl<'a> Adds<'a> {
    fn new(node: &'a Node, config: &'a Value) -> Self {
        let [next, answered] = [0, 0].map(AtomicUsize::new);
        Self { node, config, next, answered, is_over: AtomicBool::new(false) }
    }

    /// Runs ADDs while `meanwhile` works; the names of their containers and how they ended.
    fn while_doing(&self, meanwhile: impl FnOnce()) -> Vec<(String, Outcome)> {
        thread::scope(|scope| {
            let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| self.work())).collect();
            // So that a failure in here does not leave the workers at it forever.
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(meanwhile));
            self.is_over.store(true, Ordering::Relaxed);
            let outcomes = workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics"));
            let outcomes = outcomes.collect();
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcomes
        })
    }

    fn work(&self) -> Vec<(String, Outcome)> {
        let mut outcomes = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let id = format!("c{:04}", self.next.fetch_add(1, Ordering::Relaxed));
            let outcome = self.node.add(&id).config(self.config).run();
            self.answered.fetch_add(1, Ordering::Relaxed);
            outcomes.push((id, outcome));
        }
        outcomes
    }

    /// Waits until so many more have been answered.
    fn wait_for_more(&self, count: usize) {
        let goal = self.answered.load(Ordering::Relaxed) + count;
        wait_for("ADDs to be answered", PATIENCE, || match self.answered.load(Ordering::Relaxed) {
            answered if answered >= goal => Ok(()),
            answered => Err(format!("{answered} of {goal}")),
        });
    }
}

/// Exactly those that were told an address hold one, and no two the same.
#[track_caller]
fn assert_held_as_told(node: &Node, outcomes: &[(String, Outcome)]) {
    let told = outcomes.iter().filter(|(_, outcome)| outcome.succeeded());
    let mut ids: Vec<String> = told.clone().map(|(id, _)| id.clone()).collect();
    ids.sort();
    assert_eq!(holders(node), ids);
    let mut addresses: Vec<String> = told.map(|(_, outcome)| outcome.address()).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), ids.len(), "an address was given twice");
}

#[track_caller]
fn delete_all(node: &Node, config: &Value, outcomes: &[(String, Outcome)]) {
    in_parallel(WORKERS, outcomes, |(id, _)| node.del(id).config(config).run().silent());
}

#[test]
fn a_leader_that_fails_leaves_no_add_without_an_answer() {
    let mut trio = Trio::start();
    let config = range("10.81.0.0/20");
    for fault in FAULTS {
        let cluster = Cluster::on_trio(&trio);
        let node = cluster.node("n1");
        let leader = trio.leader();
        let adds = Adds::new(&node, &config);
        let outcomes = adds.while_doing(|| {
            adds.wait_for_more(3 * WORKERS);
            fault.strike(&mut trio, leader);
            adds.wait_for_more(6 * WORKERS);
        });
        for (_, outcome) in &outcomes {
            assert!(outcome.elapsed < ELECTION_MAX, "{fault:?}: {outcome}");
            if !outcome.succeeded() {
                outcome.error(11);
            }
        }
        assert_held_as_told(&node, &outcomes);
        cluster.assert_whole();
        fault.end(&mut trio, leader);
        delete_all(&node, &config, &outcomes);
        assert_recovered(&cluster, &node, &config);
    }
}

#[test]
fn a_leader_that_moves_fails_no_add() {
    let trio = Trio::start();
    let cluster = Cluster::on_trio(&trio);
    let node = cluster.node("n1");
    let config = range("10.82.0.0/20");
    let adds = Adds::new(&node, &config);
    let outcomes = adds.while_doing(|| {
        for _ in 0..6 {
            adds.wait_for_more(2 * WORKERS);
            trio.move_leader(trio.follower());
        }
    });
    outcomes.iter().for_each(|(_, outcome)| _ = outcome.address());
    assert_held_as_told(&node, &outcomes);
    cluster.assert_clean();
}

#[test]
fn without_a_quorum_adds_say_so_and_dels_are_spooled() {
    let mut trio = Trio::start();
    let cluster = Cluster::on_trio(&trio);
    let node = cluster.node("n1");
    let config = range("10.83.0.0/24");
    let mut with_result = network_as("1.1.0", "net", json!({"range": "10.83.0.0/24"}));
    for index in 0..6 {
        with_result["prevResult"] = node.add(&format!("c{index}")).config(&config).run().ok();
    }
    let leader = trio.leader();
    let dead = [leader, (leader + 1) % MEMBERS];
    dead.iter().for_each(|&member| trio.kill(member));

    let add = |id: &str| (node.add(id).config(&config), Some(11), limits::ADD_DEADLINE);
    let del = |id: &str| (node.del(id).config(&config), None, limits::DEL_DEADLINE);
    let jobs = [
        add("late0"),
        add("late1"),
        del("c0"),
        del("c1"),
        del("c2"),
        (node.check("c5").config(&with_result), Some(11), limits::CHECK_DEADLINE),
        // This node bears it, and one that does not know its store says so.
        (node.status().config(&with_result), None, limits::STATUS_DEADLINE),
        (cluster.node("new").status().config(&with_result), Some(50), limits::STATUS_DEADLINE),
    ];
    in_parallel(jobs.len(), jobs, |(run, code, deadline)| {
        let outcome = run.run();
        match code {
            Some(code) => _ = outcome.error(code),
            None => outcome.silent(),
        }
        assert!(outcome.elapsed < deadline + WORK, "{outcome}");
    });
    assert!(node.spooled_dels().len() >= 3, "{:?}", node.spooled());

    trio.restart_all(&dead);
    node.status().config(&with_result).run().silent();
    node.add("after").config(&config).run().address();
    // Each run that has answered carries out some of the spooled DELs.
    wait_for("the spool to be carried out", PATIENCE, || {
        node.del("none").config(&config).run().silent();
        if node.spooled_dels().is_empty() { Ok(()) } else { Err(format!("{:?}", node.spooled())) }
    });
    assert_eq!(holders(&node), ["after", "c3", "c4", "c5"]);
    cluster.assert_whole();
}

/// Does the work of an operator with a store that is out of space.
fn make_room(trio: &Trio, cluster: &Cluster) {
    let store = cluster.store();
    let options = DeleteOptions::new().with_prefix();
    store.run(async |client| client.delete("/filling/", Some(options)).await);
    compact(cluster);
    (0..MEMBERS).for_each(|member| defragment(trio, member));
    store.clear_alarms();
}

/// Forgets everything but the newest revision.
fn compact(cluster: &Cluster) {
    let revision = cluster.store().revision();
    let physical = CompactionOptions::new().with_physical();
    let compacted = cluster.store().try_run(async |client| client.compact(revision, Some(physical)).await);
    match compacted {
        Ok(_) => {}
        // Nothing has been written since the last time.
        Err(Error::GRpcStatus(status)) if status.message().contains("has been compacted") => {}
        Err(error) => panic!("a store can be compacted: {error}"),
    }
}

fn defragment(trio: &Trio, member: usize) {
    trio.through(member).run(async |client| client.defragment().await);
}

#[test]
fn out_of_space_dels_and_gc_work_and_no_add_is_half_done() {
    let trio = Trio::with_args(&["--quota-backend-bytes=16777216"]);
    let cluster = Cluster::on_trio(&trio);
    let node = cluster.node_with("n1", json!({"gc_grace_s": 0}));
    let config = range("10.84.0.0/20");
    let adds = Adds::new(&node, &config);
    let mut outcomes = adds.while_doing(|| {
        adds.wait_for_more(3 * WORKERS);
        cluster.store().fill();
        adds.wait_for_more(2 * WORKERS);
    });
    for (_, outcome) in outcomes.iter().filter(|(_, outcome)| !outcome.succeeded()) {
        let error = outcome.error(103);
        assert!(error["details"].as_str().is_some_and(|text| text.contains("alarm")), "{error}");
    }
    assert_held_as_told(&node, &outcomes);
    // An ADD that was served, and did not learn of it, has given its address back. Without space the bit stays.
    cluster.assert_whole();
    outcomes.retain(|(_, outcome)| outcome.succeeded());

    // A third by DEL, a third by GC; the rest stays.
    let third = outcomes.len() / 3;
    assert!(third > 2, "{}", outcomes.len());
    // An ADD that failed may have spooled one, too, if it could not find out whether it was applied.
    let before = node.spooled_dels().len();
    in_parallel(WORKERS, &outcomes[..third], |(id, _)| node.del(id).config(&config).run().silent());
    // Without space there is no tombstone, so each stays in the spool until there is.
    assert_eq!(node.spooled_dels().len(), before + third);
    let valid = outcomes[2 * third..].iter().map(|(id, _)| json!({"containerID": id, "ifname": "eth0"}));
    let mut collect = network_as("1.1.0", "net", config["ipam"].clone());
    collect["cni.dev/valid-attachments"] = valid.collect();
    node.gc().config(&collect).run().silent();
    assert_held_as_told(&node, &outcomes[2 * third..]);
    cluster.assert_whole();

    make_room(&trio, &cluster);
    cluster.assert_whole();
    churn(&node, &config, "after", WORKERS);
    delete_all(&node, &config, &outcomes[2 * third..]);
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

/// Works in turn, again and again, until the others have done their part.
fn until(is_over: &AtomicBool, mut work: impl FnMut(usize)) {
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        work(round);
    }
}

#[test]
fn compaction_and_defragmentation_in_a_loop_fail_nothing() {
    let trio = Trio::start();
    let world = World::of(Cluster::on_trio(&trio), KubeApi::shared());
    let cluster = &world.cluster;
    let node = cluster.node("n1");
    let config = range("10.85.0.0/24");
    world.living("pod");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            until(&is_over, |round| {
                compact(cluster);
                defragment(&trio, round % MEMBERS);
            });
        });
        let readers = [
            scope.spawn(|| until(&is_over, |_| cluster.assert_whole())),
            scope.spawn(|| until(&is_over, |_| _ = node.list())),
            scope.spawn(|| {
                until(&is_over, |round| {
                    let orphan = format!("orphan{round}");
                    world.orphan(&orphan);
                    world.pass(["--grace", "0s"]).ok();
                    world.pass(["--grace", "0s"]).ok();
                });
            }),
        ];
        // In here, so that a failure ends the others.
        let churned = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            churn(&node, &config, "c", 150);
        }));
        is_over.store(true, Ordering::Relaxed);
        churned.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        readers.into_iter().for_each(|reader| reader.join().expect("no reader fails"));
    });
    assert_eq!(world.held(), ["pod"]);
    cluster.assert_whole();
}

#[test]
fn an_etcd_that_takes_too_few_operations_is_named_and_nothing_is_half_done() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let dual = network(json!({"ipRanges": [{"range": "10.86.0.0/24"}, {"range": "fd86::/64"}]}));
    let add = |id: &str| node.add(id).pod("ns", id, &format!("uid-{id}")).config(&dual).run();
    let del = |id: &str| node.del(id).pod("ns", id, &format!("uid-{id}")).config(&dual).run();
    let mut held = vec!["c0", "c1", "c2", "c3"];
    held.iter().for_each(|id| _ = add(id).addresses());
    let mut refused = 0;
    for most in ["2", "4", "6", "8"] {
        etcd.restart_with(&[&format!("--max-txn-ops={most}")]);
        let added = add(most);
        if added.succeeded() {
            held.push(most);
        }
        let deleted = del(held[0]);
        if deleted.succeeded() {
            held.remove(0);
        }
        for outcome in [added, deleted].iter().filter(|outcome| !outcome.succeeded()) {
            let error = outcome.error(103);
            assert!(error["details"].as_str().is_some_and(|text| text.contains("--max-txn-ops")), "{error}");
            refused += 1;
        }
        // Two addresses each.
        assert_eq!(node.list().len(), 2 * held.len(), "at {most}: {held:?}");
        assert_eq!(node.spooled_dels().len(), 0);
        cluster.assert_clean();
    }
    assert!(refused >= 2, "{refused}");
    etcd.restart_with(&[]);
    held.iter().for_each(|id| del(id).silent());
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

/// Clients' certificates in folders, and a link to the one that is used, as Kubernetes mounts a secret.
struct Mounted {
    folder: PathBuf,
}

impl Mounted {
    const PAIRS: usize = 4;

    fn new(folder: &Path, tls: &Tls) -> Self {
        let mounted = Self { folder: folder.join("mounted") };
        for index in 0..Self::PAIRS {
            let (cert, key) = tls.client(&format!("client{index}"), "metes");
            fs::create_dir_all(mounted.pair(index)).expect("a folder can be made");
            fs::rename(cert, mounted.pair(index).join("tls.crt")).expect("a file can be moved");
            fs::rename(key, mounted.pair(index).join("tls.key")).expect("a file can be moved");
        }
        mounted.turn(0);
        mounted
    }

    fn pair(&self, index: usize) -> PathBuf {
        self.folder.join(format!("pair{}", index % Self::PAIRS))
    }

    /// The keys of the host file.
    fn keys(&self) -> Value {
        let file = |name: &str| self.folder.join("now").join(name);
        json!({"etcd": {"cert_file": file("tls.crt"), "key_file": file("tls.key")}})
    }

    /// Both files at once.
    fn turn(&self, index: usize) {
        let link = self.folder.join("next");
        symlink(self.pair(index), &link).expect("a link can be made");
        fs::rename(link, self.folder.join("now")).expect("a link can be replaced");
    }

    /// The certificate first and the key a moment later, as a person copies them.
    fn copy(&self, index: usize, pause: Duration) {
        let copy = |name: &str| {
            let next = self.folder.join("next");
            fs::copy(self.pair(index).join(name), &next).expect("a file can be copied");
            fs::rename(next, self.folder.join("copied").join(name)).expect("a file can be replaced");
        };
        copy("tls.crt");
        thread::sleep(pause);
        copy("tls.key");
    }

    /// From now on [`Mounted::copy`] counts.
    fn start_copying(&self) {
        fs::create_dir_all(self.folder.join("copied")).expect("a folder can be made");
        self.copy(0, Duration::ZERO);
        let link = self.folder.join("next");
        symlink(self.folder.join("copied"), &link).expect("a link can be made");
        fs::rename(link, self.folder.join("now")).expect("a link can be replaced");
    }
}

#[test]
fn certificates_that_change_under_load_fail_no_add() {
    let trio = Trio::start_mtls();
    let cluster = Cluster::on_trio(&trio);
    let mounted = Mounted::new(cluster.folder(), trio.tls().expect("it has TLS"));
    let node = cluster.node_with("n1", mounted.keys());
    let config = range("10.87.0.0/18");
    let adds = Adds::new(&node, &config);
    let outcomes = adds.while_doing(|| {
        for index in 1..=1000 {
            mounted.turn(index);
            thread::sleep(Duration::from_millis(5));
        }
        mounted.start_copying();
        for index in 1..=60 {
            mounted.copy(index, Duration::from_millis(20));
            thread::sleep(Duration::from_millis(40));
        }
        // By hand it takes longer.
        for index in 61..=63 {
            mounted.copy(index, Duration::from_millis(700));
            thread::sleep(Duration::from_millis(40));
        }
        for index in 0..10 * MEMBERS {
            trio.renew_certificate(index % MEMBERS);
            adds.wait_for_more(WORKERS / 2);
        }
    });
    let failed: Vec<&Outcome> = outcomes.iter().map(|(_, o)| o).filter(|o| !o.succeeded()).collect();
    assert!(failed.is_empty(), "{} of {} failed, the first: {}", failed.len(), outcomes.len(), failed[0]);
    assert!(outcomes.len() > 200, "{}", outcomes.len());
    assert_held_as_told(&node, &outcomes);
    cluster.assert_clean();
}

#[test]
fn roles_that_change_under_load_fail_nobody_who_is_allowed() {
    let trio = Trio::start_mtls();
    let cluster = Cluster::on_trio(&trio);
    let tls = trio.tls().expect("it has TLS");
    let root = cluster.store().as_client(tls, &tls.client("root", "root"));
    let all = || Permission::new(PermissionType::Readwrite, cluster.prefix()).with_prefix();
    let nameless = || Some(UserAddOptions::new().with_no_pwd());
    root.run(async |client| {
        client.role_add("metes-node").await?;
        client.role_grant_permission("metes-node", all()).await?;
        for (user, role) in [("root", Some("root")), ("metes-node", Some("metes-node")), ("other", None)] {
            client.user_add(user, "", nameless()).await?;
            if let Some(role) = role {
                client.user_grant_role(user, role).await?;
            }
        }
        client.auth_enable().await
    });
    let node = cluster.node("n1");
    let (cert, key) = tls.client("other", "other");
    let other = cluster.node_with("n2", json!({"etcd": {"cert_file": cert, "key_file": key}}));
    let config = range("10.89.0.0/18");
    other.add("denied").config(&config).run().error(104);

    let adds = Adds::new(&node, &config);
    let outcomes = adds.while_doing(|| {
        for round in 0..40 {
            let role = format!("role{round}");
            // Every change makes the requests that are on their way those of an earlier revision.
            root.run(async |client| {
                client.role_add(role.as_str()).await?;
                client.role_grant_permission(role.as_str(), all()).await?;
                client.user_grant_role("metes-node", &role).await?;
                client.user_revoke_role("metes-node", &role).await?;
                client.role_delete(&role).await
            });
            other.add("denied").config(&config).run().error(104);
        }
    });
    outcomes.iter().for_each(|(_, outcome)| _ = outcome.address());
    assert_held_as_told(&node, &outcomes);

    root.run(async |client| client.user_revoke_role("metes-node", "metes-node").await);
    node.add("late").config(&config).run().error(104);
    root.run(async |client| client.user_grant_role("metes-node", "metes-node").await);
    node.add("late").config(&config).run().address();
    root.run(async |client| client.user_grant_role("other", "metes-node").await);
    other.add("welcome").config(&config).run().address();
    root.run(async |client| client.auth_disable().await);
    cluster.assert_clean();
}
