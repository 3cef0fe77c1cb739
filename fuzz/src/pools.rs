//! The text of a pool, as an operator writes it and as it is stored.

use metes_core::pool::{FromPool, Held, PoolChanges, PoolDefinition, PoolRecord, RangeSet, Record, Standing};

pub(super) fn pools(data: &[u8]) {
    let Ok(pool) = serde_json::from_slice::<PoolDefinition>(data) else { return };
    let stored = PoolRecord::new(pool.clone()).encode();
    assert_eq!(PoolRecord::decode(&stored).map(|record| record.definition), Ok(pool.clone()));
    // The record that `auto` chooses by has the pool if it is for somebody, and comes back.
    let changes = PoolChanges::of([&pool]);
    assert_eq!(changes.auto.len(), usize::from(pool.selector.is_some()));
    assert_eq!(PoolChanges::decode(&changes.encode()), Ok(changes));
    let (all, open) =
        (pool.all_ranges().expect("it was checked"), pool.open_ranges(&[]).expect("it was checked"));
    assert!(RangeSet::new(all.clone()).is_ok(), "all are of one family");
    assert!(open.iter().all(|range| all.contains(range)));
    for (at, range) in all.iter().enumerate() {
        assert_eq!(range.network(), &pool.network);
        assert!(all[..at].iter().all(|other| other.last() < range.first() || range.last() < other.first()));
        // The addresses that a range gives are the pool's, and a gateway's address is given to nobody.
        let given = range.spans().iter().flat_map(|span| [span.first, span.last]);
        for address in given {
            let held = Held::new(address.ip(), Some(pool.network.clone()));
            assert_eq!(FromPool::of(&[&pool], &held).map(|from| from.name), Some(pool.pool.clone()));
        }
        for gateway in pool.ranges.iter().filter_map(|range| range.gateway) {
            assert_ne!(range.standing(gateway.into()), Standing::Assignable);
        }
    }
}
