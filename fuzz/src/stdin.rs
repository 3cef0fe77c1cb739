//! The input of a runtime: the variables, each with a zero byte after it, then stdin.

use metes_config::cni::{Environment, Request};
use metes_config::{Config, IpamSettings, Settings};

use super::config::{check_config, check_error, check_request, check_settings};

pub(super) fn stdin(data: &[u8]) {
    let (environment, stdin) = split(data);
    let request = match Request::parse(&environment, stdin) {
        Ok(request) => request,
        Err(e) => return check_error(&e),
    };
    check_request(&request);
    let said = IpamSettings::of(&request);
    assert_eq!(said.store.is_empty(), said.store.refuse_beside_host_file().is_ok());
    match Settings::from_network(&said.store) {
        Ok(settings) => check_settings(&settings),
        Err(e) => check_error(&e),
    }
    match Config::parse(&request) {
        Ok(config) => check_config(&request, &config),
        Err(e) => check_error(&e),
    }
}

fn split(data: &[u8]) -> (Environment, &[u8]) {
    const NAMES: [&str; 7] = [
        "CNI_COMMAND",
        "CNI_CONTAINERID",
        "CNI_NETNS",
        "CNI_IFNAME",
        "CNI_ARGS",
        "CNI_PATH",
        "CNI_NETNS_OVERRIDE",
    ];
    let mut parts = data.splitn(NAMES.len() + 1, |byte| *byte == 0);
    let values: Vec<&[u8]> = parts.by_ref().take(NAMES.len()).collect();
    let lookup = |name: &str| {
        let at = NAMES.iter().position(|known| *known == name)?;
        // As main reads them: what is not UTF-8 is not there.
        String::from_utf8(values.get(at)?.to_vec()).ok()
    };
    (Environment::from_lookup(lookup), parts.next().unwrap_or_default())
}
