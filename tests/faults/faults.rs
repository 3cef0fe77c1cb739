//! Processes, hosts and stores that are killed, stopped, cut off, filled up or taken back in time: the state that they
//! leave is always consistent, and the next ADD is served soon.

use std::fs;
use std::iter;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use metes_core::limits;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::{
    Cluster, Etcd, Node, Outcome, Relays, Run, Running, in_parallel, metes, network, network_as, wait_for,
};

/// For the work of many processes on a busy machine.
const WORK: Duration = Duration::from_secs(2);
/// An ADD behind a dead one waits for at most 4 s, as docs/configuration.md says. If it waited for a lease to end, it
/// would take 30 s.
const SERVED_MAX: Duration = Duration::from_secs(4).saturating_add(WORK);
/// For what the harness itself waits for.
const PATIENCE: Duration = Duration::from_secs(30);
/// A blocker's ticket in the queue; no run chooses this lease's id.
const BLOCKER: &str = "0000000000000001";

/// The containers that hold addresses.
fn holders(node: &Node) -> Vec<String> {
    let text = |held: &Value| held["container_id"].as_str().unwrap_or_default().to_owned();
    node.list().iter().map(text).collect()
}

#[track_caller]
fn assert_distinct(mut addresses: Vec<String>) {
    let count = addresses.len();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), count, "an address was given twice");
}

#[track_caller]
fn assert_served(outcome: &Outcome) {
    outcome.address();
    assert!(outcome.elapsed < SERVED_MAX, "served too late: {outcome}");
}

/// A queue of a range, made known by the owner record of a first container that stays.
struct Queue<'a> {
    cluster: &'a Cluster,
    prefix: String,
    tail: String,
    moved: String,
}

impl<'a> Queue<'a> {
    fn of(cluster: &'a Cluster, node: &Node, config: &Value) -> Self {
        node.add("first").config(config).run().address();
        let scope = cluster.store().queue_of(&format!("v1/owner/test/{}/first/eth0", node.name()));
        let [prefix, tail, moved] =
            [format!("v1/ticket/{scope}/"), format!("v1/tail/{scope}"), format!("v1/moved/{scope}")];
        Self { cluster, prefix, tail, moved }
    }

    fn tickets(&self) -> Vec<String> {
        self.cluster.store().keys(&self.prefix)
    }

    /// Takes the head of the queue, so that the next run waits with a ticket.
    fn block(&self) {
        self.cluster.store().put_leased(&format!("{}{BLOCKER}", self.prefix), "{}", 60);
        self.cluster.store().put_leased(&self.tail, BLOCKER, 60);
    }

    fn unblock(&self) {
        self.cluster.store().delete(&format!("{}{BLOCKER}", self.prefix));
    }

    /// Lets those who wait see that the queue moves.
    fn move_on(&self) {
        self.cluster.store().put_leased(&self.moved, "", 60);
    }

    /// Waits until somebody waits behind the blocker.
    fn wait_for_waiter(&self) {
        wait_for("a ticket in the queue", PATIENCE, || match self.tickets().len() {
            2 => Ok(()),
            other => Err(format!("{other} tickets")),
        });
    }

    /// Starts `run` and stops it while it has a ticket, which is the head when this returns.
    fn stop_at_head(&self, run: Run) -> Running {
        self.block();
        let running = run.spawn();
        self.wait_for_waiter();
        running.stop();
        self.unblock();
        assert_eq!(self.tickets().len(), 1, "the stopped run stands at the head");
        running
    }
}

/// A moment up to `most`, anew each time.
fn random_moment(most: Duration) -> Duration {
    let random = getrandom::u64().expect("the kernel has random numbers");
    Duration::from_nanos(random % u64::try_from(most.as_nanos()).expect("short"))
}

#[test]
fn killed_200_times() {
    const ROUNDS: usize = 10;
    /// One queue each, in one network and on one page.
    const RANGES: usize = 20;
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let configs: Vec<Value> =
        (0..RANGES).map(|index| network(json!({"range": format!("10.50.{index}.0/26")}))).collect();
    let mut usual: Vec<Duration> = (0..11)
        .map(|index| {
            let name = format!("usual{index}");
            let elapsed = node.add(&name).config(&configs[0]).run().elapsed;
            node.del(&name).config(&configs[0]).run().silent();
            elapsed
        })
        .collect();
    usual.sort();
    let longest = usual[usual.len() / 2] * 3 / 2;

    let mut done = 0;
    for round in 0..ROUNDS {
        for (index, config) in configs.iter().enumerate() {
            let mut running = node.add(&format!("killed{round}-{index}")).config(config).spawn();
            thread::sleep(random_moment(longest));
            running.kill();
            done += usize::from(running.wait().succeeded());
        }
        cluster.assert_clean();
        let next = in_parallel(RANGES, configs.iter().enumerate(), |(index, config)| {
            node.add(&format!("next{round}-{index}")).config(config).run()
        });
        next.iter().for_each(assert_served);
        cluster.assert_clean();
    }
    assert!(done < ROUNDS * RANGES, "none was killed in time");

    let owners = (0..ROUNDS).flat_map(|r| (0..RANGES).map(move |i| (r, i)));
    in_parallel(8, owners, |(round, index)| {
        for kind in ["killed", "next"] {
            node.del(&format!("{kind}{round}-{index}")).config(&configs[index]).run().silent();
        }
    });
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn an_add_stopped_at_the_head_is_passed_by_and_answers_when_it_wakes() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.51.0.0/24"}));
    let queue = Queue::of(&cluster, &node, &config);
    let stopped = queue.stop_at_head(node.add("stopped").config(&config));

    let others = in_parallel(8, 0..8, |index| node.add(&format!("c{index}")).config(&config).run());
    others.iter().for_each(assert_served);
    let waited = others.iter().map(|outcome| outcome.elapsed).min().expect("some");
    assert!(waited > limits::PATIENCE.least, "nobody waited behind the stopped one: {waited:?}");
    // Nobody stands before them any more.
    assert_served(&node.add("c8").config(&config).run());
    stopped.resume();
    let outcome = stopped.wait();
    assert_distinct(others.iter().chain([&outcome]).map(Outcome::address).collect());
    assert!(queue.tickets().is_empty(), "{:?}", queue.tickets());
    assert_eq!(holders(&node).len(), 11);
    cluster.assert_clean();

    for index in 0..9 {
        node.del(&format!("c{index}")).config(&config).run().silent();
    }
    node.del("stopped").config(&config).run().silent();
    node.del("first").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_del_ends_the_add_that_was_stopped_before_its_commit() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.52.0.0/24"}));
    let queue = Queue::of(&cluster, &node, &config);
    let stopped = queue.stop_at_head(node.add("c").config(&config));
    let del = node.del("c").config(&config).run();
    del.silent();
    assert!(del.elapsed < limits::DEL_DEADLINE + WORK, "{del}");
    stopped.resume();
    stopped.wait().error(11);
    assert_eq!(holders(&node), ["first"]);
    assert!(queue.tickets().is_empty(), "{:?}", queue.tickets());
    cluster.assert_clean();

    assert_served(&node.add("c").config(&config).run());
    node.del("c").config(&config).run().silent();
    node.del("first").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_clean();
}

#[test]
fn a_del_whose_lease_ends_while_it_queues_frees_all_the_same() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.57.0.0/24"}));
    let queue = Queue::of(&cluster, &node, &config);
    node.add("c").config(&config).run().address();
    queue.block();
    // By its hints, a DEL waits in no queue.
    node.forget_owners();
    let del = node.del("c").config(&config).spawn();
    queue.wait_for_waiter();
    let ticket =
        queue.tickets().into_iter().find(|ticket| !ticket.ends_with(BLOCKER)).expect("it has a ticket");
    let ticket = cluster.store().key(&ticket);
    cluster.store().run(async |client| {
        let lease = client.get(ticket, None).await?.kvs()[0].lease();
        client.lease_revoke(lease).await
    });
    queue.unblock();
    let outcome = del.wait();
    outcome.silent();
    assert!(!outcome.stderr.contains("spooled"), "it had the time for another lease: {outcome}");
    assert_eq!(holders(&node), ["first"]);
    let tombstones = cluster.store().keys("v1/tombstone/");
    assert!(tombstones.iter().any(|key| key.contains("/c/")), "{tombstones:?}");
    node.del("first").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

/// Another process than a child of the test's own.
fn send(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).expect("a process has a number");
    kill_process(pid, signal).expect("a running process can be signalled");
}

/// The only child of a process.
fn child_of(pid: u32) -> i32 {
    wait_for("a child process", PATIENCE, || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.map_err(|error| error.to_string())?;
        children.trim().parse().map_err(|_| format!("children: {children:?}"))
    })
}

fn wait_until_stopped(pid: i32) {
    wait_for("a process to stop", PATIENCE, || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| error.to_string())?;
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if state == Some('T') { Ok(()) } else { Err(format!("its state is {state:?}")) }
    });
}

#[test]
fn an_add_whose_parent_died_leaves_nothing() {
    for deletes in [false, true] {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let config = network(json!({"range": "10.53.0.0/24"}));
        let queue = Queue::of(&cluster, &node, &config);
        queue.block();
        let program = metes();
        // The shell stays its parent, for something follows.
        let shell = Run::new("sh")
            .arguments(["-c", "\"$0\"; exit $?", &program.to_string_lossy()])
            .env("CNI_COMMAND", "ADD")
            .env("METES_CONF", node.host_file())
            .container("orphan")
            .ifname("eth0")
            .netns("/run/netns/made-up")
            .cni_path(cluster.folder())
            .config(&config);
        let mut shell = shell.spawn();
        queue.wait_for_waiter();
        let add = child_of(shell.pid());
        send(add, Signal::STOP);
        wait_until_stopped(add);
        queue.unblock();
        shell.kill();
        // Only then it has another parent.
        wait_for("the shell to end", PATIENCE, || {
            if shell.is_running() { Err("it runs".to_owned()) } else { Ok(()) }
        });
        if deletes {
            node.del("orphan").config(&config).run().silent();
        }
        send(add, Signal::CONT);
        // Its output ends with it.
        let outcome = shell.wait();
        assert_eq!(outcome.error_code(), Some(11), "{outcome}");
        assert_eq!(holders(&node), ["first"]);
        assert!(queue.tickets().is_empty(), "{:?}", queue.tickets());
        cluster.assert_clean();
        assert_served(&node.add("orphan").config(&config).run());
        node.del("orphan").config(&config).run().silent();
        assert_eq!(holders(&node), ["first"]);
        cluster.assert_clean();
    }
}

#[test]
fn an_etcd_that_stalls_for_a_second_fails_no_add() {
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.54.0.0/24"}));
    let started = AtomicUsize::new(0);
    let outcomes = thread::scope(|scope| {
        let adds = scope.spawn(|| {
            in_parallel(16, 0..48, |index| {
                started.fetch_add(1, Ordering::Relaxed);
                node.add(&format!("c{index}")).config(&config).run()
            })
        });
        wait_for("a good part of the ADDs", PATIENCE, || match started.load(Ordering::Relaxed) {
            24.. => Ok(()),
            other => Err(format!("{other} started")),
        });
        etcd.stop();
        thread::sleep(Duration::from_secs(1));
        etcd.resume();
        adds.join().expect("no ADD panics")
    });
    assert_distinct(outcomes.iter().map(Outcome::address).collect());
    assert_eq!(holders(&node).len(), 48);
    cluster.assert_clean();
    in_parallel(8, 0..48, |index| node.del(&format!("c{index}")).config(&config).run().silent());
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn an_etcd_that_dies_and_comes_back_leaves_no_half_of_an_add() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.55.0.0/24"}));
    let started = AtomicUsize::new(0);
    let outcomes = thread::scope(|scope| {
        let adds = scope.spawn(|| {
            in_parallel(16, 0..120, |index| {
                started.fetch_add(1, Ordering::Relaxed);
                node.add(&format!("c{index}")).config(&config).run()
            })
        });
        for part in [40, 80] {
            wait_for("a part of the ADDs", PATIENCE, || match started.load(Ordering::Relaxed) {
                count if count >= part => Ok(()),
                other => Err(format!("{other} started")),
            });
            etcd.restart();
        }
        adds.join().expect("no ADD panics")
    });
    for outcome in outcomes.iter().filter(|outcome| !outcome.succeeded()) {
        outcome.error(11);
    }
    cluster.assert_whole();
    let again = in_parallel(8, 0..120, |index| node.add(&format!("c{index}")).config(&config).run());
    for (before, now) in outcomes.iter().zip(&again).filter(|(before, _)| before.succeeded()) {
        assert_eq!(before.address(), now.address());
    }
    assert_distinct(again.iter().map(Outcome::address).collect());
    assert_eq!(holders(&node).len(), 120);
    cluster.assert_whole();
    in_parallel(8, 0..120, |index| node.del(&format!("c{index}")).config(&config).run().silent());
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn an_etcd_that_is_down_is_told_in_time() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.56.0.0/24"}));
    let added = node.add("c").config(&config).run();
    let mut with_result = network_as("1.1.0", "net", json!({"range": "10.56.0.0/24"}));
    with_result["prevResult"] = added.ok();
    etcd.kill();
    let jobs = [
        (node.add("d").config(&config), 11, 8),
        (node.check("c").config(&with_result), 11, 8),
        (cluster.node("new").status().config(&with_result), 50, 2),
    ];
    in_parallel(3, jobs, |(run, code, seconds)| {
        let outcome = run.run();
        outcome.error(code);
        assert!(outcome.elapsed < Duration::from_secs(seconds), "{outcome}");
    });
    etcd.restart();
    assert_served(&node.add("d").config(&config).run());
    assert_eq!(holders(&node).len(), 2);
    cluster.assert_clean();
}

/// Does the work of an operator with a store that is out of space.
fn make_room(cluster: &Cluster) {
    let store = cluster.store();
    store.run(async |client| {
        let options = etcd_client::DeleteOptions::new().with_prefix();
        let deleted = client.delete("/filling/", Some(options)).await?;
        let revision = deleted.header().expect("an answer has a header").revision();
        let physical = etcd_client::CompactionOptions::new().with_physical();
        client.compact(revision, Some(physical)).await?;
        client.defragment().await
    });
    store.clear_alarms();
}

#[test]
fn out_of_space_dels_work_and_adds_leave_nothing() {
    let etcd = Etcd::with_args(&["--quota-backend-bytes=16777216"]);
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.57.0.0/24"}));
    let pod = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=uid-1";
    for index in 0..6 {
        node.add(&format!("c{index}")).config(&config).run().address();
    }
    node.add("pod").args(pod).config(&config).run().address();
    cluster.store().fill();

    // A refused commit is settled by ending the lease of the node's runs.
    let lasting = || {
        let mut entries = cluster.store().entries("v1/");
        entries.retain(|(key, _)| !key.starts_with("v1/fence/"));
        entries
    };
    let before = lasting();
    node.add("late").config(&config).run().error(103);
    node.add("retried").args(pod).config(&config).run().error(103);
    assert_eq!(lasting(), before, "a refused ADD changed something");
    let status = network_as("1.1.0", "net", json!({"range": "10.57.0.0/24"}));
    node.status().config(&status).run().error(50);
    cluster.assert_clean();

    in_parallel(4, 0..6, |index| node.del(&format!("c{index}")).config(&config).run().silent());
    node.del("pod").args(pod).config(&config).run().silent();
    // Twice, and of one that never was.
    node.del("c0").config(&config).run().silent();
    node.del("never").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_whole();

    make_room(&cluster);
    node.status().config(&status).run().silent();
    node.add("late").config(&config).run().address();
    assert_eq!(holders(&node), ["late"]);
    cluster.assert_whole();
    node.del("late").config(&config).run().silent();
    cluster.assert_nothing_held();
    cluster.assert_whole();
}

#[test]
fn a_store_that_was_emptied_is_suspect_until_it_is_accepted() {
    let mut etcd = Etcd::start();
    let empty = etcd.copy_data();
    let cluster = Cluster::on(&etcd);
    let (node, other) = (cluster.node("n1"), cluster.node("n2"));
    let config = network(json!({"range": "10.58.0.0/24"}));
    for index in 0..5 {
        node.add(&format!("c{index}")).config(&config).run().address();
    }
    etcd.restore_data(&empty);
    assert_suspect_until_accepted(&cluster, &node, &other, &config);
    assert!(node.list().is_empty());
    cluster.assert_clean();

    // Of the next epoch, and no longer suspect.
    for index in 0..5 {
        node.add(&format!("d{index}")).config(&config).run().address();
    }
    assert_served(&other.add("e").config(&config).run());
    cluster.assert_clean();
}

#[test]
fn a_store_that_was_restored_is_suspect_until_it_is_accepted() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let (node, other) = (cluster.node("n1"), cluster.node_with("n2", json!({"gc_grace_s": 0})));
    let config = network(json!({"range": "10.59.0.0/24"}));
    let kept = node.add("kept").config(&config).run().address();
    other.add("kept2").config(&config).run().address();
    let backup = etcd.copy_data();
    for index in 0..5 {
        node.add(&format!("c{index}")).config(&config).run().address();
    }
    etcd.restore_data(&backup);
    assert_suspect_until_accepted(&cluster, &node, &other, &config);

    // The addresses that the backup knew are still held.
    assert_eq!(holders(&node), ["kept", "kept2"]);
    assert_eq!(node.add("kept").config(&config).run().address(), kept);
    assert_served(&other.add("e").config(&config).run());
    cluster.assert_clean();
}

/// `node` has seen more than the store remembers.
fn assert_suspect_until_accepted(cluster: &Cluster, node: &Node, other: &Node, config: &Value) {
    node.add("late").config(config).run().error(102);
    // From now on everybody is told, nodes that have seen nothing too.
    node.add("late").config(config).run().error(102);
    other.add("late").config(config).run().error(102);
    cluster.node("n3").add("late").config(config).run().error(102);
    let check = cluster.check();
    assert_eq!(check.status.code(), Some(1), "{check}");
    assert!(check.stdout.contains("suspect"), "{check}");

    // DEL works, garbage collection frees nothing.
    node.del("late").config(config).run().silent();
    let mut collect = network_as("1.1.0", "net", config["ipam"].clone());
    collect["cni.dev/valid-attachments"] = json!([]);
    let before = holders(node);
    other.gc().config(&collect).run().silent();
    assert_eq!(holders(node), before);

    let accepted = node.cli(["check", "--accept-store", "--yes"]);
    assert!(accepted.succeeded(), "{accepted}");
    cluster.assert_clean();
}

#[test]
fn allocations_without_meta_are_a_contradiction() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.60.0.0/24"}));
    node.add("c").config(&config).run().address();
    cluster.store().delete("v1/meta");
    // A node that has never seen this store.
    let new = cluster.node("n2");
    let error = new.add("d").config(&config).run().error(102);
    assert!(error["msg"].as_str().is_some_and(|msg| msg.contains("meta is missing")), "{error}");
    assert_eq!(holders(&node), ["c"]);
    assert_eq!(cluster.store().get("v1/meta"), None);
    assert_eq!(cluster.check().status.code(), Some(1));
    node.add("c").config(&config).run().error(102);

    node.del("c").config(&config).run().silent();
    cluster.leave_unclean();
}

#[test]
fn an_add_that_is_killed_while_it_waits_costs_the_others_nothing_and_its_del_frees_what_it_got() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.61.0.0/24"}));
    let queue = Queue::of(&cluster, &node, &config);
    queue.block();
    let is_over = AtomicBool::new(false);
    let dead: Vec<Running> = thread::scope(|threads| {
        // The queue moves, so nobody goes to its head.
        threads.spawn(|| {
            let until = Instant::now() + PATIENCE;
            while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                queue.move_on();
            }
        });
        let dead = (0..12).map(|index| node.add(&format!("dead{index}")).config(&config).spawn()).collect();
        wait_for("their tickets", PATIENCE, || match queue.tickets().len() {
            13 => Ok(()),
            other => Err(format!("{other} tickets")),
        });
        is_over.store(true, Ordering::Relaxed);
        dead
    });
    for mut running in dead {
        running.kill();
        running.wait();
    }
    let start = Instant::now();
    let outcomes = in_parallel(4, 0..4, |index| node.add(&format!("c{index}")).config(&config).run());
    outcomes.iter().for_each(assert_served);
    assert!(start.elapsed() < SERVED_MAX, "{:?}", start.elapsed());
    // Nobody can serve the one that blocks. It goes with its lease.
    assert_eq!(queue.tickets().len(), 1);
    queue.unblock();
    assert_eq!(holders(&node).len(), 17);
    for index in 0..12 {
        node.del(&format!("dead{index}")).config(&config).run().silent();
    }
    assert_eq!(holders(&node).len(), 5);
    cluster.assert_clean();
}

/// Both ranges begin on one page, which every commit writes. The longer one has a queue of its own.
#[test]
fn a_dead_head_is_passed_by_though_a_neighbouring_range_is_busy() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.63.1.0/24"}));
    let neighbour = network(json!({"range": "10.63.0.0/16"}));
    Queue::of(&cluster, &node, &config).block();
    let is_served = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_served.load(Ordering::Relaxed) {
                node.add("busy").config(&neighbour).run().address();
                node.del("busy").config(&neighbour).run().silent();
            }
        });
        let outcome = node.add("late").config(&config).run();
        is_served.store(true, Ordering::Relaxed);
        outcome.address();
        assert!(outcome.elapsed < SERVED_MAX + WORK, "served too late: {outcome}");
    });
    cluster.assert_clean();
}

#[test]
fn a_stopped_sandbox_that_was_replaced_gets_nothing_when_it_wakes() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.62.0.0/24"}));
    let queue = Queue::of(&cluster, &node, &config);
    let pod = "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0;K8S_POD_UID=uid-1";
    let old = queue.stop_at_head(node.add("old").args(pod).config(&config));
    assert_served(&node.add("new").args(pod).config(&config).run());
    old.resume();
    old.wait().error(11);
    assert_eq!(holders(&node), ["first", "new"]);
    assert!(queue.tickets().is_empty(), "{:?}", queue.tickets());
    cluster.assert_clean();
}

#[test]
fn a_stopped_del_frees_nothing_that_a_later_add_answered_with() {
    let cluster = Cluster::new();
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.63.0.0/24"}));
    let queue = Queue::of(&cluster, &node, &config);
    let address = node.add("c").config(&config).run().address();
    // By its hints, a DEL waits in no queue.
    node.forget_owners();
    let del = queue.stop_at_head(node.del("c").config(&config));
    let repeated = node.add("c").config(&config).run();
    assert_served(&repeated);
    assert_eq!(repeated.address(), address);
    del.resume();
    del.wait().silent();
    assert_eq!(holders(&node), ["first", "c"]);
    // If it went into the spool, this carries it out.
    node.add("other").config(&config).run().address();
    assert_eq!(holders(&node), ["first", "c", "other"]);
    cluster.assert_clean();
    node.del("c").config(&config).run().silent();
    assert_eq!(holders(&node), ["first", "other"]);
    cluster.assert_clean();
}

#[test]
fn adds_that_never_learn_what_became_of_them_hold_nothing_in_the_end() {
    const ADDS: usize = 24;
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let node = cluster.node("n1");
    let config = network(json!({"range": "10.65.0.0/24"}));
    let answered = AtomicUsize::new(0);
    let outcomes = thread::scope(|scope| {
        let adds = scope.spawn(|| {
            in_parallel(ADDS, 0..ADDS, |index| {
                let outcome = node.add(&format!("c{index}")).config(&config).run();
                answered.fetch_add(1, Ordering::Relaxed);
                outcome
            })
        });
        wait_for("the first answer", PATIENCE, || match answered.load(Ordering::Relaxed) {
            0 => Err("none yet".to_owned()),
            _ => Ok(()),
        });
        // For longer than any of them may take.
        etcd.stop();
        let outcomes = adds.join().expect("no ADD panics");
        etcd.resume();
        outcomes
    });
    let mut expected: Vec<String> = Vec::new();
    for (index, outcome) in outcomes.iter().enumerate() {
        if outcome.succeeded() {
            expected.push(format!("c{index}"));
        } else {
            let text = outcome.error(11).to_string();
            let told =
                ["no answer in 1500 ms", "until the time was over", "the time for this request is over"];
            assert!(told.iter().any(|told| text.contains(told)), "{text}");
            assert!(outcome.elapsed < Duration::from_secs(22), "{outcome}");
        }
    }
    assert!(expected.len() < ADDS, "etcd was stopped too late");
    // Each run that has answered carries out some of the spooled DELs.
    for index in 0..3 {
        assert_served(&node.add(&format!("after{index}")).config(&config).run());
        expected.push(format!("after{index}"));
    }
    expected.sort();
    wait_for("the spool to be carried out", PATIENCE, || {
        node.del("none").config(&config).run().silent();
        let mut holders = holders(&node);
        holders.sort();
        if holders == expected { Ok(()) } else { Err(format!("{holders:?}, not {expected:?}")) }
    });
    cluster.assert_whole();
    in_parallel(8, &expected, |name| node.del(name).config(&config).run().silent());
    cluster.assert_whole();
}

/// All of it takes longer than the time that each look has.
#[test]
fn each_look_of_a_repair_has_time_of_its_own() {
    const ONE_WAY: Duration = Duration::from_millis(600);
    const PAGE: &str = "v1/net/default/page/00000000000000000000ffff0a000000";
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let config = network(json!({"range": "10.0.0.0/24"}));
    assert_served(&cluster.node("a").add("c1").config(&config).run());
    let mut bits = cluster.store().get(PAGE).expect("a page");
    bits[9] |= 1;
    cluster.store().put(PAGE, bits);
    let (_relays, slow) = Relays::before_endpoint(&etcd.endpoint(), ONE_WAY);
    let node = cluster.node_with("slow", json!({"etcd": {"endpoints": [slow]}}));
    let repaired = node.cli(["check", "--repair", "--timeout", "5s"]);
    assert!(repaired.succeeded() && repaired.stdout.contains("stray bits cleared: 1"), "{repaired}");
    assert!(repaired.elapsed > Duration::from_secs(5), "it took no longer than one look: {repaired}");
    cluster.assert_clean();
}

/// Each answer takes longer than an attempt of any other request.
#[test]
fn what_reads_everything_gives_a_slow_etcd_time_and_leaves_a_silent_one() {
    const TURNED_WITHIN: Duration = Duration::from_secs(6);
    let etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    // It accepts connections, and never says a word.
    let silent = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (_relays, slow) = Relays::before_endpoint(&etcd.endpoint(), limits::REQUEST_ATTEMPT);
    let list = |name: &str, endpoints: &[&str]| {
        let node = cluster.node_with(name, json!({"etcd": {"endpoints": endpoints}}));
        node.cli(["list", "-o", "json", "--timeout", "20s"])
    };
    let listed = list("slow", &[&slow]);
    assert!(listed.succeeded(), "{listed}");
    // Each begins with one of the two at random.
    for listed in in_parallel(4, 0..8, |at| list(&format!("n{at}"), &[&silent, &etcd.endpoint()])) {
        assert!(listed.succeeded() && listed.elapsed < TURNED_WITHIN, "{listed}");
    }
    cluster.assert_clean();
}

/// The handshake takes two seconds, and so does each request.
#[test]
fn an_add_waits_for_a_slow_handshake_and_for_what_comes_after_it() {
    const ONE_WAY: Duration = Duration::from_secs(1);
    let etcd = Etcd::start_mtls();
    let cluster = Cluster::on(&etcd);
    let (_relays, slow) = Relays::before_endpoint(&etcd.endpoint(), ONE_WAY);
    let node = cluster.node_with("slow", json!({"etcd": {"endpoints": [slow]}}));
    node.add("c").config(&network(json!({"range": "10.0.0.0/24"}))).run().address();
    cluster.assert_clean();
}

/// Multus and the runtime send two DELs for each network of a pod whose ADD has failed.
#[test]
fn after_a_del_without_an_answer_those_that_follow_are_spooled_unasked() {
    let mut etcd = Etcd::start();
    let cluster = Cluster::on(&etcd);
    let config = network(json!({"range": "10.0.0.0/24"}));
    let node = cluster.node("a");
    for container in ["c1", "c2", "c3"] {
        assert_served(&node.add(container).config(&config).run());
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.set_nonblocking(true).expect("a socket can be so");
    let asked = || iter::from_fn(|| listener.accept().ok()).count();
    let silent = format!("http://{}", listener.local_addr().expect("it is bound"));
    node.change_host_file(json!({"etcd": {"endpoints": [silent]}}));
    node.del("c1").config(&config).run().silent();
    assert_ne!(asked(), 0, "the first asks");
    node.del("c2").config(&config).run().silent();
    assert_eq!((asked(), node.spooled_dels().len()), (0, 2));
    // An ADD asks always. Once it has an answer, DELs ask again.
    node.change_host_file(json!({"etcd": {"endpoints": [etcd.endpoint()]}}));
    etcd.kill();
    node.del("c3").config(&config).run().silent();
    etcd.restart();
    assert_served(&node.add("c4").config(&config).run());
    node.del("c4").config(&config).run().silent();
    assert_eq!(node.spooled_dels().len(), 0, "the ADD has carried out what was spooled");
    cluster.assert_nothing_held();
    cluster.assert_whole();
}
