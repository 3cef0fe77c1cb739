//! The choice of one address from each range set, on a partial view of the cluster.
//!
//! [`choose`] is called with what is known; it answers with the addresses, or with what must be
//! known first. Whoever calls it reads that, adds it to the view and calls again: a need that
//! was answered is never asked for again, so the loop ends.
//!
//! All sets are chosen on one merged view. Requested addresses are settled first, so that no
//! set takes what another one asks for; then the other sets follow in order, and each one sees
//! what those before it took. So two sets that share addresses give two different ones.

use super::scan::{Given, Scan, push_new, scan};
use super::{Addr, Bits, Need, NetworkName, Page, Range, RangeSet, Span, Standing, View};

/// The most needs that one step asks for: what one small transaction reads.
pub const MAX_NEEDS: usize = 16;

/// Where the search of a set begins. It always goes over the whole set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the first range's start: the lowest free address.
    Lowest,
    /// Right after this address, round all ranges, and at last to this address itself.
    After(Addr),
    /// At this address, and round all ranges.
    At(Addr),
}

/// One range set from which one address is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The set.
    pub set: &'a RangeSet,
    /// Where to begin, unless an address is requested.
    pub start: Start,
    /// The address that it must be.
    pub request: Option<Addr>,
}

/// An address chosen for a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// Position of the set among the wishes.
    pub set: usize,
    /// The network that the address is to be held in.
    pub network: NetworkName,
    /// The address.
    pub address: Addr,
    /// Position of its range in the set.
    pub range: usize,
}

/// Why a requested address is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The configuration does not let it be handed out.
    Standing(Standing),
    /// It is held, or another set of the same choice requests it too.
    Taken,
}

/// What a call of [`choose`] comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// One address for each wish, in the order of the wishes.
    ///
    /// The view knows the pages of all of them, and the summary of every page that they fill.
    Chosen(Vec<Pick>),
    /// Unknown to the view and needed, the most important first; 1 to [`MAX_NEEDS`], no duplicates.
    Need(Vec<Need>),
    /// No address of this set is free.
    Full {
        /// Position of the set among the wishes.
        set: usize,
    },
    /// A requested address is not given.
    Refused {
        /// Position of the set among the wishes.
        set: usize,
        /// The requested address.
        address: Addr,
        /// Why it is not given.
        why: Refusal,
    },
}

/// Chooses one address for each wish, or says what must be known first.
///
/// A requested address is judged by its reservation, not by its bit. A page that the view knows
/// outweighs what its summary says of it.
#[must_use]
pub fn choose(wishes: &[Wish<'_>], view: &View) -> Step {
    if let Some(refused) = first_unfit_request(wishes) {
        return refused;
    }
    let mut draft = Draft::new(view);
    draft.settle_requests(wishes).and_then(|()| draft.settle_others(wishes)).map_or_else(
        |verdict| verdict,
        |()| {
            draft.ask_for_filled_summaries();
            draft.finish()
        },
    )
}

/// The first request that no reading can make good.
fn first_unfit_request(wishes: &[Wish<'_>]) -> Option<Step> {
    wishes.iter().enumerate().find_map(|(set, wish)| {
        let address = wish.request?;
        match wish.set.standing(address) {
            Standing::Assignable => None,
            standing => Some(Step::Refused { set, address, why: Refusal::Standing(standing) }),
        }
    })
}

/// A choice in the making.
struct Draft<'a> {
    view: &'a View,
    /// What no later set may take, settled or not.
    given: Vec<Given<'a>>,
    picks: Vec<Pick>,
    needs: Vec<Need>,
}

impl<'a> Draft<'a> {
    fn new(view: &'a View) -> Self {
        Self { view, given: Vec::new(), picks: Vec::new(), needs: Vec::new() }
    }

    /// Settles the wishes that request an address; an `Err` is the answer to all wishes.
    fn settle_requests(&mut self, wishes: &[Wish<'a>]) -> Result<(), Step> {
        for (set, wish) in wishes.iter().enumerate() {
            let requested = wish.request.and_then(|address| Some((address, wish.set.position(address)?)));
            let Some((address, range)) = requested else { continue };
            let network = wish.set.ranges()[range].network();
            if self.view.held(network, address) == Some(true) || self.given.contains(&(network, address)) {
                return Err(self.verdict(Step::Refused { set, address, why: Refusal::Taken }));
            }
            self.ask(Need::Reservation(network.clone(), address));
            self.ask(Need::Page(network.clone(), address.page()));
            self.pick(set, network, address, range);
        }
        Ok(())
    }

    /// Settles the wishes that take what is free; an `Err` is the answer to all wishes.
    fn settle_others(&mut self, wishes: &[Wish<'a>]) -> Result<(), Step> {
        for (set, wish) in wishes.iter().enumerate().filter(|(_, wish)| wish.request.is_none()) {
            match scan(wish, self.view, &self.given) {
                Scan::Found { range, address } => {
                    self.pick(set, wish.set.ranges()[range].network(), address, range);
                }
                Scan::Ask(needs) => needs.into_iter().for_each(|need| self.ask(need)),
                Scan::Full => return Err(self.verdict(Step::Full { set })),
            }
        }
        Ok(())
    }

    fn pick(&mut self, set: usize, network: &'a NetworkName, address: Addr, range: usize) {
        self.given.push((network, address));
        self.picks.push(Pick { set, network: network.clone(), address, range });
    }

    fn ask(&mut self, need: Need) {
        if !self.view.knows(&need) {
            push_new(&mut self.needs, need);
        }
    }

    /// A verdict on one set holds only when all before it are settled: which set is named must
    /// not depend on what happened to be read first.
    fn verdict(&mut self, verdict: Step) -> Step {
        if self.needs.is_empty() { verdict } else { self.finish() }
    }

    /// Whoever fills a page must mark it in its summary, and so must know the summary.
    fn ask_for_filled_summaries(&mut self) {
        let filled: Vec<Need> = self.picks.iter().filter_map(|pick| self.filled_summary(pick)).collect();
        filled.into_iter().for_each(|summary| self.ask(summary));
    }

    fn filled_summary(&self, pick: &Pick) -> Option<Need> {
        let page = pick.address.page();
        let before = self.view.page(&pick.network, page)?;
        let after = self.after(&pick.network, page, before);
        (after.is_full() && !before.is_full()).then(|| Need::Summary(pick.network.clone(), page.summary()))
    }

    /// A page as it will be when every pick is held.
    fn after(&self, network: &NetworkName, page: Page, before: &Bits) -> Bits {
        let mut after = before.clone();
        let in_page = |given: &&Given<'_>| given.0 == network && given.1.page() == page;
        self.given.iter().filter(in_page).for_each(|(_, address)| after.set(address.bit()));
        after
    }

    fn finish(&mut self) -> Step {
        if self.needs.is_empty() {
            self.picks.sort_by_key(|pick| pick.set);
            return Step::Chosen(std::mem::take(&mut self.picks));
        }
        self.needs.truncate(MAX_NEEDS);
        Step::Need(std::mem::take(&mut self.needs))
    }
}

/// The address at which a node with this seed begins: the first assignable one of a page that
/// the seed selects among all pages of the set that have any.
///
/// A set without any assignable address yields its first range's start.
#[must_use]
pub fn spread_start(set: &RangeSet, seed: u64) -> Addr {
    let pages: u128 = set.ranges().iter().map(pages_of).sum();
    let Some(mut index) = u128::from(seed).checked_rem(pages) else {
        return set.ranges()[0].first();
    };
    for (first, pages) in set.ranges().iter().flat_map(page_runs) {
        if index < pages {
            return first.max(Page(first.page().0 + index).first());
        }
        index -= pages;
    }
    set.ranges()[0].first()
}

fn pages_of(range: &Range) -> u128 {
    page_runs(range).map(|(_, pages)| pages).sum()
}

/// For each span of a range its first address on a page that no span before it reached, and
/// the number of such pages.
fn page_runs(range: &Range) -> impl Iterator<Item = (Addr, u128)> + '_ {
    let mut reached: Option<Addr> = None;
    range.spans().iter().filter_map(move |&span| {
        let fresh = reached.map_or(Some(span), |reached| span.above(reached))?;
        reached = Some(span.last.page().last());
        Some((fresh.first, pages_between(fresh)))
    })
}

fn pages_between(span: Span) -> u128 {
    span.last.page().0 - span.first.page().0 + 1
}
