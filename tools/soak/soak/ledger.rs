//! The holders of each address and their times, as the callers know them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// An address of a network.
type Place = (&'static str, String);

/// The record of all callers. A caller writes to it before a call that may free an address, and after an ADD.
#[derive(Debug)]
pub(super) struct Ledger {
    start: Instant,
    held: BTreeMap<Place, (String, Duration)>,
    past: Vec<Interval>,
    /// The number of ADDs' answers with an address that another one held.
    doubles: usize,
    /// The attachments of a node in a network that a runtime would call valid.
    valid: BTreeMap<(usize, usize), BTreeSet<String>>,
    /// The attachments that nobody deletes before a GC or the end.
    forgotten: BTreeMap<(usize, usize), BTreeSet<String>>,
}

#[derive(Clone, Debug)]
struct Interval {
    place: Place,
    owner: String,
    from: Duration,
    to: Duration,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            held: BTreeMap::new(),
            past: Vec::new(),
            doubles: 0,
            valid: BTreeMap::new(),
            forgotten: BTreeMap::new(),
        }
    }

    /// An attachment is about to be made.
    pub(super) fn begins(&mut self, at: (usize, usize), owner: &str) {
        self.valid.entry(at).or_default().insert(owner.to_owned());
    }

    /// Takes the answer of an ADD. Returns its fault, if it has one.
    pub(super) fn answered(
        &mut self,
        network: &'static str,
        owner: &str,
        addresses: &[String],
    ) -> Option<String> {
        let now = self.start.elapsed();
        let before = self.of(owner);
        let places: Vec<Place> = addresses.iter().map(|address| (network, address.clone())).collect();
        if !before.is_empty() {
            let same = before.iter().all(|place| places.contains(place)) && before.len() == places.len();
            return (!same).then(|| format!("{owner} held {before:?} and was answered {places:?}"));
        }
        let mut wrong = None;
        for place in places {
            if let Some((other, from)) = self.held.get(&place) {
                wrong = Some(format!(
                    "{place:?} was given to {owner} at {now:?}, and {other} holds it since {from:?}"
                ));
                self.doubles += 1;
                continue;
            }
            self.held.insert(place, (owner.to_owned(), now));
        }
        wrong
    }

    /// From now on its addresses may be given to others.
    pub(super) fn closes(&mut self, owner: &str) {
        let to = self.start.elapsed();
        for place in self.of(owner) {
            let (owner, from) = self.held.remove(&place).expect("it was just found");
            self.past.push(Interval { place, owner, from, to });
        }
    }

    /// It is deleted.
    pub(super) fn is_gone(&mut self, at: (usize, usize), owner: &str) {
        self.valid.entry(at).or_default().remove(owner);
    }

    /// Its caller has forgotten it: it keeps its addresses until a GC.
    pub(super) fn is_forgotten(&mut self, at: (usize, usize), owner: &str) {
        self.is_gone(at, owner);
        self.forgotten.entry(at).or_default().insert(owner.to_owned());
    }

    /// A GC begins: what was forgotten may be freed from now on. Returns the attachments that are valid.
    pub(super) fn collects(&mut self, at: (usize, usize)) -> Vec<String> {
        let forgotten = self.forgotten.get(&at).cloned().unwrap_or_default();
        forgotten.iter().for_each(|owner| self.closes(owner));
        self.valid.get(&at).into_iter().flatten().cloned().collect()
    }

    /// The attachments that nobody has deleted yet. The caller of this deletes them, so none is returned twice.
    pub(super) fn take_forgotten(&mut self) -> Vec<((usize, usize), String)> {
        let forgotten = std::mem::take(&mut self.forgotten);
        forgotten
            .into_iter()
            .flat_map(|(at, owners)| owners.into_iter().map(move |owner| (at, owner)))
            .collect()
    }

    /// The number of owners that hold something in a network.
    pub(super) fn owners_in(&self, network: &str) -> usize {
        let here = self.held.iter().filter(|((of, _), _)| *of == network);
        here.map(|(_, (owner, _))| owner).collect::<BTreeSet<_>>().len()
    }

    pub(super) fn count(&self) -> usize {
        self.past.len() + self.held.len()
    }

    pub(super) fn doubles(&self) -> usize {
        self.doubles
    }

    /// Intervals of one address that overlap.
    pub(super) fn overlaps(&self) -> Vec<String> {
        let mut all = self.past.clone();
        all.sort_by(|a, b| (&a.place, a.from).cmp(&(&b.place, b.from)));
        let overlap = |pair: &&[Interval]| pair[0].place == pair[1].place && pair[0].to > pair[1].from;
        let tell = |pair: &[Interval]| {
            let [Interval { place, owner, from, to }, next] = [&pair[0], &pair[1]];
            let Interval { owner: other, from: later, .. } = next;
            format!(
                "{place:?} was held twice: by {owner} from {from:?} to {to:?}, and by {other} from {later:?}"
            )
        };
        all.windows(2).filter(overlap).map(tell).collect()
    }

    /// The addresses that nobody has given back.
    pub(super) fn open(&self) -> Vec<String> {
        let tell = |(place, (owner, from)): (&Place, &(String, Duration))| {
            format!("{owner} holds {place:?} since {from:?}")
        };
        self.held.iter().map(tell).collect()
    }

    fn of(&self, owner: &str) -> Vec<Place> {
        let own = self.held.iter().filter(|(_, (of, _))| of == owner);
        own.map(|(place, _)| place.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: (usize, usize) = (0, 0);

    fn answered(ledger: &mut Ledger, owner: &str, address: &str) -> Option<String> {
        ledger.answered("net", owner, &[address.to_owned()])
    }

    #[test]
    fn an_address_that_two_hold_is_noticed_at_once() {
        let mut ledger = Ledger::new();
        assert_eq!(answered(&mut ledger, "a", "10.0.0.1/24"), None);
        assert_eq!(answered(&mut ledger, "b", "10.0.0.2/24"), None);
        assert_eq!(ledger.answered("other", "c", &["10.0.0.1/24".to_owned()]), None);
        assert!(answered(&mut ledger, "d", "10.0.0.1/24").is_some());
        assert_eq!(ledger.doubles(), 1);
        ledger.closes("a");
        assert_eq!(answered(&mut ledger, "e", "10.0.0.1/24"), None);
    }

    #[test]
    fn an_owner_is_answered_the_same_again() {
        let mut ledger = Ledger::new();
        assert_eq!(answered(&mut ledger, "a", "10.0.0.1/24"), None);
        assert_eq!(answered(&mut ledger, "a", "10.0.0.1/24"), None);
        assert!(answered(&mut ledger, "a", "10.0.0.2/24").is_some());
    }

    #[test]
    fn what_is_forgotten_is_held_until_a_gc() {
        let mut ledger = Ledger::new();
        ledger.begins(AT, "a");
        ledger.begins(AT, "b");
        assert_eq!(answered(&mut ledger, "a", "10.0.0.1/24"), None);
        ledger.is_forgotten(AT, "a");
        assert!(answered(&mut ledger, "c", "10.0.0.1/24").is_some());
        assert_eq!(ledger.collects(AT), ["b"]);
        assert_eq!(answered(&mut ledger, "c", "10.0.0.1/24"), None);
    }

    #[test]
    fn intervals_that_overlap_and_those_that_never_end_are_found() {
        let mut ledger = Ledger::new();
        let interval = |owner: &str, from, to| Interval {
            place: ("net", "10.0.0.1/24".to_owned()),
            owner: owner.to_owned(),
            from: Duration::from_secs(from),
            to: Duration::from_secs(to),
        };
        ledger.past = vec![interval("b", 5, 7), interval("a", 1, 5)];
        assert!(ledger.overlaps().is_empty());
        ledger.past.push(interval("c", 6, 9));
        assert_eq!(ledger.overlaps().len(), 1);
        assert!(ledger.open().is_empty());
        assert_eq!(answered(&mut ledger, "d", "10.0.0.2/24"), None);
        assert_eq!(ledger.open().len(), 1);
    }
}
