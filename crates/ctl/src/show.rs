//! `metes show`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::filter::Filter;
use super::inventory::{COLUMNS, Row};
use super::list::tell_unreadable;
use super::output::{ListFormat, ListOutput};
use super::selector::{self, SIMILAR_NAME_EDITS, Selector, WordKind};
use super::table::{or_dash, printable};
use super::{CliError, Context, Terminal};
use metes_config::keys::did_you_mean;
use metes_core::keys::LeaseId;
use metes_core::pool::{Addr, HoldNote, KnownRange, NetworkName, PodUid, Standing, known_ranges};
use metes_core::snapshot::Snapshot;
use metes_engine::kv::{Failure, Kv};

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// An address, NETWORK/ADDRESS, a prefix, a container id or its beginning, NAMESPACE/POD, or the name of a
    /// network, pool, namespace or node
    #[arg(value_name = "WHAT")]
    what: String,
    /// What WHAT is, if it may be several things
    #[arg(long = "as", value_enum, value_name = "KIND")]
    kind: Option<WordKind>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: ListOutput,
}

/// Shows all rows of what is asked for.
pub(super) async fn show<K: Kv>(
    context: &Context<'_, K>,
    args: &ShowArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let ShowArgs { what, kind, filter, output } = args;
    let failed = || CliError::store(format!("look up {what:?}"));
    let found = selector::find(context, what, *kind, filter.network.as_ref()).await.map_err(failed())?;
    let found = found.map_err(CliError::Refused)?;
    let (selector, inventory) = found.read(context, filter).await.map_err(failed())?;
    tell_unreadable(&inventory, None, terminal);
    let is_meant = |row: &&Row| selector.has(row) && row.is_wanted(filter);
    let rows: Vec<&Row> = inventory.rows.iter().filter(is_meant).collect();
    if rows.is_empty() {
        let nothing = nothing(context, &selector, args, terminal).await.map_err(failed())?;
        return Err(CliError::Refused(nothing));
    }
    if output.format == ListFormat::Table && selector.is_shown_in_full() {
        let blocks: Vec<String> = rows.into_iter().map(block).collect();
        terminal.answer(&blocks.join("\n"))?;
    } else {
        terminal.list(&COLUMNS, rows, output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The sentence that nothing of it is held. Of an address, what it is instead.
async fn nothing<K: Kv>(
    context: &Context<'_, K>,
    selector: &Selector,
    args: &ShowArgs,
    terminal: &mut Terminal<'_>,
) -> Result<String, Failure> {
    let ShowArgs { what, filter, .. } = args;
    let (network, address) = match selector {
        Selector::Address(network, address) => (network, address),
        Selector::Recorded(address) => {
            return Ok(format!(
                "{address} is not recorded as a static address{filter}; metes show {address} looks for it in all \
                 networks"
            ));
        }
        Selector::Prefix(_) | Selector::Network(_) | Selector::Pool(_) => {
            return Ok(format!("no address of {selector} is held{filter}; metes list shows what is"));
        }
        Selector::Owner(_)
        | Selector::Pod(_)
        | Selector::Container(_)
        | Selector::ContainersFrom(_)
        | Selector::Namespace(_)
        | Selector::Node(_) => {
            return Ok(format!("{selector} holds no address{filter}; metes list shows who does"));
        }
    };
    let ranges = context.ranges().await?;
    let wanted = network.as_ref().or(filter.network.as_ref());
    let mut found = Vec::new();
    for known in known_ranges(ranges.pools.iter(), &ranges.asked) {
        if wanted.is_none_or(|wanted| known.range.network() == wanted)
            && known.range.standing(Addr::from(*address)) != Standing::OutsideSubnet
        {
            found.push(standing_words(context, &known, Addr::from(*address)).await?);
        }
    }
    if found.is_empty() {
        context.tell_if_unused(terminal).await?;
        found.push(match wanted {
            Some(network) => {
                let networks = context.networks().await?;
                let names: Vec<&str> = networks.iter().map(NetworkName::as_str).collect();
                match networks.contains(network) {
                    true => format!("no known range of network {network} has it"),
                    false => format!(
                        "no network {network} is known{}; metes usage lists the networks",
                        did_you_mean(network.as_str(), &names, SIMILAR_NAME_EDITS)
                    ),
                }
            }
            None => format!(
                "no known range has it; metes show /{address} looks for a static address that is only recorded"
            ),
        });
    }
    Ok(format!("{what} is not held{filter}: {}", found.join("; ")))
}

/// What an address that nobody holds is in a range.
async fn standing_words<K: Kv>(
    context: &Context<'_, K>,
    known: &KnownRange<'_>,
    address: Addr,
) -> Result<String, Failure> {
    let KnownRange { range, text, pool, state, .. } = known;
    let is = match range.standing(address) {
        Standing::Assignable => match cooling_time(context, range.network(), address).await? {
            Some(left) => format!("cooling for {} more", humantime::format_duration(left)),
            None => "free".to_owned(),
        },
        Standing::OutsideSubnet | Standing::OutsideBounds => "outside of the range's bounds".to_owned(),
        Standing::NetworkAddress => "the network's own address".to_owned(),
        Standing::Broadcast => "the broadcast address".to_owned(),
        Standing::Excluded => "excluded".to_owned(),
        Standing::Gateway => "a gateway".to_owned(),
    };
    let of = match pool {
        Some(pool) => format!("pool {pool}, {state}", state = state.name()),
        None => "asked for by configurations".to_owned(),
    };
    Ok(format!("it is {is} in {text} of network {} ({of})", range.network()))
}

/// How long an address still rests; none if it does not.
async fn cooling_time<K: Kv>(
    context: &Context<'_, K>,
    network: &NetworkName,
    address: Addr,
) -> Result<Option<Duration>, Failure> {
    let session = context.session;
    let key = session.keys.cooling(network, address);
    let mut seen = Snapshot::default();
    session.read(std::slice::from_ref(&key), &mut seen).await?;
    let Some(lease) = seen.entry(&key).map(|entry| entry.lease) else { return Ok(None) };
    let age = session.kv.lease_age(LeaseId(lease), session.until).await?;
    Ok(age.map(|age| Duration::from_secs(age.left.as_secs())))
}

/// All that is known of one address, one line each.
fn block(row: &Row) -> String {
    let holder = row.holder.as_ref();
    if let Some(hold) = holder.and_then(|holder| holder.hold.as_ref()) {
        return hold_block(row, hold);
    }
    let owner = row.container();
    let labels = holder.map(|holder| &holder.labels);
    let network = row.network.as_ref().map(NetworkName::as_str);
    let pool = row.pool.as_ref().map(|pool| ("pool", Some(pool.name.to_string())));
    let lines = [
        ("address", Some(row.address.to_string())),
        ("network", Some(network.unwrap_or("none: a static address, only recorded").to_owned())),
        ("container id", owner.map(|owner| owner.container_id.to_string())),
        ("interface", owner.map(|owner| owner.ifname.to_string())),
        ("node", owner.map(|owner| owner.node.to_string())),
        ("cluster", owner.map(|owner| owner.cluster_or_dash().to_owned())),
        ("pod", row.holder_words()),
        ("pod uid", labels.and_then(|labels| labels.pod.uid.as_ref()).map(PodUid::to_string)),
        ("cni network", labels.map(|labels| labels.cni_network.clone())),
        ("held since", holder.and_then(|holder| holder.created_at.clone())),
    ];
    let kept = row.kept.as_ref().map(|kept| ("kept", Some(kept.words())));
    let (address, others) = lines.split_at(2);
    let lines = address.iter().cloned().chain(pool).chain(kept).chain(others.iter().cloned());
    lines.map(line).collect()
}

/// All that is known of an address that is set aside.
fn hold_block(row: &Row, hold: &HoldNote) -> String {
    let time =
        hold.seconds.map(|seconds| humantime::format_duration(Duration::from_secs(seconds)).to_string());
    let lines = [
        ("address", Some(row.address.to_string())),
        ("network", row.network.as_ref().map(NetworkName::to_string)),
        ("set aside", Some(hold.note.clone())),
        ("for", Some(time.unwrap_or_else(|| "until it is removed".to_owned()))),
        ("held since", row.holder.as_ref().and_then(|holder| holder.created_at.clone())),
    ];
    lines.into_iter().map(line).collect()
}

fn line((name, value): (&str, Option<String>)) -> String {
    format!("{:<14}{}\n", format!("{name}:"), printable(&or_dash(value.as_deref())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Inventory;
    use crate::table::{Listed, TableForm, table_of};
    use metes_audit::fixture;
    use std::net::IpAddr;

    use metes_core::pool::{Held, Labels, Owner, OwnerRecord, Record, Reservation};
    use metes_core::txn::Entry;

    fn inventory() -> Inventory {
        let keys = fixture::keys();
        let mut entries = fixture::clean();
        let owner = Owner::named(["-", "n2", "cafe", "eth0"]).expect("plain names");
        let held = vec![Held::new("192.0.2.1".parse().expect("ip"), None)];
        let labels = Labels { cni_network: "fixed".into(), ..Labels::default() };
        let record = OwnerRecord::new(held, None, "-".into(), labels);
        entries.push(fixture::entry(keys.owner(&owner), record.encode()));
        let aside = HoldNote { note: "printer".into(), seconds: Some(7200) };
        let [network, other] = ["default", "other"].map(|name| NetworkName::stored(name).expect("a name"));
        let address = fixture::addr("10.0.0.9");
        let reservation = Reservation::of_hold(&other, address, aside, "2026-01-02T03:04:05Z".into());
        entries.push(fixture::entry(keys.ip(&other, address), reservation.encode()));
        let broken = Addr::from("10.0.0.3".parse::<IpAddr>().expect("ip"));
        entries.push(fixture::entry(keys.ip(&network, broken), b"?".to_vec()));
        let mut inventory = Inventory::default();
        entries.iter().rev().for_each(|entry| inventory.see(&keys, entry));
        inventory.sorted()
    }

    #[test]
    fn rows_whose_owner_has_no_record_are_read_again() {
        let (keys, clean) = (fixture::keys(), fixture::clean());
        let taken = |entries: &[Entry]| {
            let mut inventory = Inventory::default();
            entries.iter().for_each(|entry| inventory.see(&keys, entry));
            let left = inventory.take_rows_without_record();
            (left.len(), inventory.rows.len())
        };
        assert_eq!(taken(&clean), (0, 2));
        let is_record = |entry: &Entry| entry.key.starts_with(&keys.owners());
        let gone: Vec<_> = clean.iter().filter(|entry| !is_record(entry)).cloned().collect();
        assert_eq!(taken(&gone), (2, 0));
        let mut damaged = clean;
        damaged.iter_mut().filter(|entry| is_record(entry)).for_each(|entry| entry.value = b"?".to_vec());
        assert_eq!(taken(&damaged), (0, 2), "nobody else has them");
    }

    #[test]
    fn a_table_for_people() {
        let rows = inventory().rows;
        let text =
            |rows: &[Row]| table_of(&COLUMNS, rows.iter().map(Listed::cells).collect(), TableForm::default());
        let expected = "\
NETWORK  ADDRESS    CLUSTER  NODE  POD                 IFNAME  SINCE                 CONTAINER
default  10.0.0.1   east     n1    ns/web-0            net1    2026-01-02T03:04:05Z  c1
default  10.0.0.2   east     n1    ns/web-0            net1    2026-01-02T03:04:05Z  c1
default  10.0.0.3   -        -     -                   -       -                     -
other    10.0.0.9   -        -     set aside: printer  -       2026-01-02T03:04:05Z  -
-        192.0.2.1  -        n2    -                   eth0    -                     cafe
";
        assert_eq!(text(&rows), expected);
        assert!(text(&[]).starts_with("NETWORK") && text(&[]).lines().count() == 1);
        let names: Vec<String> = rows.iter().map(Listed::name).collect();
        assert_eq!(names[3..], ["other/10.0.0.9", "/192.0.2.1"]);
    }

    /// Two pods with names of 45 characters on several networks.
    #[test]
    fn rows_of_long_names_fit_into_a_terminal() {
        let row = |(network, address, end): (&str, &str, &str)| -> Vec<String> {
            let pod = format!("ml/trainer-large-language-model-rank-00017-{end}");
            let (since, id) = ("2026-01-02T03:04:05Z", "0123456789abcdef".repeat(4));
            let cells = [network, address, "prod-1", "gpu-worker-0117", &pod, "net7", since, &id];
            cells.into_iter().chain(["-", "-", "u-1", "rail-7"]).map(str::to_owned).collect()
        };
        let rows: Vec<Vec<String>> = [
            ("rail-6", "10.56.112.7", "x2k4p"),
            ("rail-6", "10.56.112.8", "q8z7w"),
            ("rail-7", "fd00:56::70:7", "x2k4p"),
            ("rail-7", "fd00:56::70:8", "q8z7w"),
        ]
        .map(row)
        .to_vec();
        let now = humantime::parse_rfc3339("2026-01-05T03:04:05Z").ok();
        let table = |width| {
            let screen = crate::table::Screen { width: Some(width), now, ..Default::default() };
            table_of(&COLUMNS, rows.clone(), TableForm { screen, ..TableForm::default() })
        };
        let narrow = "\
NETWORK  ADDRESS        POD                                               AGE
rail-6   10.56.112.7    ml/trainer-large-language-model-rank-00017-x2k4p  3d
rail-6   10.56.112.8    ml/trainer-large-language-model-rank-00017-q8z7w  3d
rail-7   fd00:56::70:7  ml/trainer-large-language-model-rank-00017-x2k4p  3d
rail-7   fd00:56::70:8  ml/trainer-large-language-model-rank-00017-q8z7w  3d
";
        assert_eq!(table(80), narrow);
        let columns = "NETWORK  ADDRESS        CLUSTER  NODE             POD  IFNAME  AGE  CONTAINER";
        let wide = table(160);
        let header: Vec<&str> = wide.lines().next().into_iter().flat_map(str::split_whitespace).collect();
        assert_eq!(header, columns.split_whitespace().collect::<Vec<_>>());
        assert!(wide.contains("  ml/trainer-large-language-model-rank-00017-q8z7w  net7    3d   "), "{wide}");
    }

    #[test]
    fn json_for_programs() {
        let rows = inventory().rows;
        let text: Vec<String> = rows.iter().map(|row| serde_json::to_string(row).expect("json")).collect();
        assert_eq!(
            text[0],
            concat!(
                r#"{"network":"default","address":"10.0.0.1","pool":null,"container_id":"c1","ifname":"net1","#,
                r#""pod":{"namespace":"ns","name":"web-0","uid":"u-1"},"#,
                r#""node":"n1","cluster":"east","cni_network":"mynet","created_at":"2026-01-02T03:04:05Z","#,
                r#""hold":null,"kept":null}"#,
            )
        );
        assert_eq!(
            text[2],
            concat!(
                r#"{"network":"default","address":"10.0.0.3","pool":null,"container_id":null,"ifname":null,"#,
                r#""pod":{"namespace":null,"name":null,"uid":null},"#,
                r#""node":null,"cluster":null,"cni_network":null,"created_at":null,"hold":null,"kept":null}"#,
            )
        );
        assert_eq!(
            text[3],
            concat!(
                r#"{"network":"other","address":"10.0.0.9","pool":null,"container_id":null,"ifname":null,"#,
                r#""pod":{"namespace":null,"name":null,"uid":null},"#,
                r#""node":null,"cluster":null,"cni_network":null,"created_at":"2026-01-02T03:04:05Z","#,
                r#""hold":{"note":"printer","for":7200},"kept":null}"#,
            )
        );
        assert_eq!(
            text[4],
            concat!(
                r#"{"network":null,"address":"192.0.2.1","pool":null,"container_id":"cafe","ifname":"eth0","#,
                r#""pod":{"namespace":null,"name":null,"uid":null},"#,
                r#""node":"n2","cluster":null,"cni_network":"fixed","created_at":null,"hold":null,"kept":null}"#,
            )
        );
    }

    #[test]
    fn all_that_is_known_of_an_address() {
        let text = block(&inventory().rows[0]);
        assert!(text.contains("pod uid:      u-1\n") && text.contains("held since:   2026-01-02T"), "{text}");
        let expected = "\
address:      10.0.0.9
network:      other
set aside:    printer
for:          2h
held since:   2026-01-02T03:04:05Z
";
        assert_eq!(block(&inventory().rows[3]), expected);
    }

    #[test]
    fn what_does_not_decode_is_named() {
        let inventory = inventory();
        assert_eq!(inventory.unreadable.len(), 1);
        assert!(
            inventory.unreadable[0].what.contains("/ip/00000000000000000000ffff0a000003: not a reservation")
        );
    }
}
