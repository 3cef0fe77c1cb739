//! The sources of an ADD's addresses. Pure.

use std::rc::Rc;

use super::known_pool::KnownPool;
use crate::keys::NetworkAddress;
use crate::pool::{Addr, Cooldown, FromPool, Held, Range, RangeSet};

/// A range set that one address is taken from.
#[derive(Debug, Clone)]
pub(crate) struct SourceSet {
    pub(crate) set: RangeSet,
    /// The address that is asked of it. The set covers it, but it may not be assignable.
    pub(crate) request: Option<Addr>,
    pub(crate) source: Source,
}

impl SourceSet {
    /// True if an owner of this address may keep it. Start, end and excludes may have changed since.
    pub(crate) fn fits(&self, held: &Held) -> bool {
        let address = Addr::from(held.address);
        let has_it = |range: &Range| range.covers(address) && held.network.as_ref() == Some(range.network());
        self.set.ranges().iter().any(has_it) && self.request.is_none_or(|request| request == address)
    }
}

/// The source of an address.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// The configuration, with the cooldown of its addresses.
    Config(Cooldown),
    /// A pool.
    Pool(Rc<KnownPool>),
}

impl Source {
    fn cooldown(&self) -> Cooldown {
        match self {
            Source::Config(cooldown) => *cooldown,
            Source::Pool(pool) => pool.definition.cooldown(),
        }
    }

    /// The address as an owner holds it that gets it from here.
    pub(crate) fn give(&self, (network, address): &NetworkAddress) -> Held {
        let cooldown_s = self.cooldown().time.seconds();
        let held = Held { cooldown_s, ..Held::new(address.ip(), Some(network.clone())) };
        match self {
            Source::Config(_) => held,
            Source::Pool(pool) => Held { pool: FromPool::of(&[&pool.definition], &held), ..held },
        }
    }
}

/// A source that has no free address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Full {
    /// A range set of the configuration.
    Ranges(RangeSet, Cooldown),
    /// The pool of an element.
    Pool {
        /// The element's position.
        element: usize,
        /// The pool.
        pool: Rc<KnownPool>,
        /// Its open ranges; none if it gives this ADD no address.
        open: Option<RangeSet>,
        /// The element has another pool after this one.
        has_next: bool,
    },
}

impl Full {
    /// The full ranges, and their cooldown; none if no address was looked for.
    #[must_use]
    pub fn set(&self) -> Option<(&RangeSet, Cooldown)> {
        match self {
            Full::Ranges(set, cooldown) => Some((set, *cooldown)),
            Full::Pool { pool, open, .. } => Some((open.as_ref()?, pool.definition.cooldown())),
        }
    }
}
