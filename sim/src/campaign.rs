//! Many worlds, on all processors.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::mutant::{Guard, Kind, Mutant};
use crate::world::{self, Played, Setup, Theme};

/// A file system in memory: files cost least there.
const MEMORY: &str = "/dev/shm";

/// The worlds to play.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub seeds: u64,
    /// Operations in each.
    pub operations: u64,
    /// The kind of worlds; none: all kinds, mostly mixed.
    pub theme: Option<Theme>,
    /// The guard that is left out of the transactions.
    pub mutant: Option<Mutant>,
    /// The guard to strike at, left out or not.
    pub target: Option<Guard>,
    /// True if the guards that occur are collected.
    pub collects: bool,
    /// The number of worlds that are played at the same time.
    pub threads: usize,
    /// After so many violations the campaign ends.
    pub enough: usize,
}

/// The result of a campaign.
#[derive(Debug, Clone, Default)]
pub struct Sum {
    /// Worlds that were played to their end.
    pub seeds: u64,
    /// Operations that were begun.
    pub operations: u64,
    /// Transactions that were applied.
    pub transactions: u64,
    /// Faults, each with its count.
    pub faults: BTreeMap<&'static str, u64>,
    /// Outcomes of operations, each with its count.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The guards that occurred.
    pub guards: BTreeSet<Guard>,
    /// The violation of each seed that has one.
    pub violations: BTreeMap<u64, String>,
}

impl Sum {
    fn add(&mut self, seed: u64, played: Played) {
        self.seeds += 1;
        self.operations += played.operations;
        self.transactions += played.transactions;
        for (fault, count) in played.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (outcome, count) in played.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
        self.guards.extend(played.guards);
        if let Some(violation) = played.violation {
            self.violations.insert(seed, violation);
        }
    }
}

/// The kind of world that a seed has, unless a kind is given.
#[must_use]
pub fn theme_of(seed: u64) -> Theme {
    match seed % 19 {
        1 => Theme::Narrow,
        2 => Theme::Twins,
        3 => Theme::Crowd,
        4 => Theme::Slices,
        0 => Theme::Leases,
        5 => Theme::Full,
        6 => Theme::Emptied,
        7 => Theme::Hand,
        8 => Theme::Adopted,
        9 => Theme::Meta,
        10 => Theme::Pools,
        11 => Theme::First,
        12 => Theme::Cooling,
        13 => Theme::Rogue,
        14 => Theme::Holds,
        15 => Theme::Restored,
        16 => Theme::Sticky,
        17 => Theme::Dead,
        18 => Theme::Endpoints,
        _ => Theme::Mixed,
    }
}

impl Campaign {
    /// Plays all of it.
    #[must_use]
    pub fn run(&self) -> Sum {
        let next = AtomicU64::new(self.first);
        let sum = Mutex::new(Sum::default());
        thread::scope(|scope| {
            for number in 0..self.threads {
                let (next, sum) = (&next, &sum);
                scope.spawn(move || self.play_some(number, next, sum));
            }
        });
        sum.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn play_some(&self, number: usize, next: &AtomicU64, sum: &Mutex<Sum>) {
        let folder = Folder::new(number);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.first.saturating_add(self.seeds) {
                return;
            }
            let played = self.play(seed, &folder.0, false);
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            if sum.violations.len() >= self.enough {
                return;
            }
            sum.add(seed, played);
        }
    }

    /// Plays one world, once more or for the first time.
    #[must_use]
    pub fn replay(&self, seed: u64, traced: bool) -> Played {
        let folder = Folder::new(usize::MAX);
        self.play(seed, &folder.0, traced)
    }

    fn play(&self, seed: u64, folder: &Path, traced: bool) -> Played {
        let folder = folder.join(seed.to_string());
        let setup = Setup {
            seed,
            theme: self.theme.unwrap_or_else(|| theme_of(seed)),
            operations: self.operations,
            mutant: self.mutant.as_ref(),
            target: self.target,
            traced,
            collects: self.collects,
            folder: &folder,
        };
        let played = panic::catch_unwind(AssertUnwindSafe(|| world::play(setup)));
        // Most worlds make no files at all.
        let _ = fs::remove_dir_all(&folder);
        played.unwrap_or_else(|panic| Played {
            violation: Some(format!("panic: {}", words(&*panic))),
            ..Played::default()
        })
    }
}

/// A world in which the absence of a guard is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sighting {
    /// The kind of world.
    pub theme: Theme,
    /// Its seed.
    pub seed: u64,
    /// Whether it strikes at the guard.
    pub strikes: bool,
}

/// One line each, of what an earlier hunt has found: the guard, the kind of world, the seed, and `struck` if the world
/// strikes at the guard; the guard alone, if no world has noticed its absence. Other lines are left out.
#[must_use]
pub fn sightings(text: &str) -> BTreeMap<String, Option<Sighting>> {
    let sighting = |line: &str| {
        let mut words = line.split_whitespace();
        let guard = words.next()?.to_owned();
        let Some(theme) = words.next() else { return Some((guard, None)) };
        let (theme, seed) = (Theme::named(theme)?, words.next()?.parse().ok()?);
        Some((guard, Some(Sighting { theme, seed, strikes: words.next() == Some("struck") })))
    };
    text.lines().filter_map(sighting).collect()
}

/// A world that noticed the absence of a guard, and the violation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Noticed {
    /// The world.
    pub sighting: Sighting,
    /// What was violated.
    pub violation: String,
}

/// A guard, and where its absence was noticed.
pub type Hunted = (Guard, Option<Noticed>);

/// Leaves out one guard after the other: first where its absence is `known` to be noticed, then in up to `seeds` worlds
/// of every kind, until one notices it. One that is known to be noticed nowhere is not searched for.
#[must_use]
pub fn hunt(
    guards: &BTreeSet<Guard>,
    known: &BTreeMap<String, Option<Sighting>>,
    seeds: u64,
    operations: u64,
    threads: usize,
) -> Vec<Hunted> {
    let guards: Vec<Guard> = guards.iter().copied().collect();
    let next = AtomicUsize::new(0);
    let hunted = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..threads {
            let (guards, next, hunted) = (&guards, &next, &hunted);
            scope.spawn(move || {
                let folder = Folder::new(number);
                while let Some(guard) = guards.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let caught = match known.get(&guard.to_string()) {
                        Some(None) => None,
                        known => hunt_one(*guard, known.copied().flatten(), seeds, operations, &folder.0),
                    };
                    hunted.lock().unwrap_or_else(PoisonError::into_inner).push((*guard, caught));
                }
            });
        }
    });
    let mut hunted = hunted.into_inner().unwrap_or_else(PoisonError::into_inner);
    hunted.sort();
    hunted
}

/// The kinds of worlds that are most likely to notice that a guard is left out.
fn suits(guard: Guard) -> &'static [Theme] {
    match (guard.step, guard.kind, guard.class) {
        ("identity", ..) => &[Theme::Rogue],
        ("drop" | "signal", ..) => &[Theme::Dead, Theme::Crowd, Theme::Hand],
        ("hold", ..) | (_, _, "hold") => &[Theme::Holds],
        ("assign", _, "subject" | "seat" | "orphan") => &[Theme::Adopted],
        (_, _, "subject" | "seat" | "orphan") => &[Theme::Sticky],
        (_, Kind::Identity, "store") => &[Theme::Emptied],
        (_, Kind::Identity, _) => &[Theme::Twins],
        (_, Kind::Empty, _) => &[Theme::First],
        ("assign" | "pause" | "lead" | "step-down", ..) => &[Theme::Adopted],
        ("free-first", Kind::Lease, _) => &[Theme::Hand, Theme::Mixed, Theme::Full],
        ("add", Kind::Lease, _) => &[Theme::Leases],
        (_, Kind::Revoke | Kind::Lease, _) => &[Theme::Narrow, Theme::Mixed],
        ("forget", ..) => &[Theme::Restored],
        (_, Kind::NotOlder | Kind::Older, _) => &[Theme::Restored],
        // Without a meta to compare, after all keys were deleted.
        ("suspect", Kind::Mod, "meta") => &[Theme::Emptied],
        // These allocations have lost their meta.
        ("meta", Kind::Mod, _) => &[Theme::First, Theme::Meta],
        (_, _, "meta") => &[Theme::Meta],
        (_, _, "pool" | "pools") => &[Theme::Pools],
        (_, _, "cooling") => &[Theme::Cooling, Theme::Full, Theme::Crowd, Theme::Hand],
        (_, _, "summary") => &[Theme::Full, Theme::Hand],
        ("repair" | "clear", ..) => &[Theme::Hand, Theme::Full, Theme::Mixed],
        ("free-quick", ..) | (_, Kind::Put, _) => &[Theme::Hand, Theme::Crowd, Theme::Narrow],
        ("serve" | "batch", ..) => &[Theme::Crowd, Theme::Hand],
        _ => &[Theme::Hand, Theme::Mixed, Theme::Narrow, Theme::Crowd],
    }
}

/// Plays first worlds that do not aim at the guard, then worlds that strike at it. A violation counts only if the same
/// world is sound with the guard.
fn hunt_one(
    guard: Guard,
    known: Option<Sighting>,
    seeds: u64,
    operations: u64,
    folder: &Path,
) -> Option<Noticed> {
    let play = |sighting: Sighting, left_out: Option<Guard>| {
        let campaign = Campaign {
            first: sighting.seed,
            seeds: 1,
            operations,
            theme: Some(sighting.theme),
            mutant: left_out.map(Mutant),
            target: sighting.strikes.then_some(guard),
            collects: false,
            threads: 1,
            enough: 1,
        };
        campaign.play(sighting.seed, folder, false).violation
    };
    let of_seed = |strikes, seed| suits(guard).iter().map(move |&theme| Sighting { theme, seed, strikes });
    let all = [false, true]
        .into_iter()
        .flat_map(|strikes| (1..=seeds).flat_map(move |seed| of_seed(strikes, seed)));
    known.into_iter().chain(all).find_map(|sighting| {
        let violation = play(sighting, Some(guard))?;
        play(sighting, None).is_none().then_some(Noticed { sighting, violation })
    })
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// A folder for one thread's worlds, in memory where that can be had.
struct Folder(PathBuf);

impl Folder {
    fn new(number: usize) -> Self {
        let memory = PathBuf::from(MEMORY);
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        Self(parent.join(format!("metes-sim-{}-{number}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
