//! The lists that runtimes hand back: prevResult, and GC's list of valid attachments.

use metes_config::cni::Json;
use metes_config::cni::previous::{prev_result_addresses, valid_attachments};

use super::config::check_error;

const LISTS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];

pub(super) fn previous(data: &[u8]) {
    let Ok(config) = Json::parse(data) else { return };
    match prev_result_addresses(&config) {
        Ok(None) => assert!(config.get("prevResult").is_none_or(|result| *result == Json::Null)),
        Ok(Some(addresses)) => {
            assert!(matches!(config.get("prevResult"), Some(Json::Object(_))));
            for (address, gateway) in addresses {
                assert_eq!(address, address.to_canonical());
                assert_eq!(gateway, gateway.map(|gateway| gateway.to_canonical()));
            }
        }
        Err(e) => check_error(&e),
    }
    match valid_attachments(&config) {
        Ok(found) => check_attachments(&config, found.map(|found| found.len())),
        Err(e) => check_error(&e),
    }
}

/// A GC frees what is not listed. So no entry is ever left out, and a missing list is never taken for an empty one.
fn check_attachments(config: &Json, found: Option<usize>) {
    let lists: Vec<&Json> = LISTS.iter().filter_map(|key| config.get(key)).collect();
    let listed = |list: &&Json| match list {
        Json::Null => 0,
        Json::Array(items) => items.len(),
        other => panic!("{other:?} is no list"),
    };
    let expected = (!lists.is_empty()).then(|| lists.iter().map(listed).sum());
    assert_eq!(found, expected);
}
