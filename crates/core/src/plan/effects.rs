//! A commit's effects, as its plan knows them. Pure.
//!
//! An effect may depend on a transaction inside the commit. Then it names the place of that transaction. The answer
//! there tells whether the effect has come about.

use crate::keys::{Bytes, NetworkAddress};
use crate::txn::{Found, Txn};

/// A transaction that changes what is held, with its effects.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The transaction.
    pub txn: Txn,
    /// Its effects if it is applied.
    pub effects: Effects,
}

/// A commit's effects on other runs and on its own run's knowledge, besides the result of its own change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// The tickets that it removes: that of its own run, and those of the DELs that it serves.
    pub removes: Vec<Bytes>,
    /// The ADDs that it serves.
    pub serves: Vec<Serving>,
    /// The bits that transactions inside it clear, if their pages are still as they were read.
    pub clears: Vec<Clearing>,
    /// Addresses that it frees without clearing their bits.
    pub stray: Vec<NetworkAddress>,
    /// The place of the transaction that gives another run its turn. After such a commit the head stops.
    pub turn: Option<Position>,
    /// The places of the transactions that end the queue.
    pub ends: Vec<Position>,
    /// The key and the value of the record that it writes about the ranges that a configuration asks for.
    pub asked: Option<(Bytes, Vec<u8>)>,
    /// True if it writes the first meta of the store.
    pub founds: bool,
    /// True if it puts the node's own key.
    pub puts_own_key: bool,
}

/// An ADD that is served by a transaction inside a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// The place of the transaction.
    pub(crate) place: Position,
    pub(crate) ticket: Bytes,
    /// The run's addresses. The commit sets their bits even if it cannot serve the run any more.
    pub(crate) addresses: Vec<NetworkAddress>,
    /// The place, inside that transaction, of the transaction that ends the queue.
    pub(crate) end: Option<Position>,
}

/// The bits of freed addresses that a transaction inside a commit clears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clearing {
    /// The place of the transaction.
    pub(crate) place: Position,
    pub(crate) addresses: Vec<NetworkAddress>,
}

/// The place of a transaction inside another one: its position among the operations of `then`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position(pub usize);

impl Position {
    /// True if the transaction at this place was applied. `found` is the answer to the applied transaction around it.
    #[must_use]
    pub fn is_carried_out(self, found: &[Found]) -> bool {
        self.carried_out(found).is_some()
    }

    /// The answers to the operations of the transaction at this place, if it was applied.
    fn carried_out(self, found: &[Found]) -> Option<&[Found]> {
        let reply = found.get(self.0)?.nested.as_ref()?;
        reply.succeeded.then_some(&reply.found)
    }
}

/// The effects of an applied commit that have come about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The tickets that are gone with it.
    pub gone: Vec<Bytes>,
    /// Addresses that nobody holds and whose bits are set: those of runs that it could not serve any more, and those
    /// that it has freed without clearing their bits.
    pub stray: Vec<NetworkAddress>,
    /// True if another run has got its turn; false if that run had left before.
    pub has_given_turn: bool,
    /// True if the queue has ended; false if another run had come meanwhile.
    pub has_ended_queue: bool,
}

impl Effects {
    /// The outcome, by the answer to the applied commit.
    #[must_use]
    pub fn outcome(&self, found: &[Found]) -> Outcome {
        let mut outcome = Outcome {
            gone: self.removes.clone(),
            stray: self.stray.clone(),
            has_given_turn: self.turn.is_some_and(|turn| turn.is_carried_out(found)),
            has_ended_queue: self.ends.iter().any(|end| end.is_carried_out(found)),
        };
        for Serving { place, ticket, addresses, end } in &self.serves {
            match place.carried_out(found) {
                Some(inside) => {
                    outcome.gone.push(ticket.clone());
                    outcome.has_ended_queue |= end.is_some_and(|end| end.is_carried_out(inside));
                }
                None => outcome.stray.extend_from_slice(addresses),
            }
        }
        for Clearing { place, addresses } in &self.clears {
            if !place.is_carried_out(found) {
                outcome.stray.extend_from_slice(addresses);
            }
        }
        outcome
    }
}
