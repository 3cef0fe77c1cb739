//! Named pools: the text of an operator, checked, and the ranges that it folds into.
//!
//! One type is both the text of an operator and the stored record. Every reader checks it, and an error names the
//! place: a parser adds line and column.

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::str::FromStr;

use ipnetwork::IpNetwork;
use serde::de::{Error as _, IgnoredAny, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::choose::Order;
use super::cooldown::{Cooldown, CooldownTime, WhenFull};
use super::dns::PoolDns;
use super::keep::Keep;
use super::names::{AUTO, NetworkName, PoolName};
use super::range::{Range, RangeError, RangeSpec, excludes_nothing, is_on_link, usable};
use super::selector::{Facts, Selector};

/// The largest text of a pool, in bytes.
pub const POOL_BYTES: usize = 64 << 10;
/// The largest record of all pools' `for`, in bytes.
pub(crate) const POOL_CHANGES_BYTES: usize = 256 << 10;

/// A pool as it is written and stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, expecting = "a pool, with `pool` and `ranges`")]
pub struct PoolDefinition {
    /// Its name.
    #[serde(with = "text")]
    pub pool: PoolName,
    /// The uniqueness domain of its addresses. Several pools may share one.
    #[serde(default, with = "text")]
    pub network: NetworkName,
    /// Its ranges, in the order in which they are used: at least one, all of one family, none of which overlap.
    pub ranges: Vec<PoolRange>,
    /// The order of allocation; `next` if none is given.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Routes for the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<PoolRoute>,
    /// DNS for the result.
    #[serde(default, skip_serializing_if = "PoolDns::is_empty")]
    pub dns: PoolDns,
    /// The time that an address of it rests after it was freed.
    #[serde(default, with = "text", skip_serializing_if = "is_default")]
    pub cooldown: CooldownTime,
    /// The rule for an ADD if all that is free is cooling.
    #[serde(default, with = "text", skip_serializing_if = "is_default")]
    pub cooldown_when_full: WhenFull,
    /// For how long its addresses stay with a pod's name; none: no network may ask for that.
    #[serde(default, with = "text", skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// The pods that may take addresses from it; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Selector>,
    /// The pods that `auto` gives addresses of it; absent: none.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// Of the pools that are for the same pod, `auto` uses those of the highest priority.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What `metes pool show` counts beside the text. It may stand in a text, and is neither kept nor compared.
    #[serde(default, skip_serializing, deserialize_with = "ignored")]
    pub status: (),
}

/// One range of a pool, checked as a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a range, such as {range: 10.0.0.0/24}")]
pub struct PoolRange {
    /// The addresses.
    #[serde(with = "text")]
    pub range: RangeText,
    /// Its gateway, which is never given to a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Prefixes and addresses that are never given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<Excluded>,
    /// Its state.
    #[serde(default, with = "text", skip_serializing_if = "is_default")]
    pub state: RangeState,
}

/// A route of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a route, such as {dst: 10.0.0.0/8}")]
pub struct PoolRoute {
    /// The destination.
    #[serde(with = "text")]
    pub dst: IpNetwork,
    /// The next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
}

/// A prefix, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Excluded(#[serde(with = "text")] pub IpNetwork);

/// The addresses of a range: `10.0.0.0/24`, or `10.0.0.5-10.0.0.9/24` with first and last address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeText {
    /// The prefix, without host bits.
    pub subnet: IpNetwork,
    /// First and last address, if they are written.
    pub bounds: Option<(IpAddr, IpAddr)>,
}

crate::named_enum! {
    /// The state of a range, which tells if its addresses are given.
    #[derive(Default)]
    pub enum RangeState {
        /// They are.
        #[default]
        Open = "open",
        /// No more: whoever holds one keeps it, and the range empties.
        Draining = "draining",
        /// No more. It holds its place in the pool, and may be opened again.
        Closed = "closed",
    }
}

/// A fault in the text of a pool, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFault {
    /// The key, like `ranges[1].gateway`.
    pub key: String,
    pub(crate) why: String,
}

impl PoolFault {
    pub(super) fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: key.into(), why: why.into() }
    }
}

impl fmt::Display for PoolFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.why)
    }
}

/// A pool as it was read, of which only each value alone was checked.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct UncheckedPool(#[serde(deserialize_with = "PoolDefinition::deserialize")] PoolDefinition);

impl UncheckedPool {
    /// The pool, if it fits together.
    ///
    /// # Errors
    /// The first fault.
    pub fn checked(self) -> Result<PoolDefinition, PoolFault> {
        self.0.check().map(|()| self.0)
    }
}

impl RangeState {
    fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

impl PoolDefinition {
    /// Its rules about cooling.
    pub(crate) fn cooldown(&self) -> Cooldown {
        Cooldown { time: self.cooldown, when_full: self.cooldown_when_full }
    }

    /// The order of allocation.
    #[must_use]
    pub fn order(&self) -> Order {
        self.order.unwrap_or(Order::Next)
    }

    /// The fact for which it gives nothing to an asker with these facts.
    #[must_use]
    pub fn refuses(&self, facts: Facts<'_>) -> Option<String> {
        self.allow.as_ref()?.mismatch(facts)
    }

    /// The ranges that addresses are given from. `never` are gateways that are named elsewhere.
    ///
    /// # Errors
    /// [`RangeError`] for a definition that was not checked.
    pub fn open_ranges(&self, never: &[IpAddr]) -> Result<Vec<Range>, RangeError> {
        self.fold(|range| range.state.is_open(), never)
    }

    /// All ranges, in their order.
    ///
    /// # Errors
    /// [`RangeError`] for a definition that was not checked.
    pub fn all_ranges(&self) -> Result<Vec<Range>, RangeError> {
        self.fold(|_| true, &[])
    }

    /// The range with the address between its first and its last one, whatever its state.
    #[must_use]
    pub fn range_of(&self, address: IpAddr) -> Option<&PoolRange> {
        self.ranges.iter().find(|range| {
            let (first, last) = range.range.bounds();
            first <= address && address <= last
        })
    }

    fn fold(
        &self,
        is_meant: impl Fn(&PoolRange) -> bool,
        never: &[IpAddr],
    ) -> Result<Vec<Range>, RangeError> {
        let gateways = self.ranges.iter().filter_map(|range| range.gateway);
        let next_hops = self.routes.iter().filter_map(|route| route.gw);
        let mut never: Vec<IpAddr> = gateways.chain(next_hops).chain(never.iter().copied()).collect();
        // Hundreds of ranges may have as many gateways. Each gets those between its bounds.
        never.sort_unstable();
        never.dedup();
        let fold = |range: &PoolRange| {
            let (first, last) = range.range.bounds();
            let from = never.partition_point(|gateway| *gateway < first);
            let inside = never[from..].iter().take_while(|gateway| **gateway <= last);
            Range::new(RangeSpec {
                network: self.network.clone(),
                subnet: range.range.subnet,
                first,
                last,
                excludes: range.exclude.iter().map(|excluded| excluded.0).collect(),
                never: inside.copied().collect(),
                gateway: range.gateway,
            })
        };
        self.ranges.iter().filter(|range| is_meant(range)).map(fold).collect()
    }

    /// Checks all that no single value shows.
    fn check(&self) -> Result<(), PoolFault> {
        if self.pool.as_str() == AUTO {
            return Err(PoolFault::new(
                "pool",
                "no pool can be named `auto`: a network that writes it asks for the pools whose `for` matches",
            ));
        }
        if self.priority != 0 && self.selector.is_none() {
            return Err(PoolFault::new(
                "priority",
                "it says which pool `auto` uses first, and without `for` it uses none: write `for`, or no `priority`",
            ));
        }
        let Some(first) = self.ranges.first() else {
            return Err(PoolFault::new(
                "ranges",
                "it is empty: write at least one range, with `state: closed` if it is not used",
            ));
        };
        for (at, range) in self.ranges.iter().enumerate() {
            range.check().map_err(|(key, why)| PoolFault::new(format!("ranges[{at}].{key}"), why))?;
        }
        self.dns.check().map_err(|(key, why)| PoolFault::new(format!("dns.{key}"), why))?;
        let is_ipv4 = |range: &PoolRange| range.range.subnet.is_ipv4();
        if let Some(at) = self.ranges.iter().position(|range| is_ipv4(range) != is_ipv4(first)) {
            return Err(PoolFault::new(
                format!("ranges[{at}].range"),
                format!(
                    "{} is not of the address family of {}: write one pool for each family",
                    self.ranges[at].range, first.range
                ),
            ));
        }
        let mut ranges: Vec<_> =
            self.ranges.iter().enumerate().map(|(at, range)| (range.range.bounds(), at)).collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            let [((_, last), at), ((first, _), other)] = [pair[0], pair[1]];
            if first <= last {
                let (at, other) = (at.min(other), at.max(other));
                return Err(PoolFault::new(
                    format!("ranges[{other}].range"),
                    format!(
                        "{} overlaps {} of ranges[{at}]: give each its own first and last address",
                        self.ranges[other].range, self.ranges[at].range
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The excludes that exclude nothing: their keys, and why in a sentence.
    pub fn needless_excludes(&self) -> impl Iterator<Item = (String, String)> {
        self.ranges.iter().enumerate().flat_map(|(at, range)| {
            range.exclude.iter().enumerate().filter_map(move |(nth, excluded)| {
                let key = format!("ranges[{at}].exclude[{nth}]");
                excludes_nothing(&key, excluded.0, range.range.subnet).map(|what| (key, what))
            })
        })
    }
}

impl PoolRange {
    /// Checks all that the range alone shows. The error is a key of it, and the reason.
    fn check(&self) -> Result<(), (String, String)> {
        let Self { range, gateway, exclude, .. } = self;
        let subnet = range.subnet;
        if let Some(gateway) = gateway.filter(|gateway| !is_on_link(subnet, *gateway)) {
            return Err((
                "gateway".into(),
                format!("{gateway} is outside of {subnet}: write an address of it"),
            ));
        }
        if let Some(at) = exclude.iter().position(|excluded| excluded.0.is_ipv4() != subnet.is_ipv4()) {
            return Err((
                format!("exclude[{at}]"),
                format!("{} is not of the address family of {range}: take it out", exclude[at].0),
            ));
        }
        let network = NetworkName::default();
        let (first, last) = range.bounds();
        let spec = RangeSpec {
            network,
            subnet,
            first,
            last,
            excludes: exclude.iter().map(|excluded| excluded.0).collect(),
            never: gateway.iter().copied().collect(),
            gateway: *gateway,
        };
        let folded = Range::new(spec).map_err(|e| ("range".into(), e.to_string()))?;
        if folded.size() == 0 {
            return Err((
                "range".into(),
                format!(
                    "{range} has no address that could be given: all are excluded or gateways; exclude fewer, or \
                     write `state: closed` for a larger range"
                ),
            ));
        }
        Ok(())
    }
}

fn ignored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    IgnoredAny::deserialize(deserializer).map(drop)
}

/// True if a value need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl RangeText {
    /// First and last address that may be given.
    #[must_use]
    pub fn bounds(&self) -> (IpAddr, IpAddr) {
        self.bounds.unwrap_or_else(|| usable(self.subnet))
    }
}

impl FromStr for RangeText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "{text:?} is not a range: expected a prefix such as 10.0.0.0/24, or first and last address such as \
                 10.0.0.5-10.0.0.9/24"
            )
        };
        let (start, end) = match text.split_once('-') {
            None => (None, text.trim()),
            Some((start, end)) => (Some(start.trim()), end.trim()),
        };
        if !end.contains('/') {
            return Err(invalid());
        }
        let written: IpNetwork = end.parse().map_err(|_| invalid())?;
        let subnet = IpNetwork::new(written.network(), written.prefix()).map_err(|_| invalid())?;
        let Some(start) = start else { return Ok(Self { subnet, bounds: None }) };
        let (first, last): (IpAddr, IpAddr) = (start.parse().map_err(|_| invalid())?, written.ip());
        if !subnet.contains(first) {
            return Err(format!("{text:?} is not a range: {first} is not in {subnet}"));
        }
        if first > last {
            return Err(format!("{text:?} is not a range: its start {first} is above its end {last}"));
        }
        let (lowest, highest) = usable(subnet);
        if first < lowest || last > highest {
            return Err(format!(
                "{text:?} is not a range: it may have the addresses from {lowest} to {highest}, without the network's \
                 own address and the broadcast address"
            ));
        }
        Ok(Self { subnet, bounds: Some((first, last)) })
    }
}

impl fmt::Display for RangeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bounds {
            None => write!(f, "{}", self.subnet),
            Some((first, last)) => write!(f, "{first}-{last}/{}", self.subnet.prefix()),
        }
    }
}

/// A pool that is read is checked, so that there is no unchecked one.
impl<'de> Deserialize<'de> for PoolDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Self::deserialize(deserializer)?;
        read.check().map_err(D::Error::custom)?;
        Ok(read)
    }
}

impl Serialize for PoolDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Values that are written as their text.
pub(super) trait Text: Sized {
    fn read(text: &str) -> Result<Self, String>;
    fn write(&self) -> String;
}

impl Text for RangeText {
    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Text for PoolName {
    fn read(text: &str) -> Result<Self, String> {
        text.parse::<Self>().map_err(|e| e.to_string())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Text for NetworkName {
    fn read(text: &str) -> Result<Self, String> {
        Self::configured(text).map_err(|e| e.to_string())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Text for IpNetwork {
    fn read(text: &str) -> Result<Self, String> {
        let read =
            text.parse::<Self>().map_err(|_| format!("{text:?} is neither a prefix nor an address"))?;
        Self::new(read.network(), read.prefix()).map_err(|e| e.to_string())
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Text for RangeState {
    fn read(text: &str) -> Result<Self, String> {
        Self::named(text)
            .ok_or_else(|| format!("{text:?} is not a state of a range: expected {}", names(Self::ALL)))
    }

    fn write(&self) -> String {
        self.name().to_owned()
    }
}

impl Text for WhenFull {
    fn read(text: &str) -> Result<Self, String> {
        Self::named(text).ok_or_else(|| format!("{text:?} is not known: expected {}", names(Self::ALL)))
    }

    fn write(&self) -> String {
        self.name().to_owned()
    }
}

impl Text for CooldownTime {
    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Text for Option<Keep> {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map(Some)
    }

    fn write(&self) -> String {
        self.map(|keep| keep.to_string()).unwrap_or_default()
    }
}

impl Text for Option<Order> {
    fn read(text: &str) -> Result<Self, String> {
        match Order::named(text) {
            Some(order) => Ok(Some(order)),
            None => Err(format!("{text:?} is not an order: expected {}", names(Order::ALL))),
        }
    }

    fn write(&self) -> String {
        self.map(Order::name).unwrap_or_default().to_owned()
    }
}

/// `open, draining or closed`
fn names<T: fmt::Display, const N: usize>(all: [T; N]) -> String {
    let names = all.map(|one| one.to_string());
    match &names[..] {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// Writes values as their text.
pub(super) mod text {
    use super::*;

    pub(in crate::pool) fn serialize<T: Text, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.write())
    }

    pub(in crate::pool) fn deserialize<'de, T: Text, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        deserializer.deserialize_str(TextVisitor(PhantomData))
    }

    /// Reads the value where it stands, so that an error has its place.
    struct TextVisitor<T>(PhantomData<T>);

    impl<T: Text> Visitor<'_> for TextVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            T::read(text).map_err(E::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PoolDefinition, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    const WHOLE: &str = concat!(
        r#"{"pool":"storage","network":"blue","ranges":["#,
        r#"{"range":"10.56.0.0/16","gateway":"10.56.255.254","exclude":["10.56.0.0/28","10.56.1.1/32"]},"#,
        r#"{"range":"10.57.0.5-10.57.0.9/20","state":"draining"}],"order":"lowest","#,
        r#""routes":[{"dst":"10.0.0.0/8","gw":"10.56.255.254"}],"dns":{"nameservers":["10.56.0.53"],"#,
        r#""domain":"a.test","search":["b.test"],"options":["ndots:2"]},"keep":"7days","#,
        r#""allow":{"namespaces":["team-*"]},"for":{"nodes":["gpu-*"],"node_labels":{"rack":["7"]}},"#,
        r#""priority":-3,"note":"owner netops"}"#
    );

    #[test]
    fn a_pool_comes_back_as_it_was_written() {
        let pool = read(WHOLE).expect("it is sound");
        assert_eq!(serde_json::to_string(&pool).expect("JSON"), WHOLE);
        let least = read(r#"{"pool":"a","ranges":[{"range":"10.0.0.7/24"}]}"#).expect("it is sound");
        assert_eq!(
            serde_json::to_string(&least).expect("JSON"),
            r#"{"pool":"a","network":"default","ranges":[{"range":"10.0.0.0/24"}]}"#
        );
        assert_eq!((least.order(), least.network), (Order::Next, NetworkName::default()));
    }

    #[test]
    fn what_is_not_open_is_not_chosen_and_gateways_never_are() {
        let pool = read(WHOLE).expect("it is sound");
        let other = "10.56.3.3".parse().expect("an address");
        let open = pool.open_ranges(&[other]).expect("ranges");
        assert_eq!(open.len(), 1);
        // Without the network's own and the broadcast address, 16 excludes of which the first is no address of the
        // range, one more, the gateway, and the one that is named elsewhere.
        assert_eq!(open[0].size(), 65_534 - 15 - 1 - 1 - 1);
        assert_eq!(pool.all_ranges().expect("ranges")[1].size(), 5);
    }

    #[test]
    fn each_wrong_text_is_refused_with_its_reason() {
        let ranges = |ranges: &str| format!(r#"{{"pool":"a","ranges":[{ranges}]}}"#);
        let dns = |dns: &str| format!(r#"{{"pool":"a","ranges":[{{"range":"10.0.0.0/24"}}],"dns":{dns}}}"#);
        for (text, expected) in [
            (ranges(r#"{"range":"10.0.0.9-10.0.0.5/24"}"#), "start 10.0.0.9 is above its end 10.0.0.5"),
            (ranges(r#"{"range":"10.0.1.1-10.0.0.5/24"}"#), "10.0.1.1 is not in 10.0.0.0/24"),
            (ranges(r#"{"range":"10.0.0.0-10.0.0.5/24"}"#), "from 10.0.0.1 to 10.0.0.254"),
            (ranges(r#"{"range":"10.0.0.5"}"#), "expected a prefix such as"),
            (ranges(r#"{"range":"10.0.0.0/33"}"#), "expected a prefix such as"),
            (
                ranges(r#"{"range":"10.0.0.0/24","gateway":"10.0.1.1"}"#),
                "ranges[0].gateway: 10.0.1.1 is outside of 10.0.0.0/24",
            ),
            (
                ranges(r#"{"range":"10.0.0.0/24","gatway":"10.0.0.1"}"#),
                "unknown field `gatway`, expected one of `range`, `gateway`",
            ),
            (ranges(r#"{"range":"10.0.0.0/24","exclude":["fd00::/64"]}"#), "not of the address family"),
            (
                ranges(r#"{"range":"10.0.0.0/30","exclude":["10.0.0.0/29"]}"#),
                "has no address that could be given",
            ),
            (ranges(r#"{"range":"10.0.0.0/24","state":"shut"}"#), "expected open, draining or closed"),
            (
                r#"{"pool":"a","keep":"2y","ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(),
                "\"2y\" is not a time to keep: expected \"forever\"",
            ),
            (
                ranges(r#"{"range":"10.0.0.0/24"},{"range":"10.0.0.128/25"}"#),
                "ranges[1].range: 10.0.0.128/25 overlaps 10.0.0.0/24 of ranges[0]",
            ),
            (ranges(r#"{"range":"10.0.0.0/24"},{"range":"fd00::/64"}"#), "one pool for each family"),
            (ranges(r#"{"range":"::ffff:10.0.0.0/120"}"#), "IPv4 network written as IPv6"),
            (ranges(""), "write at least one range"),
            (
                r#"{"pool":"a/b","ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(),
                "pool name \"a/b\" is not valid",
            ),
            (
                r#"{"pool":"a","network":"b/c","ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(),
                "network_name \"b/c\" is not valid",
            ),
            (
                r#"{"pool":"a","order":"first","ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(),
                "expected lowest, next or spread",
            ),
            (r#"{"ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(), "missing field `pool`"),
            (dns(r#"{"nameservers":["dns.test"]}"#), "invalid IP address"),
            (
                dns(r#"{"servers":["10.0.0.1"]}"#),
                "unknown field `servers`, expected one of `nameservers`, `domain`",
            ),
            (dns(r#"{"domain":"a test"}"#), "dns.domain: \"a test\" is not a domain"),
            (dns(r#"{"search":["a",""]}"#), "dns.search[1]: \"\" is not a domain"),
            (dns(r#"{"options":["ndots:2\n"]}"#), "is not a resolver option"),
            (
                r#"{"pool":"auto","ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(),
                "no pool can be named `auto`",
            ),
            (
                r#"{"pool":"a","priority":1,"ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(),
                "without `for` it uses none",
            ),
            (
                r#"{"pool":"a","for":{"nodes":[]},"ranges":[{"range":"10.0.0.0/24"}]}"#.to_owned(),
                "the list is empty",
            ),
        ] {
            let why = read(&text).expect_err(&text);
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
