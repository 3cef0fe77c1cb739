//! All that decides in metes: addresses, stored records, keys, transactions as values, and the plan of every change.
//!
//! Nothing here does I/O, reads a clock, draws a random number or logs: values in, values out.
//!
//! - [`pool`]: addresses, pages, ranges, the choice of a free address, the stored records.
//! - [`keys`], [`txn`], [`snapshot`]: the key layout, a request, and the keys that were read.
//! - [`builder`]: a transaction that changes reservations, built from a snapshot.
//! - [`ticket`], [`request`], [`mod@line`], [`fence`]: a run in a queue, and the bound of its commit.
//! - [`meta`], [`known`], [`agreement`]: the store's own record, a node's knowledge of the store, and what all
//!   endpoints say of it to a node that has none. [`cooling`]: leases of addresses that rest.
//! - [`plan`]: the next step of each change.
//! - [`limits`]: all bounds. [`named`]: enums whose variants have names. [`memory`]: a store for unit tests.

pub mod agreement;
pub mod builder;
pub mod cooling;
pub mod fence;
pub mod keys;
pub mod known;
pub mod limits;
pub mod line;
pub mod memory;
pub mod meta;
pub mod named;
pub mod plan;
pub mod pool;
pub mod request;
pub mod snapshot;
pub mod ticket;
pub mod txn;
