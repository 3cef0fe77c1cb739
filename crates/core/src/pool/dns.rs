//! Name resolution, as a pool says it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The longest name of a domain, in characters.
const NAME_MAX: usize = 253;

/// The part that a pool adds to the DNS of a result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "`dns`, such as {nameservers: [10.0.0.53]}")]
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
    /// True if it adds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the entries of another pool. Of two local domains the first one stays.
    pub(crate) fn join(&mut self, other: &Self) {
        add(&mut self.nameservers, &other.nameservers);
        add(&mut self.search, &other.search);
        add(&mut self.options, &other.options);
        if self.domain.is_empty() {
            self.domain.clone_from(&other.domain);
        }
    }

    /// Each text is one word of a resolv.conf; else a key of it, and why that is wrong.
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        let is_word =
            |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
        let is_name = |name: &str| is_word(name) && name.len() <= NAME_MAX;
        let no_domain = |key: String, name: &str| (key, format!("{name:?} is not a domain: write one word"));
        if !self.domain.is_empty() && !is_name(&self.domain) {
            return Err(no_domain("domain".to_owned(), &self.domain));
        }
        if let Some(at) = self.search.iter().position(|name| !is_name(name)) {
            return Err(no_domain(format!("search[{at}]"), &self.search[at]));
        }
        match self.options.iter().position(|option| !is_word(option)) {
            Some(at) => Err((
                format!("options[{at}]"),
                format!("{:?} is not a resolver option: write one word, such as ndots:2", self.options[at]),
            )),
            None => Ok(()),
        }
    }
}

/// Adds those that are not there.
pub fn add<T: Clone + PartialEq>(all: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}
