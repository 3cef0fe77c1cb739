//! The network configuration, read from `ipam`, `args`, `runtimeConfig` and CNI_ARGS together.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::keys::{Findings, two_forms};
use super::sections::Sections;
use super::statics::Given;
use super::{hostlocal, keys, pools, requests, results, statics, whereabouts};
use crate::cni::address::Zeros;
use crate::cni::result::{Dns, Route};
use crate::cni::{Error, Request, Section};
use metes_core::pool::range::RangeSet;
use metes_core::pool::{Addr, Cooldown, CooldownTime, Keep, NetworkName, Order, PoolsWanted, WhenFull};

/// The most addresses that one interface may have, from range sets and static ones together. One transaction takes all
/// of them, and etcd bounds the operations of a transaction.
pub const ADDRESSES_MAX: usize = 30;

/// The `ipam.type` of other plugins. A configuration with one of them came here by mistake.
const OTHER_PLUGINS: [&str; 4] = ["static", "host-local", "dhcp", "whereabouts"];

/// A checked network configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The network's `name` for CNI. Networks of several names may share their addresses.
    pub cni_network: String,
    /// The network in which no address is held twice (`network_name`).
    pub network: NetworkName,
    /// The range sets, in result order: one address is taken from each.
    pub sets: Vec<RangeSet>,
    /// The address requested from each set. It is covered by the set, but may not be assignable.
    pub requests: Vec<Option<Addr>>,
    /// Static addresses, in result order after those of the sets.
    pub statics: Vec<Static>,
    /// The pools to take addresses from instead of sets and static addresses.
    pub pools: Option<PoolsWanted>,
    /// The order of allocation.
    pub order: Order,
    /// The time that addresses of the sets rest after they were freed.
    pub cooldown: Cooldown,
    /// Addresses outlive the pod; none: they end with the container.
    pub sticky: Option<StickyConfig>,
    /// Routes for the result.
    pub routes: Vec<Route>,
    /// DNS for the result.
    pub dns: Dns,
    /// A file in resolv.conf's format whose content is the result's DNS; the caller reads it.
    pub resolv_conf: Option<String>,
    /// One line for each key that has no effect, for the log and the details of an error.
    pub notes: Vec<String>,
}

metes_core::named_enum! {
    /// The name that addresses belong to if they outlive a pod.
    pub enum StickyTo {
        /// That of the pod, and the interface in it.
        Pod = "pod",
    }
}

/// The rules of addresses that outlive a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StickyConfig {
    /// The name that they belong to.
    pub to: StickyTo,
    /// For how long they stay after their last use. Pools say it themselves.
    pub keep: Option<Keep>,
}

/// An address given by the configuration itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Static {
    /// The address with its prefix length; host bits are kept.
    pub address: IpNetwork,
    /// Its gateway.
    pub gateway: Option<IpAddr>,
    /// The network it is reserved in; none if it is only recorded with its owner.
    pub network: Option<NetworkName>,
}

/// The form in which `ipam` is written.
#[derive(Clone, Copy)]
enum Form {
    Whereabouts,
    HostLocal,
    Static,
    Pools,
}

impl Form {
    fn of(sections: &Sections<'_>) -> Result<Self, Error> {
        let ipam = &sections.ipam;
        let given = |keys: &[&str]| keys.iter().find(|key| ipam.has(key)).map(|key| ipam.at(key));
        let host_local = match given(&keys::HOST_LOCAL) {
            None => capability(sections)?,
            key => key,
        };
        if let Some(pools) = pools::key(ipam) {
            return match (given(&keys::WHEREABOUTS), host_local) {
                (Some(key), _) => Err(Form::Pools.beside(&pools, Form::Whereabouts, &key)),
                (_, Some(key)) => Err(Form::Pools.beside(&pools, Form::HostLocal, &key)),
                (None, None) => Ok(Form::Pools),
            };
        }
        match (given(&keys::WHEREABOUTS), host_local) {
            (Some(key), Some(other)) => Err(Form::Whereabouts.beside(&key, Form::HostLocal, &other)),
            (None, Some(key)) if ipam.has("addresses") => {
                Err(Form::Static.beside(&ipam.at("addresses"), Form::HostLocal, &key))
            }
            (Some(_), None) => Ok(Form::Whereabouts),
            (None, Some(_)) => Ok(Form::HostLocal),
            (None, None) => Ok(Form::Static),
        }
    }

    fn zeros(self) -> Zeros {
        match self {
            Form::Whereabouts => whereabouts::ZEROS,
            Form::HostLocal => hostlocal::ZEROS,
            Form::Static | Form::Pools => Zeros::Refused,
        }
    }

    /// The name of the form, as users know it.
    fn name(self) -> &'static str {
        match self {
            Form::Whereabouts => "whereabouts",
            Form::HostLocal => "host-local",
            Form::Static => "static",
            Form::Pools => pools::FORM,
        }
    }

    /// The error for a key of this form beside a key of another one.
    fn beside(self, key: &str, other: Form, other_key: &str) -> Error {
        two_forms(key, self.name(), other_key, other.name())
    }

    /// The DNS that `ipam` gives. In host-local's form it comes from a file, so `ipam` gives none.
    fn dns(self, ipam: &Section<'_>) -> Result<Dns, Error> {
        match self {
            Form::Whereabouts | Form::Static | Form::Pools => results::dns(ipam),
            Form::HostLocal => Ok(Dns::default()),
        }
    }

    /// True if static addresses alone are enough.
    fn goes_without_ranges(self) -> bool {
        match self {
            Form::Whereabouts | Form::Static => true,
            Form::HostLocal | Form::Pools => false,
        }
    }

    fn default_order(self) -> Order {
        match self {
            Form::Whereabouts => Order::Lowest,
            Form::HostLocal | Form::Static | Form::Pools => Order::Next,
        }
    }
}

/// The key of the capability ipRanges, if that is given. It belongs to host-local's form.
fn capability(sections: &Sections<'_>) -> Result<Option<String>, Error> {
    let Some(runtime) = &sections.runtime else {
        return Ok(None);
    };
    let given = !runtime.list("ipRanges")?.is_empty();
    Ok(given.then(|| runtime.at("ipRanges")))
}

impl Config {
    /// Checks the configuration of a request. Requested addresses are judged only for an ADD. A key that makes the
    /// wanted addresses ambiguous is refused, but not for a DEL.
    ///
    /// # Errors
    /// Code 7 for an invalid configuration; it names the key and the value found. Code 4 for a value in CNI_ARGS that
    /// should be an address and is none. The details of an error name the other oddities of the configuration.
    pub fn parse(request: &Request) -> Result<Config, Error> {
        let (read, notes) = Self::judge(request);
        match read {
            Ok(config) => Ok(Config { notes, ..config }),
            Err(e) => Err(e.with_notes(&notes)),
        }
    }

    /// As [`Config::parse`], but returns the notes about other oddities beside the result.
    pub(super) fn judge(request: &Request) -> (Result<Config, Error>, Vec<String>) {
        let sections = match Sections::of(request) {
            Ok(sections) => sections,
            Err(e) => return (Err(e), Vec::new()),
        };
        let Findings { refused, mut notes, .. } = keys::judge(&sections);
        let read = match refused {
            Some(why) if !request.verb.forgives_config() => Err(Error::invalid_config(why)
                .with_details("correct the key or remove it: metes does not guess what you mean")),
            refused => {
                notes.extend(refused);
                Config::read(&sections, &mut notes)
            }
        };
        (read, notes)
    }

    fn read(sections: &Sections<'_>, notes: &mut Vec<String>) -> Result<Config, Error> {
        let form = Form::of(sections)?;
        let mut config = Config::without_addresses(sections, form)?;
        if let Form::Pools = form {
            let order = sections.ipam.has("order").then_some(config.order);
            let gateways = config.routes.iter().filter_map(|route| route.gw).collect();
            config.pools = Some(pools::wanted(sections, order, gateways)?);
            return Ok(config);
        }
        let given = statics::configured(&sections.ipam, form.zeros())?;
        config.sets = config.take_sets(sections, form, &given, notes)?;
        config.requests = vec![None; config.sets.len()];
        let given = if config.sets.is_empty() { statics::without_ranges(sections, given)? } else { given };
        if sections.is_add() && !config.sets.is_empty() {
            config.requests = requests::of_sets(sections, form.zeros(), &config.sets)?;
        }
        let named = sections.ipam.has("network_name");
        config.statics = given.into_iter().map(|given| config.placed(given, named)).collect();
        notes.extend(without_effect(sections, form, &config));
        config.check(sections.is_add(), form)?;
        Ok(config)
    }

    fn without_addresses(sections: &Sections<'_>, form: Form) -> Result<Config, Error> {
        let ipam = &sections.ipam;
        if let Some(other) = ipam.text("type")?.filter(|found| OTHER_PLUGINS.contains(found)) {
            return Err(Error::invalid_config(format!("`ipam.type` is {other:?}, which is not this plugin"))
                .with_details("write \"metes\""));
        }
        let order = ipam.parsed("order", &order_names(), Order::named)?;
        let config = Config {
            cni_network: sections.request.name.clone(),
            network: network_name(ipam)?,
            sets: Vec::new(),
            requests: Vec::new(),
            statics: Vec::new(),
            pools: None,
            order: order.unwrap_or(form.default_order()),
            cooldown: cooldown(ipam)?,
            sticky: sticky(ipam)?,
            routes: results::routes(ipam, form.zeros())?,
            dns: form.dns(ipam)?,
            resolv_conf: ipam.text("resolvConf")?.map(str::to_owned),
            notes: Vec::new(),
        };
        // The settings read these keys too, and pass over a value that is no text. Here it is an error.
        for key in keys::SETTINGS {
            ipam.text(key)?;
        }
        Ok(config)
    }

    /// The range sets. None of them hands out a gateway that the configuration names.
    fn take_sets(
        &self,
        sections: &Sections<'_>,
        form: Form,
        given: &[Given],
        notes: &mut Vec<String>,
    ) -> Result<Vec<RangeSet>, Error> {
        let routes = self.routes.iter().filter_map(|route| route.gw);
        let gateways: Vec<IpAddr> = routes.chain(given.iter().filter_map(|given| given.gateway)).collect();
        match form {
            Form::Whereabouts => whereabouts::sets(sections, &self.network, &gateways, notes),
            Form::HostLocal => hostlocal::sets(sections, &self.network, &gateways, notes),
            Form::Static | Form::Pools => Ok(Vec::new()),
        }
    }

    /// Decides where a static address is reserved: in the network of the range that covers it, or else in the network
    /// that the configuration names. Without either it is only recorded.
    fn placed(&self, given: Given, is_network_named: bool) -> Static {
        let addr = Addr::from(given.address.ip());
        let range = self.sets.iter().find_map(|set| set.covers(addr));
        let network = match range {
            Some(range) => Some(range.network().clone()),
            None => is_network_named.then(|| self.network.clone()),
        };
        Static { address: given.address, gateway: given.gateway, network }
    }

    /// Checks the rules that need the whole configuration.
    fn check(&self, is_add: bool, form: Form) -> Result<(), Error> {
        if self.sets.len() + self.statics.len() > ADDRESSES_MAX {
            return Err(Error::invalid_config(format!(
                "`ipam` has {} ranges or range sets and {} static addresses, more than {ADDRESSES_MAX} together",
                self.sets.len(),
                self.statics.len()
            )));
        }
        if self.sticky.is_some() && !self.statics.is_empty() {
            return Err(Error::invalid_config(
                "`ipam.sticky` does not go with static addresses: such an address belongs to the configuration",
            )
            .with_details("leave out `sticky` or `addresses`; `metes hold` keeps an address for one pod"));
        }
        if is_add && self.sets.is_empty() && (self.statics.is_empty() || !form.goes_without_ranges()) {
            return Err(Error::invalid_config("`ipam` has no range and no address").with_details(
                "give `pool`, `range`, `subnet`, `ranges` or `addresses`, or request addresses with a prefix length",
            ));
        }
        self.no_address_twice()
    }

    /// Refuses an address that one ADD would reserve twice.
    fn no_address_twice(&self) -> Result<(), Error> {
        let requested = self.sets.iter().zip(&self.requests).filter_map(|(set, request)| {
            let addr = (*request)?;
            Some((set.covers(addr)?.network(), addr))
        });
        let statics = self
            .statics
            .iter()
            .filter_map(|given| Some((given.network.as_ref()?, Addr::from(given.address.ip()))));
        let mut seen = HashSet::new();
        match requested.chain(statics).find(|held| !seen.insert(*held)) {
            None => Ok(()),
            Some((network, addr)) => {
                Err(Error::invalid_config(format!("address {addr} is asked for twice in network {network}")))
            }
        }
    }
}

/// `"lowest", "next" or "spread"`
fn order_names() -> String {
    let [first @ .., last] = Order::ALL.map(|order| format!("{:?}", order.name()));
    format!("{} or {last}", first.join(", "))
}

fn cooldown(ipam: &Section<'_>) -> Result<Cooldown, Error> {
    let time = ipam.parsed("cooldown", CooldownTime::EXPECTED, |text| text.parse().ok())?;
    let [wait, reuse] = WhenFull::ALL.map(|one| format!("{:?}", one.name()));
    let when_full = ipam.parsed("cooldown_when_full", &format!("{wait} or {reuse}"), WhenFull::named)?;
    Ok(Cooldown { time: time.unwrap_or_default(), when_full: when_full.unwrap_or_default() })
}

fn sticky(ipam: &Section<'_>) -> Result<Option<StickyConfig>, Error> {
    let [pod] = StickyTo::ALL.map(|one| format!("{:?}", one.name()));
    let keep = ipam.parsed("keep", Keep::EXPECTED, |text| text.parse().ok())?;
    let to = ipam.parsed("sticky", &pod, StickyTo::named)?;
    Ok(to.map(|to| StickyConfig { to, keep }))
}

fn network_name(ipam: &Section<'_>) -> Result<NetworkName, Error> {
    match ipam.text("network_name")? {
        None => Ok(NetworkName::default()),
        Some(name) => NetworkName::configured(name).map_err(|e| Error::invalid_config(e.to_string())),
    }
}

/// Notes about known keys that have no effect in this form.
fn without_effect(sections: &Sections<'_>, form: Form, config: &Config) -> Vec<String> {
    let ignored = |key: &str, why: &str| {
        sections.ipam.has(key).then(|| format!("key `{}` is ignored: {why}", sections.ipam.at(key)))
    };
    let dns = || ignored("dns", "in host-local's form DNS comes from `resolvConf`");
    let gateway = || ignored("gateway", "without ranges, each of `addresses` has its own");
    let notes = match form {
        Form::HostLocal => dns(),
        Form::Whereabouts | Form::Static if config.sets.is_empty() => gateway(),
        Form::Whereabouts | Form::Static | Form::Pools => None,
    };
    let keep =
        config.sticky.is_none().then(|| ignored("keep", "without `sticky` no address outlives its pod"));
    notes.into_iter().chain(keep.flatten()).collect()
}

#[cfg(test)]
mod tests;
