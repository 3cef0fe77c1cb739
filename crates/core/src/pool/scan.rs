//! The walk over one range set in search of a free address.
//!
//! A walk goes from span to span, and inside a span from page to page. A known page is looked at word by word. A run of
//! pages that a summary shows as full is stepped over at once. An unknown page is not walked into: the walk reports it
//! and goes on behind it, so that one round of reading can answer several questions. The cost is spans x known pages x
//! runs of full pages, never the number of addresses or pages.

use std::ops::Bound;

use super::address::PAGE_ADDRESSES;
use super::view::KnownNetwork;
use super::wish::{MAX_NEEDS, Start, Wish};
use super::{Addr, Bits, Need, NetworkName, Page, RangeSet, Span, View};

/// Up to this many unknown pages are read outright; for more it pays to read a summary too.
const FEW_PAGES: usize = 4;

/// The needs of a walk that knows nothing yet: the first page and its summary.
const FIRST_NEEDS: usize = 2;

/// An address that this choice has given away already, in its network.
pub(super) type GivenAddress<'a> = (&'a NetworkName, Addr);

/// The outcome of the search of one set.
pub(super) enum Scan {
    /// The first free address in the order asked for.
    Found {
        /// Position of its range in the set.
        range: usize,
        address: Addr,
    },
    /// It depends on these, which the view does not know.
    Ask(Vec<Need>),
    /// No address is free.
    Full,
}

/// Looks for the first free address of a set, in the wish's order.
pub(super) fn scan<'a>(wish: &Wish<'a>, view: &'a View, given: &'a [GivenAddress<'a>]) -> Scan {
    let mut unknown = Vec::new();
    for stop in Walk::new(wish, view, given) {
        match stop {
            Stop::Free { range, address } if unknown.is_empty() => return Scan::Found { range, address },
            // An address is there in any case: only what comes before it matters.
            Stop::Free { .. } => break,
            Stop::Unknown { network, page, .. } => push_new(&mut unknown, Need::Page(network.clone(), page)),
        }
        if unknown.len() > FEW_PAGES {
            return Scan::Ask(next_needs(Walk::new(wish, view, given)));
        }
    }
    if unknown.is_empty() { Scan::Full } else { Scan::Ask(unknown) }
}

/// The next needs where much is unknown: pages in order, each with its summary unless that is known. Of pages under an
/// unknown summary only the first is asked for.
///
/// The further a walk had to go, the more it asks for at once: a first reader most often needs one page, while one in a
/// crowded range should not make a round trip for each page.
fn next_needs(mut walk: Walk<'_>) -> Vec<Need> {
    let mut needs = Vec::new();
    while let Some(Stop::Unknown { network, page, summary_known }) = walk.next() {
        if summary_known {
            push_new(&mut needs, Need::Page(network.clone(), page));
        } else {
            push_with_summary(&mut needs, network, page);
            walk.skip_past(page.summary().last_page().last());
        }
        if needs.len() >= (FIRST_NEEDS + walk.passed).min(MAX_NEEDS) {
            break;
        }
    }
    needs
}

fn push_with_summary(needs: &mut Vec<Need>, network: &NetworkName, page: Page) {
    let summary = Need::Summary(network.clone(), page.summary());
    if !needs.contains(&summary) {
        push_new(needs, Need::Page(network.clone(), page));
        needs.push(summary);
    }
}

/// Appends a need unless it is there already.
pub(super) fn push_new(needs: &mut Vec<Need>, need: Need) {
    if !needs.contains(&need) {
        needs.push(need);
    }
}

/// Where a walk stops.
enum Stop<'a> {
    /// At a free address.
    Free { range: usize, address: Addr },
    /// At a page that is neither known nor shown as full.
    Unknown { network: &'a NetworkName, page: Page, summary_known: bool },
}

/// The first addresses of a segment, as many as are alike.
enum FirstPart {
    Free(Addr),
    /// Taken up to here.
    Taken(Addr),
    Unknown(Page),
}

/// Assignable addresses still to be walked over, none of them in two segments of one leg.
#[derive(Clone, Copy)]
struct Segment<'a> {
    range: usize,
    network: &'a NetworkName,
    known: Option<&'a KnownNetwork>,
    left: Span,
}

/// A walk over the assignable addresses of a set, in the order of a wish.
struct Walk<'a> {
    segments: Box<dyn Iterator<Item = Segment<'a>> + 'a>,
    current: Option<Segment<'a>>,
    given: &'a [GivenAddress<'a>],
    /// The number of known things (pages, runs of full pages) that had nothing free.
    passed: usize,
}

impl<'a> Walk<'a> {
    fn new(wish: &Wish<'a>, view: &'a View, given: &'a [GivenAddress<'a>]) -> Self {
        let set = wish.set;
        let segments = legs(set, wish.start).flat_map(move |(at, leg)| {
            let range = &set.ranges()[at];
            let (network, known) = (range.network(), view.known(range.network()));
            range.spans_within(leg).map(move |left| Segment { range: at, network, known, left })
        });
        Self { segments: Box::new(segments), current: None, given, passed: 0 }
    }

    /// Leaves out the rest of the current segment up to `address`.
    fn skip_past(&mut self, address: Addr) {
        self.current = self.current.and_then(|segment| segment.past(address));
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Stop<'a>;

    fn next(&mut self) -> Option<Stop<'a>> {
        loop {
            let segment = self.current.take().or_else(|| self.segments.next())?;
            match segment.look(self.given) {
                FirstPart::Free(address) => {
                    self.current = segment.past(address);
                    return Some(Stop::Free { range: segment.range, address });
                }
                FirstPart::Unknown(page) => {
                    self.current = segment.past(page.last());
                    let (network, summary_known) = (segment.network, segment.full(page).is_some());
                    return Some(Stop::Unknown { network, page, summary_known });
                }
                FirstPart::Taken(last) => {
                    self.current = segment.past(last);
                    self.passed += 1;
                }
            }
        }
    }
}

impl<'a> Segment<'a> {
    /// The rest of it above `address`.
    fn past(self, address: Addr) -> Option<Self> {
        self.left.above(address).map(|left| Self { left, ..self })
    }

    /// Looks at its first page, or at the full pages from there on. A page that was read itself outweighs its summary.
    fn look(&self, given: &[GivenAddress<'_>]) -> FirstPart {
        let page = self.left.first.page();
        if let Some(bits) = self.known.and_then(|known| known.pages.get(&page)) {
            return self.free_in(page, bits, given).map_or(FirstPart::Taken(page.last()), FirstPart::Free);
        }
        match self.full(page) {
            Some(full) if full.get(page.bit()) => FirstPart::Taken(self.end_of_full_run(page, full)),
            _ => FirstPart::Unknown(page),
        }
    }

    /// The summary of `page`, if it is known.
    fn full(&self, page: Page) -> Option<&'a Bits> {
        self.known?.summaries.get(&page.summary())
    }

    /// The first address of its part of a page that is neither held nor given away just now.
    fn free_in(&self, page: Page, bits: &Bits, given: &[GivenAddress<'_>]) -> Option<Addr> {
        let last = self.left.last.min(page.last()).bit();
        let mut from = self.left.first.bit();
        loop {
            let found = page.address(bits.first_clear(from, last)?);
            if !given.contains(&(self.network, found)) {
                return Some(found);
            }
            from = found.bit() + 1;
        }
    }

    /// The last address of the run of full pages that begins with `page`: it ends with the
    /// summary, before a page that is not full, or before one that is known itself.
    fn end_of_full_run(&self, page: Page, full: &Bits) -> Addr {
        let end = page.summary().last_page();
        let not_full = full.first_clear(page.bit(), PAGE_ADDRESSES - 1);
        let not_full = not_full.map(|bit| Page(page.0 + (bit - page.bit()) as u128));
        let known = self.known.and_then(|known| {
            known.pages.range((Bound::Excluded(page), Bound::Included(end))).next().map(|(&page, _)| page)
        });
        let stops = [not_full, known].into_iter().flatten().min();
        stops.map_or(end, |stop| Page(stop.0 - 1)).last()
    }
}

/// The parts of a set's ranges in the order of a walk, each with its range's position.
///
/// A cursor cuts its range in two: the walk begins with the upper part, goes round all other
/// ranges, and ends with the lower part.
fn legs(set: &RangeSet, start: Start) -> impl Iterator<Item = (usize, Span)> + '_ {
    let cut = match start {
        Start::Lowest => None,
        Start::After(address) | Start::At(address) => set.position(address),
    };
    let home = cut.unwrap_or(0);
    let bounds = set.ranges()[home].bounds();
    let (upper, lower) = match start {
        Start::After(cursor) if cut.is_some() => (bounds.above(cursor), bounds.up_to(cursor)),
        Start::At(cursor) if cut.is_some() => (bounds.from(cursor), bounds.below(cursor)),
        Start::Lowest | Start::After(_) | Start::At(_) => (Some(bounds), None),
    };
    let others = (home + 1..set.ranges().len()).chain(0..home);
    let others = others.map(|at| (at, set.ranges()[at].bounds()));
    let (upper, lower) = (upper.map(|part| (home, part)), lower.map(|part| (home, part)));
    upper.into_iter().chain(others).chain(lower)
}
