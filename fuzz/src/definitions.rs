//! A NetworkAttachmentDefinition, which a namespace's user writes, as the reconciler reads it.

use std::net::IpAddr;

use metes_config::Source;
use metes_config::validate::{JudgedNetwork, NetworkText, compare, judge_network};
use metes_core::keys::Scope;
use metes_core::pool::Held;
use metes_reconciler::import::nads::{Nad, NadId, Plugin, prefixes};
use metes_reconciler::nad::Definition;
use metes_reconciler::pools::Pools;

use super::config::check_set;

pub(super) fn definitions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let definition = Definition::parse("nad", text, &Pools::default(), None);
    let network = NetworkText { label: "nad", namespace: "ns", name: "nad", resource: "", config: text };
    let JudgedNetwork { issues, uses, is_of_another, .. } = judge_network(network, &Source::Network);
    // Where an ADD finds metes, everybody does.
    assert!(is_of_another || !matches!(definition, Definition::Other));
    assert!(!is_of_another || uses.is_empty() && !issues.is_empty());
    let twice: Vec<_> = uses.iter().chain(&uses).cloned().collect();
    assert!(compare(&twice).iter().all(|(at, _)| *at < twice.len()));
    if let Definition::Metes(network) = definition {
        let scope = network.scope();
        assert_eq!(Scope::stored(scope.as_str()), Ok(scope));
        for addresses in [&["10.0.0.9", "fd00::9"][..], &["fd00::9", "10.0.0.9", "192.0.2.7"], &[]] {
            let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().expect("an address")).collect();
            match network.held(&addresses) {
                Ok(held) => check_held(&addresses, &held),
                Err(refused) => assert!(addresses.contains(&refused)),
            }
        }
    }
    let id = NadId { namespace: "ns".to_owned(), name: "nad".to_owned() };
    let nad = Nad::read(id.clone(), "uid".to_owned(), "1".to_owned(), Some(text));
    assert!(nad.uses.is_empty() || nad.unread.is_none());
    assert_eq!(nad.uses_whereabouts(), nad.uses.iter().any(|one| one.plugin == Plugin::Whereabouts));
    for one in &nad.uses {
        assert_eq!(one.nad, id);
        if let Ok(ranges) = &one.ranges {
            ranges.sets.iter().for_each(check_set);
            assert_eq!(Scope::stored(ranges.scope.as_str()).as_ref(), Ok(&ranges.scope));
            assert!(ranges.prefix.is_empty() || ranges.prefix.ends_with('-'), "{:?}", ranges.prefix);
        }
    }
    let uses: Vec<_> = nad.uses.iter().collect();
    assert!(prefixes(&uses).is_sorted_by_key(|prefix| std::cmp::Reverse(prefix.len())));
}

/// The same addresses in another order.
fn check_held(addresses: &[IpAddr], held: &[Held]) {
    let mut found: Vec<IpAddr> = held.iter().map(|held| held.address).collect();
    let mut expected = addresses.to_vec();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
