//! The choice of one address from each range set, on a partial view of the cluster.
//!
//! The caller of [`choose`] hands it a view of the known state. The answer is the addresses, or the needs that must be
//! known first. Then the caller reads those, adds them to the view and calls again. A need that was answered is never
//! asked for again, so the loop ends.
//!
//! All sets are chosen on one merged view. Requested addresses are settled first, so that no set takes an address that
//! another one requests. The other sets follow in order, and each sees what those before it took. So two sets that
//! share addresses give two different ones.

use super::scan::{GivenAddress, Scan, push_new, scan};
use super::wish::{MAX_NEEDS, Wish};
use super::{Addr, Bits, Need, NetworkName, Page, Range, RangeSet, Span, Standing, View};

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
    pub(crate) range: usize,
}

/// Why a requested address is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The configuration does not let it be handed out.
    Standing(Standing),
    /// It is held, or another set of the same choice requests it too.
    Taken,
}

crate::named_enum! {
    /// The order in which free addresses are handed out.
    pub enum Order {
        /// The lowest free address.
        Lowest = "lowest",
        /// The address after the last one handed out, wrapping.
        Next = "next",
        /// Like `Next`, from a page of the node's own.
        Spread = "spread",
    }
}

impl Order {
    /// True if the last address that was handed out is kept in a cursor.
    pub(crate) fn uses_cursor(self) -> bool {
        match self {
            Order::Lowest => false,
            Order::Next | Order::Spread => true,
        }
    }

    /// True if each node starts at a page of its own.
    pub(crate) fn starts_per_node(self) -> bool {
        match self {
            Order::Lowest | Order::Next => false,
            Order::Spread => true,
        }
    }
}

/// The outcome of [`choose`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
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

/// Chooses one address for each wish, or returns the needs that must be known first.
///
/// A requested address is judged by its reservation, not by its bit. A page that the view knows outweighs its summary.
#[must_use]
pub fn choose(wishes: &[Wish<'_>], view: &View) -> Choice {
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
fn first_unfit_request(wishes: &[Wish<'_>]) -> Option<Choice> {
    wishes.iter().enumerate().find_map(|(set, wish)| {
        let address = wish.request?;
        match wish.set.standing(address) {
            Standing::Assignable => None,
            standing => Some(Choice::Refused { set, address, why: Refusal::Standing(standing) }),
        }
    })
}

/// A choice in the making.
struct Draft<'a> {
    view: &'a View,
    /// The addresses that no later set may take, settled or not.
    given: Vec<GivenAddress<'a>>,
    picks: Vec<Pick>,
    needs: Vec<Need>,
}

impl<'a> Draft<'a> {
    fn new(view: &'a View) -> Self {
        Self { view, given: Vec::new(), picks: Vec::new(), needs: Vec::new() }
    }

    /// Settles the wishes that request an address; an `Err` is the answer to all wishes.
    fn settle_requests(&mut self, wishes: &[Wish<'a>]) -> Result<(), Choice> {
        for (set, wish) in wishes.iter().enumerate() {
            let requested = wish.request.and_then(|address| Some((address, wish.set.position(address)?)));
            let Some((address, range)) = requested else { continue };
            let network = wish.set.ranges()[range].network();
            if self.view.held(network, address) == Some(true) || self.given.contains(&(network, address)) {
                return Err(self.verdict(Choice::Refused { set, address, why: Refusal::Taken }));
            }
            self.ask(Need::Reservation(network.clone(), address));
            self.ask(Need::Page(network.clone(), address.page()));
            self.pick(set, network, address, range);
        }
        Ok(())
    }

    /// Settles the wishes without a request; an `Err` is the answer to all wishes.
    fn settle_others(&mut self, wishes: &[Wish<'a>]) -> Result<(), Choice> {
        for (set, wish) in wishes.iter().enumerate().filter(|(_, wish)| wish.request.is_none()) {
            match scan(wish, self.view, &self.given) {
                Scan::Found { range, address } => {
                    self.pick(set, wish.set.ranges()[range].network(), address, range);
                }
                Scan::Ask(needs) => needs.into_iter().for_each(|need| self.ask(need)),
                Scan::Full => return Err(self.verdict(Choice::Full { set })),
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
    fn verdict(&mut self, verdict: Choice) -> Choice {
        if self.needs.is_empty() { verdict } else { self.finish() }
    }

    /// A commit that fills a page marks it in its summary, so the summary must be known.
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
        let in_page = |given: &&GivenAddress<'_>| given.0 == network && given.1.page() == page;
        self.given.iter().filter(in_page).for_each(|(_, address)| after.set(address.bit()));
        after
    }

    fn finish(&mut self) -> Choice {
        if self.needs.is_empty() {
            self.picks.sort_by_key(|pick| pick.set);
            return Choice::Chosen(std::mem::take(&mut self.picks));
        }
        self.needs.truncate(MAX_NEEDS);
        Choice::Need(std::mem::take(&mut self.needs))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::pool::Start;
    use crate::pool::range::fixtures::*;
    use crate::pool::{RangeSpec, Summary};

    /// More steps than any search here may take.
    const STEPS: usize = 64;

    /// The held addresses of the cluster: plain lists of spans.
    #[derive(Debug, Clone, Default)]
    struct Cluster(BTreeMap<NetworkName, Vec<Span>>);

    impl Cluster {
        fn holding(spans: &[(&str, &str)]) -> Self {
            let mut cluster = Self::default();
            spans.iter().for_each(|(first, last)| cluster.hold(&NetworkName::default(), span(first, last)));
            cluster
        }

        fn with(addresses: &[&str]) -> Self {
            Self::holding(&addresses.iter().map(|&text| (text, text)).collect::<Vec<_>>())
        }

        fn hold(&mut self, network: &NetworkName, span: Span) {
            self.0.entry(network.clone()).or_default().push(span);
        }

        fn spans(&self, network: &NetworkName) -> &[Span] {
            self.0.get(network).map_or(&[], Vec::as_slice)
        }

        fn holds(&self, network: &NetworkName, address: Addr) -> bool {
            self.spans(network).iter().any(|span| span.contains(address))
        }

        fn page(&self, network: &NetworkName, page: Page) -> Bits {
            let all = Span { first: page.first(), last: page.last() };
            let mut bits = Bits::empty();
            for span in self.spans(network).iter().filter_map(|span| span.within(all)) {
                (span.first.bit()..=span.last.bit()).for_each(|bit| bits.set(bit));
            }
            bits
        }

        fn summary(&self, network: &NetworkName, summary: Summary) -> Bits {
            let first = summary.first().page();
            let mut bits = Bits::empty();
            for page in (0..4096).map(|n| Page(first.0 + n)) {
                let all = Span { first: page.first(), last: page.last() };
                let mut touching = self.spans(network).iter().filter_map(|span| span.within(all)).peekable();
                let touched = touching.peek().is_some();
                if touching.any(|part| part == all) || touched && self.page(network, page).is_full() {
                    bits.set(page.bit());
                }
            }
            bits
        }

        fn answer(&self, view: &mut View, need: &Need) {
            assert!(!view.knows(need), "asked twice: {need:?}");
            match need {
                Need::Page(network, page) => view.set_page(network, *page, self.page(network, *page)),
                Need::Summary(network, at) => view.set_summary(network, *at, self.summary(network, *at)),
                Need::Reservation(network, address) => {
                    view.set_held(network, *address, self.holds(network, *address));
                }
            }
            assert!(view.knows(need));
        }

        /// Answers what is asked until there is a verdict; with it, the needs of each step.
        fn settle(&self, wishes: &[Wish<'_>], mut view: View) -> (Choice, Vec<Vec<Need>>) {
            let mut asked = Vec::new();
            while asked.len() < STEPS {
                match choose(wishes, &view) {
                    Choice::Need(needs) => {
                        assert!((1..=MAX_NEEDS).contains(&needs.len()), "{needs:?}");
                        needs.iter().for_each(|need| self.answer(&mut view, need));
                        asked.push(needs);
                    }
                    verdict => return (verdict, asked),
                }
            }
            panic!("no verdict after {STEPS} steps");
        }
    }

    fn wish(set: &RangeSet, start: Start) -> Wish<'_> {
        Wish { set, start, request: None }
    }

    fn request<'a>(set: &'a RangeSet, address: &str) -> Wish<'a> {
        Wish { set, start: Start::Lowest, request: Some(addr(address)) }
    }

    fn given(step: &Choice) -> Result<Vec<Addr>, &Choice> {
        match step {
            Choice::Chosen(picks) => Ok(picks.iter().map(|pick| pick.address).collect()),
            other => Err(other),
        }
    }

    /// One set, one address (or none).
    fn check(set: &RangeSet, start: Start, held: &[&str], expected: Option<&str>) {
        let (step, _) = Cluster::with(held).settle(&[wish(set, start)], View::default());
        let label = format!("{start:?} with {held:?} in {set:?}");
        match expected {
            Some(expected) => assert_eq!(given(&step), Ok(vec![addr(expected)]), "{label}"),
            None => assert_eq!(step, Choice::Full { set: 0 }, "{label}"),
        }
    }

    #[test]
    fn a_cursor_goes_round_all_ranges() {
        let after = |text| Start::After(addr(text));
        let r29 = set([host_local("10.0.0.0/29")]);
        let three = set(["10.0.0.0/30", "10.0.1.0/30", "10.0.2.0/30"].map(host_local));
        let all = ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"];
        check(&three, after("10.0.0.2"), &[], Some("10.0.1.2"));
        check(&r29, after("10.0.0.6"), &all, None);
        let halves = set([cidr("10.0.0.0/24").to("10.0.0.127"), cidr("10.0.0.0/24").from("10.0.0.128")]);
        check(&halves, after("10.0.0.127"), &[], Some("10.0.0.128"));
        check(&halves, after("10.0.0.200"), &[], Some("10.0.0.201"));
        check(&halves, after("10.0.0.254"), &[], Some("10.0.0.1"));
    }

    #[test]
    fn a_cursor_that_can_no_longer_be_handed_out_still_says_where_to_go_on() {
        let after = |text| Start::After(addr(text));
        let cut = || cidr("10.0.0.0/24").bounds("10.0.0.10", "10.0.0.99").exclude(&["10.0.0.20/30"]);
        let sets = set([cut(), cidr("10.0.1.0/24")]);
        check(&sets, after("10.0.0.21"), &[], Some("10.0.0.24"));
        check(&sets, after("10.0.0.5"), &[], Some("10.0.0.10"));
        check(&sets, after("10.0.0.200"), &[], Some("10.0.1.1"));
        check(&set([cut()]), after("10.0.0.200"), &[], Some("10.0.0.10"));
        check(&set([cut()]), after("fd00::1"), &[], Some("10.0.0.10"));
        check(&sets, Start::At(addr("10.0.0.30")), &[], Some("10.0.0.30"));
        check(&sets, Start::At(addr("10.0.0.20")), &[], Some("10.0.0.24"));
        check(&set([cidr("10.0.0.0/29")]), Start::At(addr("10.0.0.6")), &["10.0.0.6"], Some("10.0.0.1"));
        let top = set([cidr("::/0").bounds("ffff::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")]);
        check(&top, after("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), &[], Some("ffff::"));
        check(&top, Start::At(Addr(u128::MAX)), &[], Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"));
    }

    #[test]
    fn sets_that_share_addresses_get_different_ones() {
        fn check(wishes: &[Wish<'_>], held: &[&str], expected: &[&str]) {
            let (step, _) = Cluster::with(held).settle(wishes, View::default());
            let expected: Vec<Addr> = expected.iter().map(|text| addr(text)).collect();
            assert_eq!(given(&step), Ok(expected), "{wishes:?}");
        }
        let (wide, narrow) = (set([cidr("10.0.0.0/24")]), set([cidr("10.0.0.0/29")]));
        let v6 = set([cidr("abcd::1/64")]);
        let other = set([cidr("10.0.0.0/24").network("other")]);
        let lowest = |set| wish(set, Start::Lowest);
        check(&[lowest(&wide), lowest(&v6)], &[], &["10.0.0.1", "abcd::1"]); // C14
        check(
            &[lowest(&wide), lowest(&narrow), lowest(&wide)],
            &["10.0.0.2"],
            &["10.0.0.1", "10.0.0.3", "10.0.0.4"],
        );
        check(&[lowest(&wide), lowest(&other)], &[], &["10.0.0.1", "10.0.0.1"]);
        check(&[lowest(&wide), request(&narrow, "10.0.0.1")], &[], &["10.0.0.2", "10.0.0.1"]);
        check(&[request(&wide, "10.0.0.88")], &["10.0.0.1"], &["10.0.0.88"]); // T40
        check(&[wish(&wide, Start::After(addr("10.0.0.88")))], &["10.0.0.88"], &["10.0.0.89"]); // T41
        check(&[request(&wide, "10.0.0.9"), request(&other, "10.0.0.9")], &[], &["10.0.0.9", "10.0.0.9"]);
    }

    #[test]
    fn a_request_is_given_or_refused_for_a_reason() {
        fn check(wishes: &[Wish<'_>], held: &[&str], expected: (usize, &str, Refusal)) {
            let (step, _) = Cluster::with(held).settle(wishes, View::default());
            let (set, address, why) = (expected.0, addr(expected.1), expected.2);
            assert_eq!(step, Choice::Refused { set, address, why });
        }
        let range = set([host_local("10.1.2.0/24")]);
        let standing = Refusal::Standing;
        for (address, why) in [
            ("10.1.2.0", standing(Standing::NetworkAddress)), // T46
            ("10.1.2.255", standing(Standing::Broadcast)),
            ("10.9.9.9", standing(Standing::OutsideSubnet)),
            ("10.1.2.1", standing(Standing::Gateway)),
            ("10.1.2.88", Refusal::Taken), // T41
        ] {
            check(&[request(&range, address)], &["10.1.2.88"], (0, address, why));
        }
        let twice = [request(&range, "10.1.2.7"), request(&range, "10.1.2.7")];
        check(&twice, &[], (1, "10.1.2.7", Refusal::Taken));
        let both = [request(&range, "10.1.2.7"), request(&range, "10.1.2.8")];
        check(&both, &["10.1.2.7", "10.1.2.8"], (0, "10.1.2.7", Refusal::Taken));
    }

    #[test]
    fn a_request_goes_by_its_reservation_not_by_its_bit() {
        let (network, range) = (NetworkName::default(), set([cidr("10.1.2.0/24")]));
        let address = addr("10.1.2.88");
        let wishes = [request(&range, "10.1.2.88")];
        let mut view = View::default();
        let both =
            vec![Need::Reservation(network.clone(), address), Need::Page(network.clone(), address.page())];
        assert_eq!(choose(&wishes, &view), Choice::Need(both));
        view.set_page(&network, address.page(), Bits::empty());
        view.take(&network, address);
        view.set_held(&network, address, false);
        assert_eq!(given(&choose(&wishes, &view)), Ok(vec![address]));
        view.set_page(&network, address.page(), Bits::empty());
        view.set_held(&network, address, true);
        assert!(matches!(choose(&wishes, &view), Choice::Refused { why: Refusal::Taken, .. }));
    }

    #[test]
    fn whoever_fills_a_page_knows_its_summary() {
        let range = set([cidr("10.0.0.0/19").bounds("10.0.15.254", "10.0.15.255")]);
        let cluster = Cluster::holding(&[("10.0.0.0", "10.0.15.253")]);
        let network = NetworkName::default();
        let page = Need::Page(network.clone(), addr("10.0.0.0").page());
        let summary = Need::Summary(network, addr("10.0.0.0").page().summary());
        let lowest = wish(&range, Start::Lowest);
        assert_eq!(cluster.settle(&[lowest], View::default()).1, [vec![page.clone()]]);
        assert_eq!(cluster.settle(&[lowest; 2], View::default()).1, [vec![page], vec![summary]]);
    }

    #[test]
    fn what_is_picked_in_another_page_fills_none() {
        // Two addresses of the first page are free; one of them is picked, and in the second page the one whose bit is
        // that of the other.
        let first = set([cidr("10.0.0.0/19").bounds("10.0.0.1", "10.0.15.255")]);
        let second = set([cidr("10.0.0.0/19").bounds("10.0.31.255", "10.0.31.255")]);
        let cluster = Cluster::holding(&[("10.0.0.0", "10.0.0.0"), ("10.0.0.2", "10.0.15.254")]);
        let wishes = [wish(&first, Start::Lowest), wish(&second, Start::Lowest)];
        let (step, asked) = cluster.settle(&wishes, View::default());
        assert_eq!(given(&step), Ok(vec![addr("10.0.0.1"), addr("10.0.31.255")]));
        let is_summary = |need: &Need| matches!(need, Need::Summary(..));
        assert!(!asked.iter().flatten().any(is_summary), "no page becomes full: {asked:?}");
    }

    #[test]
    fn a_taken_bit_stays_unknown_in_an_unknown_page() {
        let (network, mut view) = (NetworkName::default(), View::default());
        view.take(&network, addr("10.0.0.1"));
        assert_eq!(view, View::default());
    }

    /// Checks the address found and how many needs each step asked for.
    fn check_needs(set: &RangeSet, start: Start, cluster: &Cluster, expected: (Option<&str>, &[usize])) {
        let (step, asked) = cluster.settle(&[wish(set, start)], View::default());
        let counts: Vec<usize> = asked.iter().map(Vec::len).collect();
        let found = given(&step).ok().map(|found| found[0]);
        assert_eq!((found, counts.as_slice()), (expected.0.map(addr), expected.1), "{asked:?}");
    }

    #[test]
    fn a_large_range_asks_for_no_more_than_a_small_one() {
        let none = Cluster::default();
        let fresh = |spec: RangeSpec, first: &str, needs: &[usize]| {
            check_needs(&set([spec]), Start::Lowest, &none, (Some(first), needs));
        };
        fresh(cidr("10.0.0.0/24"), "10.0.0.1", &[1]);
        fresh(cidr("10.0.0.0/18"), "10.0.0.1", &[4]);
        fresh(cidr("10.0.0.0/8"), "10.0.0.1", &[2]);
        fresh(cidr("fd00::/64"), "fd00::1", &[2]);
        fresh(cidr("::/0"), "::1", &[2]);
        fresh(cidr("::/0").exclude(&["::/1"]), "8000::", &[2]);
        let late = Start::After(addr("10.255.255.254"));
        check_needs(&set([cidr("10.0.0.0/8")]), late, &none, (Some("10.0.0.1"), &[2]));
        let late = Start::After(addr("10.255.255.200"));
        check_needs(&set([cidr("10.0.0.0/8")]), late, &none, (Some("10.255.255.201"), &[2]));
    }

    #[test]
    fn the_one_free_address_of_a_large_range_is_found_by_the_summary() {
        let slash_12 = set([cidr("10.0.0.0/12")]);
        let all_but =
            |first: &str, last: &str| Cluster::holding(&[("10.0.0.0", first), (last, "10.255.255.255")]);
        let one = all_but("10.12.200.6", "10.12.200.8");
        check_needs(&slash_12, Start::Lowest, &one, (Some("10.12.200.7"), &[2, 1]));
        let after = Start::After(addr("10.12.200.7"));
        check_needs(&slash_12, after, &one, (Some("10.12.200.7"), &[2]));
        let after = Start::After(addr("10.15.255.254"));
        check_needs(&slash_12, after, &one, (Some("10.12.200.7"), &[2, 1]));
        let full = Cluster::holding(&[("10.0.0.0", "10.255.255.255")]);
        check_needs(&slash_12, Start::Lowest, &full, (None, &[2]));
    }

    #[test]
    fn a_full_range_of_many_summaries_takes_few_steps() {
        let full = Cluster::holding(&[("64.0.0.0", "95.255.255.255")]);
        check_needs(&set([cidr("64.0.0.0/4")]), Start::Lowest, &full, (None, &[2, 4, 8, 16, 2]));
        let set = set([cidr("fd00::/64")]);
        let full = Cluster::holding(&[("fd00::", "fd00::3ff:ffff")]);
        check_needs(&set, Start::Lowest, &full, (Some("fd00::400:0"), &[2, 4, 8]));
    }

    #[test]
    fn pages_that_keep_an_excluded_bit_never_read_as_full_but_are_read_many_at_once() {
        let mut spec = cidr("10.0.0.0/12");
        spec.excludes =
            (0..1000u32).map(|n| net(&format!("10.{}.{}.77/32", n >> 6, (n & 63) << 2))).collect();
        let mut cluster = Cluster::default();
        for pair in set([spec.clone()]).ranges()[0].spans().windows(2) {
            cluster.hold(&NetworkName::default(), Span { first: pair[0].first, last: pair[0].last });
        }
        let (step, asked) = cluster.settle(&[wish(&set([spec]), Start::Lowest)], View::default());
        assert_eq!(given(&step), Ok(vec![addr("10.15.156.78")]));
        assert!(asked.len() <= 20, "{} steps", asked.len());
    }

    #[test]
    fn a_summary_is_asked_for_once_however_many_spans_are_below_it() {
        let (network, page) = (NetworkName::default(), addr("10.0.0.0").page());
        let excludes: Vec<String> = (0..64).map(|n| format!("10.0.{}.9/32", n * 4)).collect();
        let range =
            set([cidr("10.0.0.0/12").exclude(&excludes.iter().map(String::as_str).collect::<Vec<_>>())]);
        let mut view = View::default();
        view.set_page(&network, page, Cluster::holding(&[("10.0.0.0", "10.0.15.255")]).page(&network, page));
        let next = vec![
            Need::Page(network.clone(), Page(page.0 + 1)),
            Need::Summary(network.clone(), page.summary()),
        ];
        assert_eq!(choose(&[wish(&range, Start::Lowest)], &view), Choice::Need(next));
    }

    #[test]
    fn what_was_read_of_a_page_outweighs_its_summary() {
        let (network, range) = (NetworkName::default(), set([cidr("10.0.0.0/12")]));
        let full = Cluster::holding(&[("10.0.0.0", "10.255.255.255")]);
        let mut view = View::default();
        let page = addr("10.3.0.0").page();
        view.set_summary(&network, page.summary(), full.summary(&network, page.summary()));
        assert_eq!(choose(&[wish(&range, Start::Lowest)], &view), Choice::Full { set: 0 });
        view.set_page(&network, page, Bits::empty());
        let step = choose(&[wish(&range, Start::Lowest)], &view);
        assert_eq!(given(&step), Ok(vec![addr("10.3.0.0")]));
    }

    #[test]
    fn thirty_sets_are_asked_for_in_a_few_small_steps() {
        let sets: Vec<RangeSet> = (0..30).map(|n| set([cidr(&format!("10.{n}.0.0/16"))])).collect();
        let wishes: Vec<Wish<'_>> = sets.iter().map(|set| wish(set, Start::Lowest)).collect();
        let (step, asked) = Cluster::default().settle(&wishes, View::default());
        assert_eq!(given(&step).map(|found| found.len()), Ok(30));
        assert!(asked.len() <= 4, "{} steps", asked.len());
    }

    #[test]
    fn a_seed_selects_a_page_of_those_that_have_an_address() {
        fn check(set: &RangeSet, seed: u64, expected: &str) {
            assert_eq!(spread_start(set, seed), addr(expected), "{seed} of {set:?}");
        }
        let slash_18 = set([cidr("10.0.0.0/18").exclude(&["10.0.16.0/20", "10.0.32.0/24", "10.0.33.7/32"])]);
        for (seed, expected) in [(0, "10.0.0.1"), (1, "10.0.33.0"), (2, "10.0.48.0"), (3, "10.0.0.1")] {
            check(&slash_18, seed, expected);
        }
        let two = set([cidr("10.0.0.0/24"), cidr("10.1.0.0/19")]);
        for (seed, expected) in [(0, "10.0.0.1"), (1, "10.1.0.1"), (2, "10.1.16.0"), (3, "10.0.0.1")] {
            check(&two, seed, expected);
        }
        check(&set([cidr("::/0").exclude(&["::/1"])]), u64::MAX, "8000:0:0:fff:ffff:ffff:ffff:f000");
        check(&set([cidr("10.0.0.0/24").exclude(&["10.0.0.0/8"])]), 7, "10.0.0.1");
    }

    mod model {
        //! The engine against a model that walks over every address.

        use ipnetwork::IpNetwork;

        use super::*;

        /// All addresses within the bounds of a set, with their ranges' positions, from the
        /// start on and round.
        fn order(set: &RangeSet, start: Start) -> Vec<(usize, Addr)> {
            let all: Vec<(usize, Addr)> = (set.ranges().iter().enumerate())
                .flat_map(|(at, range)| (range.first().0..=range.last().0).map(move |n| (at, Addr(n))))
                .collect();
            let (cursor, including) = match start {
                Start::Lowest => return all,
                Start::After(cursor) => (cursor, false),
                Start::At(cursor) => (cursor, true),
            };
            let Some(home) = home(set, cursor) else { return all };
            let is_later =
                |&(at, a): &(usize, Addr)| (at, a) > (home, cursor) || including && (at, a) == (home, cursor);
            let (later, earlier): (Vec<_>, Vec<_>) = all.into_iter().partition(is_later);
            later.into_iter().chain(earlier).collect()
        }

        fn home(set: &RangeSet, cursor: Addr) -> Option<usize> {
            let best = |at: &usize| {
                let range = &set.ranges()[*at];
                let inside = range.first() <= cursor && cursor <= range.last();
                (range.standing(cursor) == Standing::Assignable, inside)
            };
            let covering = (0..set.ranges().len()).rev().filter(|&at| set.ranges()[at].covers(cursor));
            covering.max_by_key(best)
        }

        fn model(wishes: &[Wish<'_>], cluster: &Cluster) -> Choice {
            let mut held = cluster.clone();
            let mut picks = vec![None; wishes.len()];
            let requests =
                || wishes.iter().enumerate().filter_map(|(at, wish)| Some((at, wish, wish.request?)));
            for (set, wish, address) in requests() {
                let standing = wish.set.standing(address);
                if standing != Standing::Assignable {
                    return Choice::Refused { set, address, why: Refusal::Standing(standing) };
                }
            }
            for (set, wish, address) in requests() {
                let range = home(wish.set, address).expect("assignable");
                let network = wish.set.ranges()[range].network();
                if held.holds(network, address) {
                    return Choice::Refused { set, address, why: Refusal::Taken };
                }
                held.hold(network, Span { first: address, last: address });
                picks[set] = Some(Pick { set, network: network.clone(), address, range });
            }
            for (set, wish) in wishes.iter().enumerate().filter(|(_, wish)| wish.request.is_none()) {
                let free = order(wish.set, wish.start).into_iter().find(|&(at, address)| {
                    let range = &wish.set.ranges()[at];
                    range.standing(address) == Standing::Assignable && !held.holds(range.network(), address)
                });
                let Some((range, address)) = free else { return Choice::Full { set } };
                let network = wish.set.ranges()[range].network();
                held.hold(network, Span { first: address, last: address });
                picks[set] = Some(Pick { set, network: network.clone(), address, range });
            }
            Choice::Chosen(picks.into_iter().flatten().collect())
        }

        /// Two kinds of terrain: narrow ranges about a boundary of pages, and wide ones of many pages
        /// about a boundary of summaries.
        #[derive(Debug, Clone, Copy)]
        struct Terrain {
            base: u128,
            prefix: u8,
            size: u128,
        }

        const NARROW: Terrain = Terrain { base: 0xffff_0a00_0f80, prefix: 19, size: 256 };
        const WIDE: Terrain = Terrain { base: 0xffff_0aff_8000, prefix: 7, size: 14 * 4096 };

        type RangeDraft = (u128, u128, Vec<(u128, u8)>, Vec<u128>, bool);
        type WishDraft = (Vec<RangeDraft>, u8, u128, Option<u128>);

        impl Terrain {
            fn addr(self, at: u128) -> Addr {
                Addr(self.base + at % self.size)
            }

            fn range(self, (from, len, excludes, never, own): RangeDraft) -> Range {
                let first = self.addr(from);
                let last = Addr(first.0 + len % (self.base + self.size - first.0));
                let prefix = |bits: u8| 32 - bits % (self.size.ilog2() as u8);
                let exclude =
                    |(at, bits)| IpNetwork::new(self.addr(at).ip(), prefix(bits)).expect("a network");
                let network = NetworkName::configured(if own { "own" } else { "default" }).expect("a name");
                let subnet = IpNetwork::new(Addr(self.base).ip(), self.prefix).expect("a network");
                Range::new(RangeSpec {
                    network,
                    subnet,
                    first: first.ip(),
                    last: last.ip(),
                    excludes: excludes.into_iter().map(exclude).collect(),
                    never: never.into_iter().map(|at| self.addr(at).ip()).collect(),
                    gateway: None,
                })
                .expect("a range")
            }

            fn start(self, kind: u8, at: u128) -> Start {
                match kind {
                    0 => Start::Lowest,
                    1 => Start::At(self.addr(at)),
                    2 => Start::After(Addr(at)),
                    _ => Start::After(self.addr(at)),
                }
            }

            fn check(self, drafts: Vec<WishDraft>, held: Vec<(u128, u128, bool)>) {
                let mut cluster = Cluster::default();
                for (from, len, own) in held {
                    let network =
                        NetworkName::configured(if own { "own" } else { "default" }).expect("a name");
                    let first = self.addr(from);
                    let last = Addr((first.0 + len % self.size).min(self.base + self.size));
                    cluster.hold(&network, Span { first, last });
                }
                let parts: Vec<(RangeSet, Start, Option<Addr>)> = drafts
                    .into_iter()
                    .map(|(ranges, kind, at, request)| {
                        let ranges = ranges.into_iter().map(|draft| self.range(draft)).collect();
                        let set = RangeSet::new(ranges).expect("a set");
                        (set, self.start(kind, at), request.map(|at| self.addr(at)))
                    })
                    .collect();
                let wishes: Vec<Wish<'_>> = parts
                    .iter()
                    .map(|(set, start, request)| Wish { set, start: *start, request: *request })
                    .collect();
                assert_eq!(cluster.settle(&wishes, View::default()).0, model(&wishes, &cluster));
                assert_eq!(cluster.settle(&wishes, self.all_known(&cluster)).0, model(&wishes, &cluster));
            }

            fn all_known(self, cluster: &Cluster) -> View {
                let mut view = View::default();
                for network in ["own", "default"].map(|name| NetworkName::configured(name).expect("a name")) {
                    for page in Addr(self.base).page().0..=Addr(self.base + self.size).page().0 {
                        view.set_page(&network, Page(page), cluster.page(&network, Page(page)));
                    }
                }
                view
            }
        }

        fn wishes() -> impl Strategy<Value = Vec<WishDraft>> {
            let n = || any::<u32>().prop_map(u128::from);
            let excludes = prop::collection::vec((n(), any::<u8>()), 0..3);
            let range = (n(), n(), excludes, prop::collection::vec(n(), 0..2), prop::bool::weighted(0.2));
            let wish = (prop::collection::vec(range, 1..4), 0..5u8, n(), prop::option::weighted(0.2, n()));
            prop::collection::vec(wish, 1..4)
        }

        fn held(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u128, u128, bool)>> {
            let n = || any::<u32>().prop_map(u128::from);
            prop::collection::vec((n(), n(), prop::bool::weighted(0.2)), count)
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(400))]
            #[test]
            fn narrow_ranges(wishes in wishes(), held in held(0..6)) {
                NARROW.check(wishes, held);
            }
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(60))]
            #[test]
            fn ranges_of_many_pages(wishes in wishes(), held in held(0..8)) {
                WIDE.check(wishes, held);
            }
        }
    }
}
