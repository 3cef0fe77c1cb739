//! ADD, DEL and passes of the reconciler, on a real etcd and a real API server, in orders that chance chooses: each of
//! them waits before and after each of its requests until it is let go on, and some are killed there. A live pod keeps
//! its addresses; those of dead runs and pods come back.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::rc::Rc;
use std::time::Duration;

use metes::commands::{Run, add, del};
use metes_core::keys::{Bytes, Keys, LeaseId};
use metes_core::pool::{Addr, Labels, Owner, OwnerRecord, Reservation, RunStart, Wanted, record};
use metes_core::snapshot::Snapshot;
use metes_core::txn::{Reply, Txn};
use metes_engine::kv::{Failure, Kv, LeaseAge};
use metes_engine::random::split_mix;
use metes_engine::session::Session;
use metes_etcd::client::{Etcd as EtcdStore, EtcdWatch};
use metes_node::node::Identity;
use metes_node::state::NodeState;
use metes_reconciler::api::{Api, ApiError, ClaimList, Node, Phase, Pod, PodFilter};
use metes_reconciler::context::Context;
use metes_reconciler::error::RunError;
use metes_reconciler::kubernetes::Kubernetes;
use metes_reconciler::pass::{self, Pass, PassError, PassOptions};
use metes_reconciler::report::PassReport;
use metes_reconciler::verdict::Graces;
use support::{Cluster, Etcd, KubeApi, in_parallel, left_to_etcd, plain_store, range_set};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Worlds that are played, each with an order of its own.
const WORLDS: u64 = 60;
/// They mostly wait.
const AT_ONCE: usize = 20;
/// The most lives of each name.
const LIVES: u64 = 4;
/// Passes that go on beside them, one after another, in each of two reconcilers.
const PASSES: u64 = 6;
/// Somebody is made to stand still once in so many turns, and for so many at most.
const FREEZE_ONE_IN: u64 = 25;
const FREEZE_TURNS: u64 = 120;
/// The most turns of its own that a pod runs.
const RUNS_FOR: u64 = 40;
const PASS_MAX: Duration = Duration::from_secs(30);
const ADD_MAX: Duration = Duration::from_secs(20);
const NODE: &str = "n1";
const BOOT: &str = "b1";

#[test]
fn no_order_of_events_takes_an_address_from_a_live_pod_or_leaves_one_behind() {
    in_parallel(AT_ONCE, 0..WORLDS, play);
}

fn play(seed: u64) {
    let cluster = Cluster::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let world = World::new(seed, &cluster).await;
        tokio::select! {
            () = world.live() => {}
            () = world.gate.choose() => unreachable!("it goes on forever"),
        }
        world.settle().await;
    });
    cluster.assert_clean();
}

/// One world: a store, a cluster, and the order of events in it.
struct World {
    seed: u64,
    keys: Keys,
    etcd: EtcdStore,
    kubernetes: Kubernetes,
    api: &'static KubeApi,
    namespace: String,
    gate: Gate,
    node: NodeState,
    /// The answers of ADD to pods that live.
    living: RefCell<Vec<Living>>,
    clock: Cell<u64>,
}

#[derive(Clone)]
struct Living {
    owner: Owner,
    addresses: Vec<record::Held>,
}

impl World {
    async fn new(seed: u64, cluster: &Cluster) -> Self {
        let api = KubeApi::shared();
        let kubeconfig = api.kubeconfig(cluster.folder());
        Self {
            seed,
            keys: Keys::new(cluster.prefix()),
            etcd: plain_store(&Etcd::shared().endpoint(), ADD_MAX),
            kubernetes: Kubernetes::new(Some(&kubeconfig), 500).await.expect("a kubeconfig that leads there"),
            api,
            namespace: api.new_namespace(),
            gate: Gate {
                waiting: RefCell::default(),
                chance: Chance(Cell::new(seed ^ 0x9e37_79b9_7f4a_7c15)),
            },
            node: NodeState {
                identity: Identity {
                    cluster: "test".parse().ok(),
                    ..Identity::of(NODE.parse().expect("a plain name"))
                },
                folder: cluster.folder().join("state"),
                endpoints: Vec::new(),
                all: None,
            },
            living: RefCell::default(),
            clock: Cell::new(1),
        }
    }

    /// All actors at once, until each has come to its end.
    async fn live(&self) {
        tokio::join!(self.be_pods(1), self.be_pods(2), self.be_pods(3), self.reconcile(4), self.reconcile(5));
    }

    /// The lives of the pods of one name: each is created, gets its address, and ends in one of the ways that there
    /// are.
    async fn be_pods(&self, who: u64) {
        let chance = Chance(Cell::new(self.seed.wrapping_mul(31) + who));
        let name = format!("web-{who}");
        for life in 0..LIVES {
            let pod = self.api.pod(&self.namespace, &name).node(NODE).phase("Running").create();
            let mut container = 0;
            let owner = loop {
                container += 1;
                let id = format!("{name}-{life}-{container}");
                let owner = Owner::named(["test", NODE, &id, "net1"]).expect("plain names");
                // Some runs are killed; the runtime then tries another sandbox.
                let kill_after = (chance.below(4) == 0).then(|| chance.below(14));
                if let Some(added) = self.killed_after(who, kill_after, |kv| self.add(kv, &owner, &pod)).await
                {
                    self.living.borrow_mut().push(Living { owner: owner.clone(), addresses: added });
                    break owner;
                }
            };
            // It runs for a while.
            for _ in 0..chance.below(RUNS_FOR) {
                self.gate.pass(who).await;
            }
            self.assert_held(&owner).await;
            let ends = chance.below(if life + 1 == LIVES { 4 } else { 3 });
            // From here on it may be taken for gone at any moment.
            if ends < 3 {
                self.living.borrow_mut().retain(|living| living.owner != owner);
            }
            match ends {
                0 => {
                    self.killed_after(who, None, |kv| self.del(kv, &owner)).await;
                    pod.delete();
                }
                1 => pod.delete(),
                2 => {
                    pod.phase("Succeeded");
                    pod.delete();
                }
                _ => return,
            }
        }
    }

    async fn reconcile(&self, who: u64) {
        let chance = Chance(Cell::new(self.seed.wrapping_mul(17) + who));
        for _ in 0..PASSES {
            let kill_after = (chance.below(3) == 0).then(|| chance.below(40));
            self.killed_after(who, kill_after, |kv| self.pass(kv)).await;
        }
    }

    /// Does it on a store that waits at each step; nothing if it is killed before its end.
    async fn killed_after<'w, F: Future>(
        &'w self,
        who: u64,
        steps: Option<u64>,
        work: impl FnOnce(Stepped<'w>) -> F,
    ) -> Option<F::Output> {
        let killed = Rc::new(Notify::new());
        let left = Rc::new(Cell::new(steps.unwrap_or(u64::MAX)));
        let stepped = Stepped {
            world: self,
            etcd: Rc::new(plain_store(&Etcd::shared().endpoint(), ADD_MAX)),
            who,
            left,
            killed: killed.clone(),
        };
        tokio::select! {
            done = Box::pin(work(stepped)) => Some(done),
            () = killed.notified() => None,
        }
    }

    async fn add(&self, kv: Stepped<'_>, owner: &Owner, pod: &support::Pod) -> Vec<record::Held> {
        let labels = record::Pod {
            namespace: self.namespace.clone(),
            name: pod.name().to_owned(),
            uid: pod.uid().parse().ok(),
        };
        let run = self.run(&kv, self.start());
        let wanted = Wanted::lowest_of(vec![
            range_set("10.0.0.0/27", "10.0.0.1", "10.0.0.30"),
            range_set("fd00::/123", "fd00::1", "fd00::1e"),
        ]);
        let ask = run.ask(owner.clone(), Labels { pod: labels, cni_network: "net".into() }, wanted);
        add::add(&run, &ask)
            .await
            .unwrap_or_else(|e| panic!("world {}: ADD {owner:?}: {e:?}", self.seed))
            .held
    }

    async fn del(&self, kv: Stepped<'_>, owner: &Owner) {
        let run = self.run(&kv, self.start());
        del::del(&run, owner, None)
            .await
            .unwrap_or_else(|e| panic!("world {}: DEL {owner:?}: {e:?}", self.seed));
    }

    fn run<'r>(&'r self, kv: &'r Stepped<'r>, start: RunStart) -> Run<'r, Stepped<'r>> {
        let session = Session { kv, keys: &self.keys, until: Instant::now() + ADD_MAX };
        Run::new(session, &self.node, start, &after_all_runs, &|| true)
    }

    fn start(&self) -> RunStart {
        self.clock.set(self.clock.get() + 1);
        RunStart { boot: BOOT.into(), ns: self.clock.get() }
    }

    async fn pass(&self, kv: Stepped<'_>) {
        let graces = Graces::NONE;
        let report = RefCell::new(PassReport::new("test", false));
        let cluster = "test".parse().expect("a plain name");
        let session = Session { kv: &kv, keys: &self.keys, until: Instant::now() + PASS_MAX };
        let pass = Pass {
            context: Context { session, cluster: &cluster, api: &kv, dry_run: false },
            options: PassOptions { graces, force: false },
            settings: None,
            report: &report,
        };
        match pass::run(pass, PASS_MAX).await {
            // A machine that is busy enough lets etcd answer too late: that pass was as good as killed.
            Ok(()) | Err(PassError::Run(RunError::Store(_) | RunError::OutOfTime(_))) => {}
            Err(e) => panic!("world {}: pass: {e}", self.seed),
        }
    }

    /// Every address that ADD gave a pod that lives is reserved for it.
    async fn assert_held(&self, owner: &Owner) {
        let living = self.living.borrow().iter().find(|living| living.owner == *owner).cloned();
        let Some(living) = living else { panic!("{owner:?} does not live") };
        let mut keys: Vec<Bytes> = vec![self.keys.owner(owner)];
        let key = |held: &record::Held| {
            self.keys.ip(held.network.as_ref().expect("reserved"), Addr::from(held.address))
        };
        keys.extend(living.addresses.iter().map(key));
        let mut snapshot = Snapshot::default();
        Session { kv: &self.etcd, keys: &self.keys, until: Instant::now() + ADD_MAX }
            .read(&keys, &mut snapshot)
            .await
            .expect("etcd answers");
        let seed = self.seed;
        let decoded = snapshot.record::<OwnerRecord>(&keys[0]).expect("it decodes");
        let listed = decoded.unwrap_or_else(|| panic!("world {seed}: {owner:?} lost its record")).addresses;
        assert_eq!(listed, living.addresses, "world {seed}: {owner:?}");
        for key in &keys[1..] {
            let held = snapshot.record::<Reservation>(key).expect("it decodes").map(|record| record.owner);
            assert_eq!(held.as_ref(), Some(owner), "world {seed}: {}", String::from_utf8_lossy(key));
        }
    }

    /// When all is quiet, a few passes leave exactly the addresses of living pods.
    async fn settle(&self) {
        for living in self.living.take() {
            self.living.borrow_mut().push(living.clone());
            self.assert_held(&living.owner).await;
        }
        for _ in 0..3 {
            let stepped = async { self.killed_after(0, None, |kv| self.pass(kv)).await };
            tokio::select! {
                _ = stepped => {}
                () = self.gate.choose() => unreachable!("it goes on forever"),
            }
        }
        let living: Vec<Living> = self.living.borrow().clone();
        for living in &living {
            self.assert_held(&living.owner).await;
        }
        let see = |owners: &mut Vec<Owner>, entry: metes_core::txn::Entry| {
            if let Ok(metes_core::keys::Key::Owner(owner)) = self.keys.parse(&entry.key) {
                owners.push(owner);
            }
        };
        let session = Session { kv: &self.etcd, keys: &self.keys, until: Instant::now() + ADD_MAX };
        let walked = metes_engine::walk::walk(session, &self.keys.owners(), Vec::new, see).await;
        let (mut left, _) = walked.expect("etcd answers");
        let mut expected: Vec<Owner> = living.into_iter().map(|living| living.owner).collect();
        left.sort();
        expected.sort();
        assert_eq!(left, expected, "world {}", self.seed);
    }
}

/// Starts here are small numbers of nanoseconds, and no run sleeps through its deadline.
fn after_all_runs() -> RunStart {
    RunStart { boot: BOOT.into(), ns: 1_000_000_000 }
}

/// The place where everybody waits, until chance lets one go on at a time.
struct Gate {
    waiting: RefCell<Vec<(u64, oneshot::Sender<()>)>>,
    chance: Chance,
}

impl Gate {
    async fn pass(&self, who: u64) {
        let (go, went) = oneshot::channel();
        self.waiting.borrow_mut().push((who, go));
        // A gate that is gone lets everybody through.
        let _ = went.await;
    }

    /// Lets one after another go on, forever. Now and then one has to stand still while all others go on for long: its
    /// reads are old when it acts.
    async fn choose(&self) {
        let mut frozen: Option<(u64, u64)> = None;
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            for _ in 0..=self.chance.below(3) {
                let mut waiting = self.waiting.borrow_mut();
                // A run that was killed waits no more.
                waiting.retain(|(_, go)| !go.is_closed());
                frozen = match frozen {
                    Some((who, turns)) if turns > 0 => Some((who, turns - 1)),
                    _ if self.chance.below(FREEZE_ONE_IN) == 0 && !waiting.is_empty() => {
                        let who = waiting[self.chance.below(waiting.len() as u64) as usize].0;
                        Some((who, self.chance.below(FREEZE_TURNS)))
                    }
                    _ => None,
                };
                let may_go: Vec<usize> = (0..waiting.len())
                    .filter(|&index| frozen.is_none_or(|(who, _)| who != waiting[index].0))
                    .collect();
                if !may_go.is_empty() {
                    let chosen = may_go[self.chance.below(may_go.len() as u64) as usize];
                    let _ = waiting.swap_remove(chosen).1.send(());
                }
            }
        }
    }
}

/// Numbers that a seed decides.
struct Chance(Cell<u64>);

impl Chance {
    fn below(&self, bound: u64) -> u64 {
        let (state, number) = split_mix(self.0.get());
        self.0.set(state);
        number % bound
    }
}

/// The real etcd and the real API for one process, which waits before and after each request, and is killed
/// when its steps are used up.
struct Stepped<'w> {
    world: &'w World,
    etcd: Rc<EtcdStore>,
    who: u64,
    left: Rc<Cell<u64>>,
    killed: Rc<Notify>,
}

impl Stepped<'_> {
    async fn step(&self) {
        self.world.gate.pass(self.who).await;
        if self.left.get() == 0 {
            self.killed.notify_one();
            pending::<()>().await;
        }
        self.left.set(self.left.get() - 1);
    }

    async fn between<T>(&self, request: impl Future<Output = T>) -> T {
        self.step().await;
        let answer = request.await;
        self.step().await;
        answer
    }
}

impl Kv for Stepped<'_> {
    type Watch = EtcdWatch;

    async fn connect(&self, until: Instant) -> Result<(), Failure> {
        self.etcd.connect(until).await
    }

    async fn txn(&self, txn: &Txn, until: Instant) -> Result<Reply, Failure> {
        self.between(self.etcd.txn(txn, until)).await
    }

    async fn grant(&self, lease: LeaseId, ttl: Duration, until: Instant) -> Result<Duration, Failure> {
        self.between(self.etcd.grant(lease, ttl, until)).await
    }

    async fn revoke(&self, lease: LeaseId, until: Instant) -> Result<(), Failure> {
        self.between(self.etcd.revoke(lease, until)).await
    }

    async fn lease_age(&self, lease: LeaseId, until: Instant) -> Result<Option<LeaseAge>, Failure> {
        self.between(self.etcd.lease_age(lease, until)).await
    }

    async fn watch(&self, keys: &[Bytes], until: Instant) -> Result<EtcdWatch, Failure> {
        self.between(self.etcd.watch(keys, until)).await
    }

    left_to_etcd!();
}

impl Api for Stepped<'_> {
    async fn cluster_uid(&self) -> Result<String, ApiError> {
        self.between(self.world.kubernetes.cluster_uid()).await
    }

    async fn pods(&self, which: PodFilter, see: &mut dyn FnMut(Pod)) -> Result<(), ApiError> {
        self.between(self.world.kubernetes.pods(which, see)).await
    }

    async fn nodes(&self, see: &mut dyn FnMut(Node)) -> Result<(), ApiError> {
        self.between(self.world.kubernetes.nodes(see)).await
    }

    async fn definitions(&self, see: &mut dyn FnMut(&str, &str, &str)) -> Result<(), ApiError> {
        self.between(self.world.kubernetes.definitions(see)).await
    }

    async fn claims(
        &self,
        namespace: Option<&str>,
        see: &mut dyn FnMut(&str),
    ) -> Result<ClaimList, ApiError> {
        self.between(self.world.kubernetes.claims(namespace, see)).await
    }

    async fn pod(&self, namespace: &str, name: &str) -> Result<Option<(Pod, Phase)>, ApiError> {
        self.between(self.world.kubernetes.pod(namespace, name)).await
    }
}
