//! The network configuration: what `ipam`, `args`, `runtimeConfig` and CNI_ARGS say together.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::etcd::StoreKeys;
use super::keys::{Findings, two_forms};
use super::statics::Given;
use super::{hostlocal, keys, requests, results, statics, whereabouts};
use crate::cni::address::Zeros;
use crate::cni::result::{Dns, Route};
use crate::cni::section::Shows;
use crate::cni::{Error, Json, Request, Section, Verb};
use crate::pool::range::RangeSet;
use crate::pool::{Addr, NetworkName, Order};

/// The most addresses that one interface may have, from range sets and static ones together.
/// All of them are taken in one transaction, and etcd bounds its operations.
pub const ADDRESSES_MAX: usize = 30;

/// `ipam.type` of other plugins: a configuration written for one of them came here by mistake.
const OTHER_PLUGINS: [&str; 4] = ["static", "host-local", "dhcp", "whereabouts"];

/// A checked network configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// The network's `name` for CNI. It says nothing about uniqueness.
    pub cni_network: String,
    /// The uniqueness domain.
    pub network: NetworkName,
    /// The range sets, in result order: one address is taken from each.
    pub sets: Vec<RangeSet>,
    /// The address requested from each set. It is covered by the set, but may not be assignable.
    pub requests: Vec<Option<Addr>>,
    /// Static addresses, in result order after those of the sets.
    pub statics: Vec<Static>,
    /// The order of allocation.
    pub order: Order,
    /// Routes for the result.
    pub routes: Vec<Route>,
    /// DNS for the result.
    pub dns: Dns,
    /// A file in resolv.conf's format whose content is the result's DNS; the caller reads it.
    pub resolv_conf: Option<String>,
    /// What the configuration says about the store; [`Settings`](super::Settings) judges it.
    pub store: StoreKeys,
    /// The last place to look for the host file.
    pub configuration_path: Option<String>,
    /// The log file; without effect if there is a host file.
    pub log_file: Option<String>,
    /// The log level, as written.
    pub log_level: Option<String>,
    /// One line for each key that has no effect, for the log and the details of an error.
    pub notes: Vec<String>,
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

impl Order {
    fn named(name: &str) -> Option<Self> {
        match name {
            "lowest" => Some(Order::Lowest),
            "next" => Some(Order::Next),
            "spread" => Some(Order::Spread),
            _ => None,
        }
    }
}

/// Where a configuration can say something.
pub(super) struct Input<'a> {
    pub(super) request: &'a Request,
    /// All of the network configuration.
    pub(super) document: Section<'a>,
    pub(super) ipam: Section<'a>,
    /// runtimeConfig.
    pub(super) runtime: Option<Section<'a>>,
    /// args.
    pub(super) args: Option<Section<'a>>,
    /// args.cni.
    pub(super) args_cni: Option<Section<'a>>,
    /// Whether the main plugin takes network + 1 for itself where no gateway is configured: bridge
    /// does with `isGateway` or `isDefaultGateway`.
    pub(super) first_is_gateway: bool,
}

impl<'a> Input<'a> {
    fn of(request: &'a Request) -> Result<Self, Error> {
        let document = document(request);
        let ipam = document.section("ipam")?;
        let args = document.section("args")?;
        Ok(Self {
            request,
            ipam: ipam
                .ok_or_else(|| Error::invalid_config("the network configuration has no `ipam` section"))?,
            runtime: document.section("runtimeConfig")?,
            args_cni: args.as_ref().map(|args| args.section("cni")).transpose()?.flatten(),
            args,
            first_is_gateway: ["isGateway", "isDefaultGateway"]
                .iter()
                .any(|key| matches!(document.get(key), Some(Json::Bool(true)))),
            document,
        })
    }

    fn is_add(&self) -> bool {
        self.request.verb == Verb::Add
    }
}

/// The form in which `ipam` is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Whereabouts,
    HostLocal,
    Static,
}

impl Form {
    fn of(input: &Input<'_>) -> Result<Self, Error> {
        let ipam = &input.ipam;
        let given = |keys: &[&str]| keys.iter().find(|key| ipam.has(key)).map(|key| ipam.at(key));
        let host_local = match given(&keys::HOST_LOCAL) {
            None => capability(input)?,
            key => key,
        };
        match (given(&keys::WHEREABOUTS), host_local) {
            (Some(key), Some(other)) => Err(two_forms(&key, "whereabouts", &other, "host-local")),
            (None, Some(key)) if ipam.has("addresses") => {
                Err(two_forms(&ipam.at("addresses"), "static", &key, "host-local"))
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
            Form::Static => Zeros::Refused,
        }
    }

    fn default_order(self) -> Order {
        match self {
            Form::Whereabouts => Order::Lowest,
            Form::HostLocal | Form::Static => Order::Next,
        }
    }
}

/// The capability ipRanges belongs to host-local's form.
fn capability(input: &Input<'_>) -> Result<Option<String>, Error> {
    let Some(runtime) = &input.runtime else {
        return Ok(None);
    };
    let given = !runtime.list("ipRanges")?.is_empty();
    Ok(given.then(|| runtime.at("ipRanges")))
}

impl Config {
    /// Checks the configuration of a request. What an ADD asks for is only judged for an ADD; a DEL takes keys that
    /// make it unclear which addresses are meant.
    ///
    /// # Errors
    /// Code 7 for whatever is invalid, naming the key and what was found; code 4 for addresses
    /// in CNI_ARGS that are none. The details say what else is odd about the configuration.
    pub fn parse(request: &Request) -> Result<Config, Error> {
        let input = Input::of(request)?;
        let Findings { refused, mut notes, .. } = keys::judge(&input);
        let read = match refused {
            Some(why) if request.verb != Verb::Del => Err(Error::invalid_config(why)
                .with_details("what is meant is not guessed: correct the key or remove it")),
            refused => {
                notes.extend(refused);
                Config::read(&input, &mut notes)
            }
        };
        match read {
            Ok(config) => Ok(Config { notes, ..config }),
            Err(e) => Err(e.with_notes(&notes)),
        }
    }

    fn read(input: &Input<'_>, notes: &mut Vec<String>) -> Result<Config, Error> {
        let form = Form::of(input)?;
        let mut config = Config::without_addresses(input, form)?;
        let given = statics::configured(&input.ipam, form.zeros())?;
        config.sets = config.take_sets(input, form, &given, notes)?;
        config.requests = vec![None; config.sets.len()];
        let given = if config.sets.is_empty() { statics::without_ranges(input, given)? } else { given };
        if input.is_add() && !config.sets.is_empty() {
            config.requests = requests::of_sets(input, form.zeros(), &config.sets)?;
        }
        let named = input.ipam.has("network_name");
        config.statics = given.into_iter().map(|given| config.placed(given, named)).collect();
        notes.extend(without_effect(input, form, &config));
        config.check(input.is_add(), form)?;
        Ok(config)
    }

    fn without_addresses(input: &Input<'_>, form: Form) -> Result<Config, Error> {
        let ipam = &input.ipam;
        if let Some(other) = ipam.text("type")?.filter(|found| OTHER_PLUGINS.contains(found)) {
            return Err(Error::invalid_config(format!("`ipam.type` is {other:?}, which is not this plugin")));
        }
        let owned = |key| Ok::<_, Error>(ipam.text(key)?.map(str::to_owned));
        let order = ipam.parsed("order", "\"lowest\", \"next\" or \"spread\"", Order::named)?;
        let dns = if form == Form::HostLocal { Dns::default() } else { results::dns(ipam)? };
        Ok(Config {
            cni_network: input.request.name.clone(),
            network: network_name(ipam)?,
            sets: Vec::new(),
            requests: Vec::new(),
            statics: Vec::new(),
            order: order.unwrap_or(form.default_order()),
            routes: results::routes(ipam, form.zeros())?,
            dns,
            resolv_conf: owned("resolvConf")?,
            store: StoreKeys::of(ipam),
            configuration_path: owned("configuration_path")?,
            log_file: owned("log_file")?,
            log_level: owned("log_level")?,
            notes: Vec::new(),
        })
    }

    /// The range sets, none of which ever gives away a gateway that the configuration names.
    fn take_sets(
        &self,
        input: &Input<'_>,
        form: Form,
        given: &[Given],
        notes: &mut Vec<String>,
    ) -> Result<Vec<RangeSet>, Error> {
        let routes = self.routes.iter().filter_map(|route| route.gw);
        let gateways: Vec<IpAddr> = routes.chain(given.iter().filter_map(|given| given.gateway)).collect();
        match form {
            Form::Whereabouts => whereabouts::sets(input, &self.network, &gateways, notes),
            Form::HostLocal => hostlocal::sets(input, &self.network, &gateways, notes),
            Form::Static => Ok(Vec::new()),
        }
    }

    /// A static address is reserved where a range covers it, or else in the network that the
    /// configuration names; without either, it is only recorded.
    fn placed(&self, given: Given, is_network_named: bool) -> Static {
        let addr = Addr::from(given.address.ip());
        let range = self.sets.iter().find_map(|set| set.covers(addr));
        let network = match range {
            Some(range) => Some(range.network().clone()),
            None => is_network_named.then(|| self.network.clone()),
        };
        Static { address: given.address, gateway: given.gateway, network }
    }

    /// What can only be judged of the whole.
    fn check(&self, is_add: bool, form: Form) -> Result<(), Error> {
        if self.sets.len() + self.statics.len() > ADDRESSES_MAX {
            return Err(Error::invalid_config(format!(
                "`ipam` has {} ranges or range sets and {} static addresses, more than {ADDRESSES_MAX} together",
                self.sets.len(),
                self.statics.len()
            )));
        }
        if is_add && self.sets.is_empty() && (self.statics.is_empty() || form == Form::HostLocal) {
            return Err(Error::invalid_config("`ipam` has no range and no address").with_details(
                "give `range`, `subnet`, `ranges` or `addresses`, or request addresses with a prefix length",
            ));
        }
        self.no_address_twice()
    }

    /// No address may be reserved twice by one ADD.
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

fn network_name(ipam: &Section<'_>) -> Result<NetworkName, Error> {
    match ipam.text("network_name")? {
        None => Ok(NetworkName::default()),
        Some(name) => NetworkName::configured(name).map_err(|e| Error::invalid_config(e.to_string())),
    }
}

/// Known keys that mean nothing in this form.
fn without_effect(input: &Input<'_>, form: Form, config: &Config) -> Vec<String> {
    let ignored = |key: &str, why: &str| {
        input.ipam.has(key).then(|| format!("key `{}` is ignored: {why}", input.ipam.at(key)))
    };
    let dns = || ignored("dns", "in host-local's form DNS comes from `resolvConf`");
    let gateway = || ignored("gateway", "without ranges, each of `addresses` has its own");
    let notes = match form {
        Form::HostLocal => dns(),
        _ if config.sets.is_empty() => gateway(),
        _ => None,
    };
    notes.into_iter().collect()
}

/// What a request says about reaching the store and the log, read without judging the rest:
/// a DEL or GC must work whatever has become of `ipam`.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// As [`Config::store`].
    pub store: StoreKeys,
    /// As [`Config::configuration_path`].
    pub configuration_path: Option<String>,
    /// As [`Config::log_file`].
    pub log_file: Option<String>,
    /// As [`Config::log_level`].
    pub log_level: Option<String>,
}

impl Access {
    /// Reads what can be read.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let Ok(Some(ipam)) = document(request).section("ipam") else {
            return Self::default();
        };
        let text = |key| ipam.text(key).ok().flatten().map(str::to_owned);
        Self {
            store: StoreKeys::of(&ipam),
            configuration_path: text("configuration_path"),
            log_file: text("log_file"),
            log_level: text("log_level"),
        }
    }
}

fn document(request: &Request) -> Section<'_> {
    Section::new("", request.config.pairs().unwrap_or_default(), Shows::Values)
}

#[cfg(test)]
mod tests;
