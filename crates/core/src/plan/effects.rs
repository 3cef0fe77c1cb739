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
    /// The turns that it gives to other runs.
    pub turns: Vec<Turn>,
    /// Transactions that remove tickets of deleted owners, each with its ticket.
    pub drops: Vec<(Position, Bytes)>,
    /// The places of the transactions that end the queue.
    pub ends: Vec<Position>,
    /// The key and the value of the record that it writes about the ranges that a configuration asks for.
    pub asked: Option<(Bytes, Vec<u8>)>,
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
    /// The place, in its Else branch, of the transaction that removes the ticket of a deleted owner.
    pub(crate) drop: Option<Position>,
}

/// The turn of another run, given by a transaction inside a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// The place of the transaction. The first operation of its Else branch removes the ticket of a deleted owner.
    pub(crate) place: Position,
    pub(crate) ticket: Bytes,
    /// True if the run decides for itself alone, and serves nobody.
    pub(crate) is_alone: bool,
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

/// The place, in the operations that remove a ticket, of the transaction that ends the queue.
pub(crate) const END_OF_QUEUE: Position = Position(1);

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

    /// The answers to the Else branch of the transaction at this place, if that was taken.
    fn refused(self, found: &[Found]) -> Option<&[Found]> {
        let reply = found.get(self.0)?.nested.as_ref()?;
        (!reply.succeeded).then_some(&reply.found)
    }
}

/// The effects of an applied commit that have come about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The tickets that are gone with it.
    pub gone: Vec<Bytes>,
    /// True if some of them were those of deleted owners.
    pub has_dropped: bool,
    /// Addresses that nobody holds and whose bits are set: those of runs that it could not serve any more, and those
    /// that it has freed without clearing their bits.
    pub stray: Vec<NetworkAddress>,
    /// True if another run has got its turn, and will serve those behind it; false if that run had left before.
    pub has_given_turn: bool,
    /// True if the queue has ended; false if another run had come meanwhile.
    pub has_ended_queue: bool,
}

impl Effects {
    /// True if it gives a turn to a run that will serve those behind it. After such a commit the head stops.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        self.turns.iter().any(|turn| !turn.is_alone)
    }

    /// The outcome, by the answer to the applied commit.
    #[must_use]
    pub fn outcome(&self, found: &[Found]) -> Outcome {
        let mut outcome = Outcome {
            gone: self.removes.clone(),
            has_dropped: false,
            stray: self.stray.clone(),
            has_given_turn: self.turns.iter().any(|turn| !turn.is_alone && turn.place.is_carried_out(found)),
            has_ended_queue: self.ends.iter().any(|end| end.is_carried_out(found)),
        };
        let of_served = self.serves.iter().filter_map(|Serving { place, ticket, drop, .. }| {
            Some(((*drop)?.carried_out(place.refused(found)?)?, ticket))
        });
        let of_turns = self.turns.iter().filter_map(|Turn { place, ticket, .. }| {
            Some((Position(0).carried_out(place.refused(found)?)?, ticket))
        });
        let others =
            self.drops.iter().filter_map(|(place, ticket)| Some((place.carried_out(found)?, ticket)));
        for (removal, ticket) in of_served.chain(of_turns).chain(others) {
            outcome.gone.push(ticket.clone());
            outcome.has_dropped = true;
            outcome.has_ended_queue |= END_OF_QUEUE.is_carried_out(removal);
        }
        for Serving { place, ticket, addresses, end, .. } in &self.serves {
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
