//! The runs that wait in a queue, as a head has read them. Pure.

use super::keys::NetworkAddress;
use super::request::{Asked, TicketRecord};
use super::txn::Entry;
use crate::pool::{Owner, Record};

/// A run that waits in a queue, as its ticket was read.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The ticket.
    pub ticket: Entry,
    /// For whom it waits; none if the ticket does not decode.
    pub(crate) owner: Option<Owner>,
    /// Its request; none if only the run itself can decide.
    pub(crate) asked: Option<Asked>,
}

impl Waiting {
    /// The run whose ticket this is.
    #[must_use]
    pub fn of(ticket: Entry) -> Self {
        let record = TicketRecord::decode(&ticket.value).ok();
        let owner = record.as_ref().map(|record| record.owner.clone());
        Self { asked: record.and_then(TicketRecord::asked), owner, ticket }
    }

    /// True if a head has given it its turn: then the ticket was written again.
    #[must_use]
    pub fn has_its_turn(&self) -> bool {
        self.ticket.mod_revision != self.ticket.create_revision
    }

    /// True if it is a free that another run has asked for.
    #[must_use]
    pub fn is_free(&self) -> bool {
        matches!(self.asked, Some(Asked::Free(..)))
    }
}

/// The runs that wait in a queue besides the one at its head, the oldest first.
#[derive(Debug, Default)]
pub struct Line {
    /// The runs.
    pub waiting: Vec<Waiting>,
    /// True if the head stops after its next commit, and so gives another run its turn.
    pub hands_over: bool,
    /// True if the head was given no turn: it has seen nothing move. Then some of those who wait are probably dead.
    pub is_impatient: bool,
    /// True if the head has given a run its turn. That run may be dead.
    pub has_given_turn: bool,
    /// True if the head serves no free of another run: the lease for a tombstone of one of them has ended.
    pub leaves_frees: bool,
    /// Addresses with stray bits that the head has set for runs which it could not serve.
    pub stray: Vec<NetworkAddress>,
}

impl Line {
    /// The line by a listing of the queue, oldest first, without the tickets for which `is_gone` is true.
    #[must_use]
    pub fn new(tickets: &[Entry], is_gone: impl Fn(&[u8]) -> bool) -> Self {
        let there = tickets.iter().filter(|entry| !is_gone(&entry.key));
        Self { waiting: there.cloned().map(Waiting::of).collect(), ..Self::default() }
    }

    /// True if nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
