//! Name resolution, as a pool says it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The longest name of a domain, in characters.
const NAME_MAX: usize = 253;

/// What a pool adds to the DNS of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolDns {
    /// Name servers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<IpAddr>,
    /// The local domain; empty means none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

impl PoolDns {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what another pool says. Of two local domains the first one stays.
    pub(crate) fn join(&mut self, other: &Self) {
        add(&mut self.nameservers, &other.nameservers);
        add(&mut self.search, &other.search);
        add(&mut self.options, &other.options);
        if self.domain.is_empty() {
            self.domain.clone_from(&other.domain);
        }
    }

    /// Each text is one word of a resolv.conf.
    pub(super) fn check(&self) -> Result<(), String> {
        let is_word =
            |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        let is_name = |name: &&String| is_word(name) && name.len() <= NAME_MAX;
        let domain = Some(&self.domain).filter(|domain| !domain.is_empty());
        if let Some(name) = domain.into_iter().chain(&self.search).find(|name| !is_name(name)) {
            return Err(format!("`dns` has {name:?}, which is no domain"));
        }
        match self.options.iter().find(|option| !is_word(option)) {
            Some(option) => Err(format!("`dns` has {option:?}, which is no option of a resolver")),
            None => Ok(()),
        }
    }
}

/// Adds those that are not there.
pub(crate) fn add<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}
