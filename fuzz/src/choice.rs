//! The allocator against a model that walks over every address of ranges small enough for that.
//!
//! The model knows what the configuration says ([`RangeSpec`]) and what is held, as sets of addresses; nothing of
//! pages, spans or summaries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use metes_core::pool::choose;
use metes_core::pool::{
    Addr, Bits, Choice, Need, NetworkName, Page, Range, RangeSet, RangeSpec, Refusal, Standing, Start,
    Summary, View, Wish, spread_start,
};

use super::dice::Dice;

/// A choice among this many sets needs fewer rounds of reading.
const STEPS: usize = 64;
const PAGE: u128 = 4096;
const NETWORKS: [&str; 3] = ["default", "blue", "blue@00000000000000000000ffff0a000000-24"];

/// Where the ranges lie: at a boundary of pages or of summaries, where families end, and where a subnet ends.
const BASES: [(u128, u8); 6] = [
    (0xffff_0a00_0fc0, 8),
    (0xffff_0aff_ff80, 0),
    (0xffff_ffff_ff00, 0),
    (0xffff_0000_0000, 0),
    (0xfd00_0000_0000_0000_0000_0000_00ff_ff80, 48),
    (0xffff_ffff_ffff_ffff_ffff_ffff_ffff_ff00, 0),
];

pub(super) fn choice(data: &[u8]) {
    let mut dice = Dice::new(data);
    let (base, prefix) = dice.pick(&BASES);
    let ground = Ground { base, prefix };
    // A short input has no bytes left for what is decided last, so its ranges may be plain ones.
    let drafts = dice.some(3, |dice| Draft {
        start: ground.start(dice),
        request: dice.once_in(4).then(|| ground.address(dice)),
        specs: ground.set(dice),
    });
    let held = ground.held(&mut dice, &drafts);
    check(&drafts, &held);
}

/// The last address of the family that `base` is of.
fn family_end(base: u128) -> u128 {
    if base >> 32 == 0xffff { 0xffff_ffff_ffff } else { u128::MAX }
}

#[derive(Debug)]
struct Draft {
    specs: Vec<RangeSpec>,
    start: Start,
    request: Option<Addr>,
}

/// Addresses of a network, which goes by its position in [`NETWORKS`].
#[derive(Debug, Clone, Copy)]
struct Run {
    network: usize,
    first: Addr,
    last: Addr,
}

/// The state of the store. It may have stray bits, without a reservation.
#[derive(Debug, Default)]
struct Held {
    reserved: Vec<Run>,
    stray_bits: Vec<Run>,
    /// Addresses that are free although a run of held ones covers them.
    gaps: Vec<(usize, Addr)>,
}

impl Held {
    fn is_reserved(&self, one: (usize, Addr)) -> bool {
        is_in(&self.reserved, one) && !self.gaps.contains(&one)
    }

    fn has_bit(&self, one: (usize, Addr)) -> bool {
        self.is_reserved(one) || is_in(&self.stray_bits, one) && !self.gaps.contains(&one)
    }

    fn page(&self, network: usize, page: Page) -> Bits {
        let mut bits = Bits::empty();
        for run in self.runs(network) {
            let (first, last) = (run.first.max(page.first()), run.last.min(page.last()));
            (first.0..=last.0).for_each(|address| bits.set(Addr(address).bit()));
        }
        let gaps = self.gaps.iter().filter(|(of, gap)| *of == network && gap.page() == page);
        gaps.for_each(|(_, gap)| bits.clear(gap.bit()));
        bits
    }

    fn summary(&self, network: usize, summary: Summary) -> Bits {
        let pages = self.runs(network).flat_map(|run| run.first.page().0..=run.last.page().0).map(Page);
        let mut full = Bits::empty();
        for page in pages.filter(|page| page.summary() == summary) {
            if self.page(network, page).is_full() {
                full.set(page.bit());
            }
        }
        full
    }

    fn runs(&self, network: usize) -> impl Iterator<Item = &Run> {
        self.reserved.iter().chain(&self.stray_bits).filter(move |run| run.network == network)
    }
}

fn is_in(runs: &[Run], (network, address): (usize, Addr)) -> bool {
    runs.iter().any(|run| run.network == network && run.first <= address && address <= run.last)
}

fn number_of(network: &NetworkName) -> usize {
    NETWORKS.iter().position(|name| *name == network.as_str()).expect("one of the networks")
}

/// The addresses that a case is about: 256 on each of a few pages.
#[derive(Clone, Copy)]
struct Ground {
    base: u128,
    prefix: u8,
}

impl Ground {
    fn address(self, dice: &mut Dice<'_>) -> Addr {
        let window = self.window(dice);
        self.within(window, dice.byte())
    }

    fn window(self, dice: &mut Dice<'_>) -> u128 {
        self.base.saturating_add(PAGE * u128::from(dice.below(4)))
    }

    fn within(self, window: u128, at: u8) -> Addr {
        Addr(window.saturating_add(at.into()).min(family_end(self.base)))
    }

    fn network(dice: &mut Dice<'_>) -> usize {
        dice.below(NETWORKS.len() as u32) as usize
    }

    fn set(self, dice: &mut Dice<'_>) -> Vec<RangeSpec> {
        let first = self.range(dice);
        let mut set = vec![first];
        set.extend(dice.some(2, |dice| self.range(dice)));
        set
    }

    fn range(self, dice: &mut Dice<'_>) -> RangeSpec {
        let window = self.window(dice);
        let (one, other) = (self.within(window, dice.byte()), self.within(window, dice.byte()));
        let exclude = |dice: &mut Dice<'_>| {
            let ip = self.within(window, dice.byte()).ip();
            let bits = if ip.is_ipv4() { 32 } else { 128 };
            IpNetwork::new(ip, bits - dice.below(9) as u8).expect("a prefix")
        };
        RangeSpec {
            network: NetworkName::stored(NETWORKS[Self::network(dice)]).expect("a network"),
            subnet: IpNetwork::new(Addr(self.base).ip(), self.prefix).expect("a prefix"),
            first: one.min(other).ip(),
            last: one.max(other).ip(),
            excludes: dice.some(3, exclude),
            never: dice.some(2, |dice| self.within(window, dice.byte()).ip()),
            gateway: None,
        }
    }

    fn start(self, dice: &mut Dice<'_>) -> Start {
        match dice.below(4) {
            0 => Start::Lowest,
            1 => Start::At(self.address(dice)),
            2 => Start::After(self.address(dice)),
            // The cursor is from a time when the set had other ranges.
            _ => Start::After(Addr(dice.number().into())),
        }
    }

    /// Runs of addresses, whole pages, single bits, and all but a few of what may be handed out.
    fn held(self, dice: &mut Dice<'_>, drafts: &[Draft]) -> Held {
        let mut held = Held::default();
        for _ in 0..dice.below(6) {
            let (network, from) = (Self::network(dice), self.address(dice));
            let (first, last) = match dice.below(3) {
                0 => (from, self.within(from.0, dice.byte())),
                1 => (from, from),
                _ => (from.page().first(), from.page().last()),
            };
            let runs = if dice.once_in(4) { &mut held.stray_bits } else { &mut held.reserved };
            runs.push(Run { network, first, last });
        }
        if dice.once_in(3) {
            let all = drafts.iter().flat_map(|draft| &draft.specs).map(|spec| Run {
                network: number_of(&spec.network),
                first: spec.first.into(),
                last: spec.last.into(),
            });
            held.stray_bits.extend(all);
        }
        held.gaps = dice.some(4, |dice| (Self::network(dice), self.address(dice)));
        held
    }
}

fn bounds(spec: &RangeSpec) -> impl Iterator<Item = Addr> + use<> {
    (Addr::from(spec.first).0..=Addr::from(spec.last).0).map(Addr)
}

fn check(drafts: &[Draft], held: &Held) {
    let mut sets = Vec::new();
    for draft in drafts {
        let ranges = draft.specs.iter().map(|spec| Range::new(spec.clone()));
        // The model leaves out IPv6 subnets where IPv4 is kept.
        let Ok(ranges) = ranges.collect::<Result<Vec<_>, _>>() else { return };
        sets.push(RangeSet::new(ranges).expect("of one family"));
    }
    let wish = |(set, draft): (_, &Draft)| Wish { set, start: draft.start, request: draft.request };
    let wishes: Vec<Wish<'_>> = sets.iter().zip(drafts).map(wish).collect();
    let expected = model(drafts, held);
    assert_eq!(outcome(&wishes, held), expected, "{drafts:#?}");
    for (set, draft) in sets.iter().zip(drafts) {
        check_set(set, &draft.specs);
    }
}

/// The outcome of a choice, without the order of its steps.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Chosen(Vec<(usize, Addr)>),
    Full(usize),
    Refused(usize, bool),
}

/// Asks the allocator, and answers its questions, until it has decided.
fn outcome(wishes: &[Wish<'_>], held: &Held) -> Outcome {
    let mut view = View::default();
    for _ in 0..STEPS {
        match choose(wishes, &view) {
            Choice::Chosen(picks) => {
                assert!(picks.iter().enumerate().all(|(at, pick)| pick.set == at), "{picks:?}");
                check_known(&picks, &view);
                let picked = picks.iter().map(|pick| (number_of(&pick.network), pick.address));
                return Outcome::Chosen(picked.collect());
            }
            Choice::Full { set } => return Outcome::Full(set),
            Choice::Refused { set, why, .. } => return Outcome::Refused(set, why == Refusal::Taken),
            Choice::Need(needs) => {
                assert!((1..=16).contains(&needs.len()), "{needs:?}");
                for need in &needs {
                    assert!(!view.knows(need), "asked for twice: {need:?}");
                    answer(&mut view, need, held);
                }
            }
        }
    }
    panic!("no decision in {STEPS} steps");
}

/// A commit of a choice writes its pages, and a summary where one of them becomes full. So all of these must be known.
fn check_known(picks: &[metes_core::pool::Pick], view: &View) {
    let mut after: BTreeMap<(NetworkName, Page), Bits> = BTreeMap::new();
    for pick in picks {
        let page = pick.address.page();
        let before = view.page(&pick.network, page).expect("the page of a pick is known");
        let bits = after.entry((pick.network.clone(), page)).or_insert_with(|| before.clone());
        bits.set(pick.address.bit());
    }
    for ((network, page), bits) in after {
        let was_full = view.page(&network, page).is_some_and(Bits::is_full);
        if bits.is_full() && !was_full {
            assert!(view.summary(&network, page.summary()).is_some(), "a summary that must be written");
        }
    }
}

fn answer(view: &mut View, need: &Need, held: &Held) {
    match need {
        Need::Page(network, page) => view.set_page(network, *page, held.page(number_of(network), *page)),
        Need::Summary(network, summary) => {
            view.set_summary(network, *summary, held.summary(number_of(network), *summary));
        }
        Need::Reservation(network, address) => {
            view.set_held(network, *address, held.is_reserved((number_of(network), *address)));
        }
    }
}

/// The addresses that the configuration lets be handed out, by its words alone.
fn is_assignable(spec: &RangeSpec, address: Addr) -> bool {
    let ip = address.ip();
    let is_between = Addr::from(spec.first) <= address && address <= Addr::from(spec.last);
    is_between
        && ip.is_ipv4() == spec.subnet.is_ipv4()
        && !spec.excludes.iter().any(|exclude| exclude.contains(ip))
        && !spec.never.contains(&ip)
}

fn covers(spec: &RangeSpec, address: Addr) -> bool {
    spec.subnet.contains(address.ip())
}

fn is_inside(spec: &RangeSpec, address: Addr) -> bool {
    covers(spec, address) && Addr::from(spec.first) <= address && address <= Addr::from(spec.last)
}

/// The range that an address belongs to: one that hands it out, else one that has it between its bounds, else one
/// whose subnet it is in.
fn home(specs: &[RangeSpec], address: Addr) -> Option<usize> {
    let find = |fits: fn(&RangeSpec, Addr) -> bool| specs.iter().position(|spec| fits(spec, address));
    find(is_assignable).or_else(|| find(is_inside)).or_else(|| find(covers))
}

/// Every address that a set may hand out, in the order in which they are tried.
fn candidates(draft: &Draft) -> Vec<(usize, Addr)> {
    let ranges = draft.specs.iter().enumerate();
    let all: Vec<(usize, Addr)> =
        ranges.flat_map(|(at, spec)| bounds(spec).map(move |address| (at, address))).collect();
    let cursor = match draft.start {
        Start::Lowest => None,
        Start::At(address) => home(&draft.specs, address).map(|at| (at, address, false)),
        Start::After(address) => home(&draft.specs, address).map(|at| (at, address, true)),
    };
    let begins = cursor.map_or(0, |(at, address, after)| {
        all.iter().filter(|one| **one < (at, address) || after && **one == (at, address)).count()
    });
    let (before, from) = all.split_at(begins);
    let in_turn = from.iter().chain(before);
    let assignable = in_turn.filter(|(at, address)| is_assignable(&draft.specs[*at], *address));
    assignable.map(|(at, address)| (number_of(&draft.specs[*at].network), *address)).collect()
}

fn model(drafts: &[Draft], held: &Held) -> Outcome {
    let requests = || drafts.iter().enumerate().filter_map(|(set, draft)| Some((set, draft, draft.request?)));
    for (set, draft, address) in requests() {
        if !draft.specs.iter().any(|spec| is_assignable(spec, address)) {
            return Outcome::Refused(set, false);
        }
    }
    let mut given: BTreeSet<(usize, Addr)> = BTreeSet::new();
    let mut chosen: BTreeMap<usize, (usize, Addr)> = BTreeMap::new();
    for (set, draft, address) in requests() {
        let at = home(&draft.specs, address).expect("it can be handed out");
        let one = (number_of(&draft.specs[at].network), address);
        if held.is_reserved(one) || !given.insert(one) {
            return Outcome::Refused(set, true);
        }
        chosen.insert(set, one);
    }
    for (set, draft) in drafts.iter().enumerate().filter(|(_, draft)| draft.request.is_none()) {
        let mut free = candidates(draft).into_iter();
        let Some(one) = free.find(|one| !held.has_bit(*one) && !given.contains(one)) else {
            return Outcome::Full(set);
        };
        given.insert(one);
        chosen.insert(set, one);
    }
    Outcome::Chosen(chosen.into_values().collect())
}

/// Checks the standing of each address in a set, and the address at which a node that spreads begins.
fn check_set(set: &RangeSet, specs: &[RangeSpec]) {
    let any = specs.iter().any(|spec| bounds(spec).any(|address| is_assignable(spec, address)));
    for seed in [0, 1, u64::MAX] {
        let start = spread_start(set, seed);
        assert!(!any || specs.iter().any(|spec| is_assignable(spec, start)), "{start} of {specs:#?}");
    }
    for address in specs.iter().flat_map(bounds) {
        let may = specs.iter().any(|spec| is_assignable(spec, address));
        assert_eq!(set.standing(address) == Standing::Assignable, may, "{address} of {specs:#?}");
    }
    let size: u128 = (specs.iter())
        .map(|spec| bounds(spec).filter(|address| is_assignable(spec, *address)).count() as u128)
        .sum();
    assert_eq!(set.size(), size, "{specs:#?}");
    let ends: [IpAddr; 2] = [specs[0].first, specs[0].last];
    assert!(ends.iter().all(|end| set.covers(Addr::from(*end)).is_some()));
}
