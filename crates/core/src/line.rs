//! The runs that wait in a queue, as a head has read them. Pure.

use super::keys::NetworkAddress;
use super::request::{Asked, TicketRecord};
use super::txn::Entry;
use crate::pool::Record;

/// A run that waits in a queue, as its ticket was read.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The ticket.
    pub ticket: Entry,
    /// Its request; none if only the run itself can decide.
    pub(crate) asked: Option<Asked>,
}

impl Waiting {
    /// The run whose ticket this is.
    #[must_use]
    pub fn of(ticket: Entry) -> Self {
        let record = TicketRecord::decode(&ticket.value).ok();
        Self { asked: record.and_then(TicketRecord::asked), ticket }
    }

    /// True if a head has given it its turn: then the ticket was written again.
    #[must_use]
    pub fn has_its_turn(&self) -> bool {
        self.ticket.mod_revision != self.ticket.create_revision
    }
}

/// The runs that wait in a queue besides the one at its head, the oldest first.
#[derive(Debug, Default)]
pub struct Line {
    /// The runs.
    pub waiting: Vec<Waiting>,
    /// True if the head stops after its next commit, and so gives another run its turn.
    pub hands_over: bool,
    /// Addresses with stray bits that the head has set for runs which it could not serve.
    pub stray: Vec<NetworkAddress>,
}

impl Line {
    /// The line by a listing of the queue, oldest first, without the tickets for which `is_gone` is true.
    #[must_use]
    pub fn new(tickets: &[Entry], is_gone: impl Fn(&[u8]) -> bool) -> Self {
        let there = tickets.iter().filter(|entry| !is_gone(&entry.key));
        Self { waiting: there.cloned().map(Waiting::of).collect(), hands_over: false, stray: Vec::new() }
    }

    /// True if nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
