//! Why an ADD came to nothing, as its caller hears it.

use super::give_back::spool;
use crate::commands::Run;
use crate::commands::errors::{self, ToCni};
use metes_config::cni::error::Error;
use metes_core::keys::Key;
use metes_core::plan::allot::{Added, Allotted, Refused};
use metes_core::plan::ask::Ask;
use metes_core::plan::pools::PoolRefused;
use metes_core::pool::PoolName;
use metes_core::txn::{Entry, List, Op, Txn};
use metes_engine::drive::Stopped;
use metes_engine::kv::Kv;

/// The error of CNI, with what the store can add to it.
pub(super) async fn error<K: Kv>(run: &Run<'_, K>, ask: &Ask, stopped: Stopped<Allotted, Refused>) -> Error {
    match stopped {
        Stopped::Refused(Refused::Pool(PoolRefused::Missing(name))) => {
            errors::no_such_pool(&name, &pool_names(run).await)
        }
        Stopped::Refused(why) => why.to_cni(),
        Stopped::Failed(failure) => failure.to_cni(),
        // The owner keeps what it held before this run, because another run has answered with it.
        Stopped::Unsettled(Some(Allotted::Held(Added { repeats: true, .. })), failure) => failure.to_cni(),
        Stopped::Unsettled(_, failure) => spool(run, ask, &failure),
        Stopped::Suspect(doubt) => doubt.to_cni(),
        Stopped::OutOfTime => run.must_go_on().err().unwrap_or_else(errors::out_of_time),
    }
}

/// The names of all pools, as far as they can be read.
async fn pool_names<K: Kv>(run: &Run<'_, K>) -> Vec<PoolName> {
    let prefix = run.session.keys.pools();
    let list = Op::List(List { keys_only: true, ..List::prefix(&prefix, 0) });
    let Ok(read) = run.session.txn(&Txn { step: "pools", then: vec![list], ..Txn::default() }).await else {
        return Vec::new();
    };
    let name = |entry: &Entry| match run.session.keys.parse(&entry.key) {
        Ok(Key::Pool(name)) => Some(name),
        _ => None,
    };
    read.found.iter().flat_map(|found| &found.entries).filter_map(name).collect()
}
