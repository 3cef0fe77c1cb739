//! The plan of a world: all that its seed decides before anything happens.

use std::net::IpAddr;
use std::time::Duration;

use metes_core::limits;
use metes_core::pool::choose::Order;
use metes_core::pool::range::RangeSpec;
use metes_core::pool::{Cooldown, CooldownTime, Held, Keep, NetworkName, Range, RangeSet, WhenFull};

use crate::chance::Chance;
use crate::store::LeaseRules;

metes_core::named_enum! {
    /// A kind of world. Most events happen in [`Theme::Mixed`]. Each of the others breaks something first, so that a
    /// guard which is otherwise the second one is the only one.
    pub enum Theme {
        /// A mix, as the seed decides.
        Mixed = "mixed",
        /// One node and a pod or two: retried sandboxes, DEL during ADD, late commits.
        Narrow = "narrow",
        /// Many runs at once on a small pool: queues, batches.
        Crowd = "crowd",
        /// Many runs at once, each of one of many ranges in one page, and nothing fails.
        Slices = "slices",
        /// Many runs die while they queue, and others come after them.
        Dead = "dead",
        /// Pages that are full but for a few addresses, with stray bits.
        Full = "full",
        /// Somebody writes to etcd with other tools.
        Hand = "hand",
        /// Meta changes while runs are under way.
        Meta = "meta",
        /// The very first commits into an empty prefix.
        First = "first",
        /// Two clusters under one name.
        Rogue = "rogue",
        /// Two machines under one node name, of one cluster or of two; disks that are copied; and marks of other etcds.
        Twins = "twins",
        /// All that the store holds is deleted while pods run.
        Emptied = "emptied",
        /// Addresses come from a pool, whose text changes all the time.
        Pools = "pools",
        /// An operator sets addresses aside, for a time or without an end, and ends that.
        Holds = "holds",
        /// Addresses outlive pods, whose names are used again.
        Sticky = "sticky",
        /// An etcd that lets leases live for long: with a long election timeout, many leases, or much to do.
        Leases = "leases",
        /// Freed addresses rest.
        Cooling = "cooling",
        /// The store goes back to a snapshot, and nodes that know more come back later than others.
        Restored = "restored",
        /// Addresses that pods use are assigned, after restores and from another plugin, and reconcilers take turns.
        Adopted = "adopted",
        /// Everybody's list of endpoints names an etcd that is another one, and looks like the others.
        Endpoints = "endpoints",
    }
}

/// A lease that outlives every tombstone of [`limits::TOMBSTONE_TTL`] that was put while it was new.
pub(crate) const LONG_LEASE: Duration =
    Duration::from_secs(limits::TOMBSTONE_TTL.as_secs() + limits::TOMBSTONE_STANDS.as_secs());

/// The number of ranges that share a page in [`Theme::Slices`].
const SLICES: u8 = 12;

/// A frequency, in 10,000 cases.
pub(crate) type Parts = u32;

/// The fates of requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Not sent: no endpoint can be reached.
    pub(crate) unreachable: Parts,
    /// Lost on its way to etcd.
    pub(crate) request_lost: Parts,
    /// Applied, and the answer is lost.
    pub(crate) answer_lost: Parts,
    /// Given up by its sender and applied later.
    pub(crate) late: Parts,
    /// Answered late.
    pub(crate) slow: Parts,
    /// Applied, and answered with "no space".
    pub(crate) space_late: Parts,
    /// A read answered by a member in the past.
    pub(crate) stale: Parts,
    /// A watch that shows nothing, or late, or that ends; or one on a member that is behind.
    pub(crate) watch: Parts,
    /// A request to Kubernetes that fails.
    pub(crate) api: Parts,
    /// A ticket of a newer program, whose request no head understands.
    pub(crate) newer_ticket: Parts,
}

/// The fates of processes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fates {
    pub(crate) crash: Parts,
    pub(crate) pause: Parts,
    /// Nobody waits for its answer any more.
    pub(crate) forsaken: Parts,
}

/// The events beside the processes, for each turn.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Events {
    pub(crate) new_leader: Parts,
    pub(crate) compaction: Parts,
    pub(crate) space: Parts,
    pub(crate) reboot: Parts,
    /// A node is put back to a snapshot of its memory.
    pub(crate) clock_back: Parts,
    pub(crate) suspend: Parts,
    pub(crate) node_lost: Parts,
    pub(crate) pause: Parts,
    /// A node's mark says that the store has gone back.
    pub(crate) mark: Parts,
    /// A writer of a newer version raises `min_writer`, and takes it back.
    pub(crate) newer: Parts,
    /// Somebody writes to etcd with other tools.
    pub(crate) hand: Parts,
    /// A long time passes at once.
    pub(crate) long_time: Parts,
    /// Leases are granted that are too long to fence an ADD.
    pub(crate) long_leases: Parts,
    /// A node's files are copied to its twin.
    pub(crate) copy: Parts,
    /// A node's mark is of another machine, and of another store.
    pub(crate) image: Parts,
    /// A node's mark is of the store behind another etcd.
    pub(crate) strangers: Parts,
    /// All keys are deleted.
    pub(crate) emptied: Parts,
    /// An operator changes the pool.
    pub(crate) pool: Parts,
    /// A snapshot of the store is taken, or the store goes back to the last one.
    pub(crate) restored: Parts,
}

/// One network configuration.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) cni_network: String,
    pub(crate) sets: Vec<RangeSet>,
    /// True if the sets are those of pools, of which not every range is open.
    pub(crate) is_pooled: bool,
    /// True if the pools say whom they are for.
    pub(crate) is_auto: bool,
    pub(crate) order: Order,
    pub(crate) cooldown: Cooldown,
    /// For how long its addresses stay with a pod's name; none: they end with the container.
    pub(crate) keep: Option<Keep>,
    /// May be asked for beside an address of each set, reserved.
    pub(crate) fixed: Option<Held>,
}

/// A world before anything happens in it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) theme: Theme,
    pub(crate) operations: u64,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) configs: Vec<Config>,
    /// About how many processes there are at once.
    pub(crate) width: usize,
    pub(crate) faults: Faults,
    pub(crate) fates: Fates,
    pub(crate) events: Events,
    /// One turn in so many lets a little time pass.
    pub(crate) pace: u64,
    pub(crate) grace_s: u64,
    /// The seconds that an orphan must have been seen.
    pub(crate) orphan_grace_s: u64,
    /// Passes of the reconciler in 100 operations, and GCs in 100.
    pub(crate) passes: u64,
    pub(crate) collections: u64,
    /// Sandboxes in 100 that request an address.
    pub(crate) requests: u64,
    /// Pages are full, except for addresses that the ranges hand out.
    pub(crate) full_pages: bool,
    /// The second reconciler is of another cluster.
    pub(crate) rogue: bool,
    /// The names that nodes share, two at a time.
    pub(crate) twins: Twins,
    /// The rules by which the store lets leases live longer.
    pub(crate) leases: LeaseRules,
    /// The number of endpoints in everybody's list.
    pub(crate) endpoints: usize,
}

/// The names that nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Twins {
    /// Not at all.
    None,
    /// A host file was copied.
    OfOneCluster,
    /// Their clusters share a store.
    OfTwoClusters,
    /// A disk was copied with its machine id, and the copy got a name of its own.
    OfOneMachine,
}

impl Twins {
    /// True if two nodes have one name.
    pub(crate) fn share_a_name(self) -> bool {
        matches!(self, Twins::OfOneCluster | Twins::OfTwoClusters)
    }
}

impl Plan {
    /// True if addresses of its networks outlive their pods.
    pub(crate) fn is_sticky(&self) -> bool {
        self.configs.iter().any(|config| config.keep.is_some())
    }

    pub(crate) fn new(theme: Theme, operations: u64, chance: &Chance) -> Self {
        let rough = [0, 1, 1, 2, 3][chance.index(5)];
        let mut plan = Self {
            theme,
            operations,
            nodes: chance.between(1, 4) as usize,
            pods: chance.between(2, 14) as usize,
            configs: Vec::new(),
            width: chance.between(1, 10) as usize,
            faults: faults(rough, chance),
            fates: Fates { crash: 150 * rough, pause: 150 * rough, forsaken: 200 * rough },
            events: events(rough, chance),
            pace: *chance.pick(&[4, 8, 16, 32]),
            grace_s: *chance.pick(&[0, 2, 300]),
            orphan_grace_s: *chance.pick(&[0, 0, 20]),
            passes: chance.below(8),
            collections: chance.below(6),
            requests: *chance.pick(&[0, 5, 30]),
            full_pages: chance.one_in(8),
            rogue: false,
            twins: Twins::None,
            leases: LeaseRules::default(),
            endpoints: 1,
        };
        plan.suit(theme, chance);
        plan.configs = configs(&plan, chance);
        plan
    }

    /// The time after its start by which an ADD has committed, if no new leader prolongs its lease: its deadline, and
    /// the life of a lease that was granted by then.
    pub(crate) fn fenced(&self) -> Duration {
        let life = self.leases.granted(limits::FENCE_TTL) + self.leases.late;
        limits::ADD_DEADLINE + life + Duration::from_secs(1)
    }

    /// Changes the plan to suit its kind of world.
    fn suit(&mut self, theme: Theme, chance: &Chance) {
        match theme {
            Theme::Mixed => {}
            Theme::Narrow => {
                self.nodes = 1;
                self.pods = chance.between(1, 3) as usize;
                self.faults = faults(3, chance);
                self.faults.late = *chance.pick(&[300, 2_500]);
                self.width = chance.between(2, 5) as usize;
                self.fates = Fates { crash: 600, pause: 900, forsaken: 600 };
                self.events.long_time = 60;
                self.events.space = 15;
                self.passes = 2;
            }
            Theme::Leases => {
                self.nodes = chance.between(1, 2) as usize;
                self.pods = chance.between(1, 3) as usize;
                self.faults = faults(2, chance);
                self.faults.late = 2_500;
                self.width = chance.between(2, 6) as usize;
                self.fates = Fates { crash: 600, pause: 600, forsaken: 900 };
                self.events.long_time = 100;
                self.events.new_leader = *chance.pick(&[0, 10, 40]);
                self.events.long_leases = *chance.pick(&[0, 100]);
                self.passes = 1;
                self.leases = leases(chance);
            }
            Theme::Crowd => {
                self.nodes = chance.between(1, 3) as usize;
                self.width = *chance.pick(&[10, 10, 24]);
                self.pods = self.width + 2;
                self.faults = faults(2, chance);
                self.fates = Fates { crash: 500, pause: 1_200, forsaken: 100 };
                self.full_pages = false;
            }
            Theme::Slices => {
                self.nodes = 4;
                self.width = 24;
                self.pods = self.width + 2;
                (self.faults, self.fates, self.events) = Default::default();
                self.full_pages = false;
                (self.passes, self.collections, self.requests) = (0, 0, 0);
            }
            Theme::Dead => {
                self.nodes = chance.between(1, 4) as usize;
                self.operations = self.operations.min(30);
                self.width = *chance.pick(&[4, 16]);
                (self.faults, self.fates, self.events) = Default::default();
                self.full_pages = false;
                (self.passes, self.collections, self.pace) = (0, 0, 64);
            }
            Theme::Full => {
                self.full_pages = true;
                self.events.hand = 300;
                self.requests = 10;
                self.faults = faults(1, chance);
                self.passes = 10;
                self.width = chance.between(3, 8) as usize;
            }
            Theme::Hand => {
                self.events.hand = *chance.pick(&[200, 1_500]);
                self.events.space = 40;
                self.full_pages = chance.one_in(3);
                self.fates.pause = 600;
                self.pods = chance.between(4, 12) as usize;
                self.passes = 6;
                self.width = chance.between(2, 6) as usize;
                self.requests = 30;
            }
            Theme::Meta => {
                self.events.pause = 40;
                self.events.mark = 20;
                self.events.newer = 30;
                self.events.hand = 200;
                self.passes = 8;
                self.width = chance.between(2, 8) as usize;
            }
            Theme::First => {
                self.operations = self.operations.min(20);
                self.events.hand = 2_000;
                self.faults = faults(1, chance);
                self.width = chance.between(2, 6) as usize;
            }
            Theme::Rogue => {
                self.rogue = true;
                self.operations = self.operations.min(60);
                self.passes = 30;
            }
            Theme::Twins => {
                self.twins = *chance.pick(&[Twins::OfOneCluster, Twins::OfTwoClusters, Twins::OfOneMachine]);
                self.nodes = *chance.pick(&[2, 4]);
                self.pods = chance.between(2, 8) as usize;
                self.faults = Faults { unreachable: *chance.pick(&[0, 600]), ..faults(1, chance) };
                self.collections = 12;
                self.grace_s = 0;
                self.passes = 2;
                self.events.mark = 0;
                self.events.reboot = 60;
                self.events.copy = 200;
                self.events.image = 30;
                self.events.strangers = *chance.pick(&[0, 30]);
            }
            Theme::Adopted => {
                self.faults = faults(1, chance);
                self.events.mark = 5;
                self.full_pages = chance.one_in(2);
                self.passes = 4;
                self.width = chance.between(3, 8) as usize;
                self.fates.pause = 600;
            }
            Theme::Pools => {
                self.faults = faults(1, chance);
                self.events.pool = *chance.pick(&[30, 150]);
                // Often so many that they queue, and that heads serve others.
                self.width = *chance.pick(&[4, 10, 16]);
                self.pods = self.width + 2;
                self.full_pages = false;
                self.passes = 4;
            }
            Theme::Holds => {
                self.faults = faults(1, chance);
                self.pods = chance.between(4, 8) as usize;
                self.width = chance.between(3, 8) as usize;
                self.requests = 30;
                self.passes = 15;
                self.full_pages = chance.one_in(2);
                self.events.pause = *chance.pick(&[0, 40]);
                self.events.long_time = 60;
            }
            Theme::Sticky => {
                self.nodes = chance.between(1, 3) as usize;
                self.faults = faults(*chance.pick(&[0, 1, 2]), chance);
                self.pods = chance.between(3, 9) as usize;
                self.width = *chance.pick(&[3, 6, 10]);
                self.events.long_time = *chance.pick(&[60, 300]);
                self.events.space = *chance.pick(&[0, 10]);
                self.full_pages = chance.one_in(4);
                self.requests = *chance.pick(&[0, 5]);
                self.passes = 15;
            }
            Theme::Cooling => {
                self.faults = faults(*chance.pick(&[0, 1, 2]), chance);
                self.events.long_time = *chance.pick(&[20, 60]);
                self.events.space = *chance.pick(&[0, 15]);
                self.full_pages = chance.one_in(2);
                self.requests = 20;
                self.collections = 10;
                self.grace_s = 0;
                self.passes = 8;
            }
            Theme::Restored => {
                self.nodes = chance.between(2, 4) as usize;
                self.faults = faults(*chance.pick(&[0, 1]), chance);
                self.faults.stale = 0;
                self.events.mark = 0;
                self.events.reboot = 0;
                self.events.pause = 0;
                self.events.space = 0;
                self.events.restored = *chance.pick(&[8, 30]);
                self.full_pages = false;
                self.passes = 2;
            }
            Theme::Endpoints => {
                self.endpoints = *chance.pick(&[2, 3, 3]);
                self.nodes = chance.between(2, 4) as usize;
                self.operations = self.operations.min(60);
                self.faults = faults(*chance.pick(&[0, 1]), chance);
                self.events = Events::default();
                self.full_pages = false;
                (self.passes, self.collections) = (2, 20);
            }
            Theme::Emptied => {
                self.faults = faults(1, chance);
                self.events.mark = 0;
                self.events.reboot = 0;
                self.events.pause = 0;
                self.events.emptied = 12;
                self.full_pages = false;
            }
        }
    }
}

fn faults(rough: u32, chance: &Chance) -> Faults {
    let some = |most: u32| if rough == 0 { 0 } else { chance.below(u64::from(most * rough) + 1) as u32 };
    Faults {
        unreachable: some(60),
        request_lost: some(100),
        answer_lost: some(150),
        late: some(150),
        slow: some(100),
        space_late: if chance.one_in(4) { some(40) } else { 0 },
        stale: if chance.one_in(4) { some(60) } else { 0 },
        watch: some(500),
        api: some(150),
        newer_ticket: some(300),
    }
}

fn events(rough: u32, chance: &Chance) -> Events {
    let often = |parts: u32, one_in: u64| if rough > 0 && chance.one_in(one_in) { parts } else { 0 };
    Events {
        new_leader: often(4, 3),
        compaction: often(20, 3),
        space: often(6, 4),
        reboot: often(3, 3),
        clock_back: often(6, 3),
        suspend: often(5, 4),
        node_lost: often(6, 3),
        pause: often(3, 8),
        mark: often(2, 10),
        newer: 0,
        hand: 0,
        long_time: often(10, 2),
        long_leases: 0,
        copy: 0,
        image: 0,
        strangers: 0,
        emptied: 0,
        pool: 0,
        restored: 0,
    }
}

/// Rules that prolong leases by as much as [`limits::LEASES`] allows.
fn leases(chance: &Chance) -> LeaseRules {
    let election_timeout = Duration::from_secs(*chance.pick(&[1, 1, 20, 50]));
    let (others, late) = *chance.pick(&[
        (0, Duration::from_secs(5)),
        (limits::LEASES, Duration::from_secs(1)),
        (limits::LEASES / 4, Duration::from_secs(1)),
        (0, Duration::from_secs(limits::LEASES / limits::LEASES_REVOKED)),
    ]);
    LeaseRules { election_timeout, others, late, ..LeaseRules::default() }
}

/// Pools are tiny, so that they are full at times, and addresses are used again soon.
fn configs(plan: &Plan, chance: &Chance) -> Vec<Config> {
    let size = chance.between(2, if plan.width > 12 { 40 } else { 12 }) as u8;
    let order = |chance: &Chance| match plan.theme {
        // The queue does not depend on the node.
        Theme::Dead => *chance.pick(&[Order::Lowest, Order::Next]),
        _ => *chance.pick(&[&[Order::Lowest], &Order::ALL[..]].concat()),
    };
    let default = NetworkName::default();
    let blue = NetworkName::configured("blue").expect("a plain name");
    let small = range_set(&[(&default, "10.0.0.0/24", "10.0.0.1".into(), format!("10.0.0.{size}"))]);
    let overlapping = range_set(&[(
        &default,
        "10.0.0.0/16",
        format!("10.0.0.{}", size / 2 + 1),
        format!("10.0.0.{}", size / 2 + 4),
    )]);
    let v6 = range_set(&[(&default, "fd00::/120", "fd00::1".into(), format!("fd00::{size:x}"))]);
    // Two pages.
    let wide = range_set(&[(
        &blue,
        "10.9.0.0/16",
        format!("10.9.15.{}", 256 - u16::from(size / 2 + 1)),
        format!("10.9.16.{}", size / 2),
    )]);
    let two_ranges = range_set(&[
        (&default, "10.0.0.0/24", "10.0.0.1".into(), "10.0.0.2".into()),
        (&default, "10.7.0.0/24", "10.7.0.1".into(), format!("10.7.0.{}", size / 2 + 1)),
    ]);
    let fixed = |address: &str| Held::new(parse(address), Some(default.clone()));
    let config = |cni_network: &str, sets: Vec<RangeSet>, order: Order| Config {
        cni_network: cni_network.into(),
        sets,
        is_pooled: false,
        is_auto: false,
        order,
        cooldown: Cooldown::default(),
        keep: None,
        fixed: None,
    };
    let mut configs = vec![
        config("one", vec![small.clone()], order(chance)),
        config("two", vec![overlapping], order(chance)),
        config("dual", vec![small, v6], order(chance)),
        config(
            "wide",
            vec![wide],
            if plan.theme == Theme::Dead { Order::Next } else { *chance.pick(&[Order::Next, Order::Spread]) },
        ),
        Config {
            fixed: Some(fixed("10.0.0.1")),
            ..config("ranges", vec![two_ranges.clone()], order(chance))
        },
    ];
    if plan.theme == Theme::Slices {
        let slice = |at: u8| {
            let (subnet, name) = (format!("10.0.0.{at}/28"), format!("slice-{at}"));
            let (first, last) = (format!("10.0.0.{}", at + 1), format!("10.0.0.{}", at + 4));
            config(&name, vec![range_set(&[(&default, &subnet, first, last)])], order(chance))
        };
        return (0..SLICES).map(|at| slice(at * 16)).collect();
    }
    if plan.theme == Theme::Pools {
        let pooled = |cni_network: &str, is_auto: bool| {
            let config = config(cni_network, vec![two_ranges.clone()], order(chance));
            Config { is_pooled: true, is_auto, ..config }
        };
        configs.truncate(1);
        configs.extend([pooled("pooled", false), pooled("chosen", true)]);
        return configs;
    }
    let kept = if plan.theme == Theme::Narrow { 2 } else { chance.between(1, 5) as usize };
    while configs.len() > kept {
        configs.remove(chance.index(configs.len()));
    }
    let is_sticky = match plan.theme {
        Theme::Sticky => true,
        Theme::Adopted => chance.one_in(2),
        _ => false,
    };
    if is_sticky {
        let keep = *chance.pick(&[Keep::Seconds(5), Keep::Seconds(60), Keep::Seconds(7_000), Keep::Forever]);
        configs.iter_mut().for_each(|config| config.keep = Some(keep));
        if chance.one_in(3) {
            let time = CooldownTime::of_seconds(10);
            configs.iter_mut().for_each(|config| config.cooldown = Cooldown { time, ..config.cooldown });
        }
    }
    if plan.theme == Theme::Cooling {
        for config in &mut configs {
            let time = CooldownTime::of_seconds(*chance.pick(&[2, 10, 60]));
            config.cooldown = Cooldown { time, when_full: *chance.pick(&WhenFull::ALL) };
        }
    }
    configs
}

/// One set of ranges: network, subnet, first, last.
fn range_set(ranges: &[(&NetworkName, &str, String, String)]) -> RangeSet {
    let range = |(network, subnet, first, last): &(&NetworkName, &str, String, String)| {
        let spec = RangeSpec {
            network: (*network).clone(),
            subnet: subnet.parse().expect("a prefix"),
            first: parse(first),
            last: parse(last),
            excludes: Vec::new(),
            never: Vec::new(),
            gateway: None,
        };
        Range::new(spec).expect("a range")
    };
    RangeSet::new(ranges.iter().map(range).collect()).expect("a set")
}

fn parse(address: &str) -> IpAddr {
    address.parse().expect("an address")
}
