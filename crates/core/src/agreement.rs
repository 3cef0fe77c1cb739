//! The question to all endpoints which store they are, and what their answers come to. Pure; `metes_engine::endpoints`
//! asks it.
//!
//! A node that knows no store yet must not take the first answer for the truth: a member that was begun anew alone, or
//! an etcd of another purpose in the list, has a quorum of its own and answers as well as any other. So more than half
//! of the endpoints must show one store, and none another one.

use std::fmt::Write;

use crate::pool::{Meta, Record};

/// What an endpoint shows, by a read that its etcd's quorum has confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The id of its etcd.
    pub cluster: u64,
    /// The id of its member.
    pub member: u64,
    /// The revision of its store.
    pub revision: i64,
    /// The value of meta; none if there is no meta.
    pub meta: Option<Vec<u8>>,
    /// The mod revision of the own key of the node that asks; none if no run of that node has left it.
    pub own_key: Option<i64>,
}

impl Shown {
    /// The id of the store; none if there is no meta. A meta that does not decode stands for itself.
    fn store(&self) -> Option<String> {
        let value = self.meta.as_ref()?;
        Some(Meta::decode(value).map_or_else(|_| String::from_utf8_lossy(value).into_owned(), |meta| meta.id))
    }

    /// True if both are of one store. Etcds that were begun with the defaults of etcd have one id, so the id of the
    /// etcd alone tells nothing.
    fn is_same_store(&self, other: &Self) -> bool {
        self.cluster == other.cluster && self.store() == other.store()
    }

    /// True if both may be one member under two URLs.
    fn is_same_voice(&self, other: &Self) -> bool {
        self.member == other.member && self.is_same_store(other)
    }

    fn words(&self) -> String {
        let store = match self.store() {
            None => "no store".to_owned(),
            Some(id) => format!("store {}", id.chars().take(SHOWN_ID).collect::<String>()),
        };
        format!("{store} in the etcd with cluster id {:x}", self.cluster)
    }
}

/// So much of a store's id is shown to people.
const SHOWN_ID: usize = 12;

/// Answers of endpoints so far.
#[derive(Debug, Clone)]
pub struct Tally {
    said: Vec<(String, Option<Result<Shown, String>>)>,
}

/// What the answers come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// More than half of the endpoints show this, and none shows another store.
    Agreed(Shown),
    /// Endpoints show different stores; what each says.
    Differ(String),
    /// Too few endpoints say anything; what each says.
    TooFew(String),
}

impl Tally {
    /// Of these endpoints, none of which has answered yet.
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> Self {
        Self { said: endpoints.into_iter().map(|endpoint| (endpoint, None)).collect() }
    }

    /// Takes what the endpoint at this place shows, or why it says nothing.
    pub fn hear(&mut self, place: usize, said: Result<Shown, String>) {
        if let Some((_, answer)) = self.said.get_mut(place) {
            *answer = Some(said);
        }
    }

    /// What the endpoints show. One member under two URLs counts once.
    fn voices(&self) -> Vec<&Shown> {
        let mut voices: Vec<&Shown> = Vec::new();
        for shown in self.shown() {
            if !voices.iter().any(|voice| voice.is_same_voice(shown)) {
                voices.push(shown);
            }
        }
        voices
    }

    fn shown(&self) -> impl Iterator<Item = &Shown> {
        self.said.iter().filter_map(|(_, said)| said.as_ref()?.as_ref().ok())
    }

    /// What more than half of the endpoints show. An endpoint that has said nothing may be any member.
    fn majority(&self) -> Option<&Shown> {
        let voices = self.voices();
        let silent = self.said.len() - self.shown().count();
        let all = voices.len() + silent;
        let agree = |one: &Shown| voices.iter().filter(|other| one.is_same_store(other)).count();
        let found = voices.iter().find(|one| 2 * agree(one) > all).copied()?;
        // The youngest of these: a read that follows shows nothing older.
        self.shown().filter(|one| one.is_same_store(found)).max_by_key(|one| one.revision)
    }

    /// True if two endpoints show different stores.
    fn is_disputed(&self) -> bool {
        let mut shown = self.shown();
        shown.next().is_some_and(|first| shown.any(|other| !first.is_same_store(other)))
    }

    /// True if more than half agree. The others may still object.
    #[must_use]
    pub fn has_majority(&self) -> bool {
        self.majority().is_some()
    }

    /// True if no further answer changes the verdict.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_disputed() || self.said.iter().all(|(_, said)| said.is_some())
    }

    /// True if the endpoints differ only in whether there is a store at all: somebody may have founded one between
    /// their answers.
    #[must_use]
    pub fn may_be_founding(&self) -> bool {
        let (with, without): (Vec<&Shown>, Vec<&Shown>) = self.shown().partition(|one| one.meta.is_some());
        let Some(first) = with.first() else { return false };
        !without.is_empty()
            && with.iter().all(|one| one.is_same_store(first))
            && without.iter().all(|one| one.cluster == first.cluster)
    }

    /// What the answers so far come to.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.majority() {
            _ if self.is_disputed() => Verdict::Differ(self.words()),
            Some(shown) => Verdict::Agreed(shown.clone()),
            None => Verdict::TooFew(self.words()),
        }
    }

    /// What each endpoint says.
    fn words(&self) -> String {
        let mut words = String::new();
        for (place, (endpoint, said)) in self.said.iter().enumerate() {
            let between = if place == 0 { "" } else { "; " };
            let said = match said {
                None => format!("{endpoint} has not answered"),
                Some(Ok(shown)) => format!("{endpoint} shows {}", shown.words()),
                // It names its endpoint.
                Some(Err(why)) if why.contains(endpoint.as_str()) => why.clone(),
                Some(Err(why)) => format!("{endpoint}: {why}"),
            };
            let _ = write!(words, "{between}{said}");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(cluster: u64, member: u64, store: Option<&str>) -> Shown {
        let meta = store.map(|id| Meta::first(id.to_owned()).encode());
        Shown { cluster, member, revision: 7, meta, own_key: None }
    }

    fn tally(said: &[Option<Shown>]) -> Tally {
        let mut tally = Tally::new((0..said.len()).map(|place| format!("http://e{place}")).collect());
        for (place, said) in said.iter().enumerate() {
            tally.hear(place, said.clone().ok_or_else(|| "refused".to_owned()));
        }
        tally
    }

    #[test]
    fn more_than_half_must_show_one_store_and_none_another() {
        let (own, silent) = (|member| Some(shown(1, member, Some("s"))), None::<Shown>);
        let none = |member| Some(shown(1, member, None));
        let agreed = |said: &[Option<Shown>]| matches!(tally(said).verdict(), Verdict::Agreed(_));
        let differ = |said: &[Option<Shown>]| matches!(tally(said).verdict(), Verdict::Differ(_));
        let too_few = |said: &[Option<Shown>]| matches!(tally(said).verdict(), Verdict::TooFew(_));
        assert!(agreed(&[own(1)]), "a single endpoint is its own majority");
        assert!(agreed(&[own(1), own(2), silent.clone()]));
        assert!(agreed(&[none(1), none(2), silent.clone()]), "nobody has founded one yet");
        assert!(too_few(&[own(1), silent.clone()]), "half is not more than half");
        assert!(too_few(std::slice::from_ref(&silent)) && too_few(&[own(1), silent.clone(), silent.clone()]));
        assert!(differ(&[own(1), own(2), Some(shown(2, 9, Some("t")))]), "one of another etcd");
        assert!(differ(&[own(1), own(2), Some(shown(2, 9, None))]), "one that was begun anew alone");
        assert!(
            differ(&[own(1), own(2), Some(shown(1, 1, Some("t")))]),
            "with etcd's defaults all ids are equal"
        );
        assert!(
            differ(&[own(1), own(2), Some(shown(2, 1, Some("s")))]),
            "a copy of the store in another etcd"
        );
        assert!(differ(&[own(1), none(1)]), "one of two etcds with equal ids was founded");
    }

    #[test]
    fn one_member_under_two_urls_counts_once() {
        let own = |member| Some(shown(1, member, Some("s")));
        assert!(tally(&[own(1), own(1)]).has_majority());
        assert!(!tally(&[own(1), own(1), None]).has_majority(), "it is one of two");
        assert!(tally(&[own(1), own(1), own(2), None]).has_majority(), "two of three");
    }

    #[test]
    fn each_endpoint_is_told_with_what_it_says() {
        let said = tally(&[Some(shown(0xa, 1, Some("0123456789abcdef"))), Some(shown(0xb, 2, None)), None]);
        let Verdict::Differ(words) = said.verdict() else { panic!("they differ") };
        assert_eq!(
            words,
            "http://e0 shows store 0123456789ab in the etcd with cluster id a; http://e1 shows no store in the etcd \
             with cluster id b; http://e2: refused"
        );
    }

    #[test]
    fn who_asks_while_another_founds_asks_once_more() {
        let (own, none) = (Some(shown(1, 1, Some("s"))), Some(shown(1, 2, None)));
        assert!(tally(&[own.clone(), none.clone()]).may_be_founding());
        assert!(!tally(&[own.clone(), Some(shown(1, 2, Some("t")))]).may_be_founding());
        assert!(
            !tally(&[own.clone(), Some(shown(2, 2, None))]).may_be_founding(),
            "another etcd is no founder"
        );
        assert!(!tally(&[own]).may_be_founding() && !tally(&[none]).may_be_founding());
    }

    proptest! {
        /// Against a count of members: two runs that ask the same endpoints never agree on two stores, whichever of
        /// them are silent for which run.
        #[test]
        fn no_two_runs_agree_on_two_stores(
            members in proptest::collection::vec((0..2_u64, 0..3_u64, 0..3_u8), 1..6),
            silent in proptest::collection::vec((any::<bool>(), any::<bool>()), 6),
        ) {
            let stores = [None, Some("s"), Some("t")];
            let said = |of: usize| -> Vec<Option<Shown>> {
                members.iter().zip(&silent).map(|((cluster, member, store), silent)| {
                    let is_silent = if of == 0 { silent.0 } else { silent.1 };
                    // Members have names of their own here: URLs of one member are another test.
                    let member = *member + 10 * *store as u64 + 100 * *cluster;
                    (!is_silent).then(|| shown(*cluster, member, stores[*store as usize]))
                }).collect()
            };
            let distinct: std::collections::BTreeSet<_> = members.iter().collect();
            prop_assume!(distinct.len() == members.len());
            let [one, other] = [0, 1].map(|of| tally(&said(of)).verdict());
            if let (Verdict::Agreed(one), Verdict::Agreed(other)) = (one, other) {
                prop_assert!(one.is_same_store(&other));
            }
        }
    }
}
