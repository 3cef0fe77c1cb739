//! `metes list` and `metes show`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{Filter, ListArgs, ListFormat, Place, ShowArgs};
use super::inventory::{COLUMNS, Inventory, Row};
use super::table::{or_dash, printable};
use super::{CliError, Context, Terminal};
use crate::config::keys::nearest;
use crate::pool::names::PodUid;
use crate::pool::record::{HoldNote, Owner};
use crate::pool::{Addr, NetworkName};
use crate::store::kv::Kv;

/// How many edits a name may be away from one that is suggested for it.
const SIMILAR_NAME_EDITS: usize = 2;

/// Lists the held addresses that are wanted.
pub(super) async fn list<K: Kv>(
    context: &Context<'_, K>,
    args: &ListArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let inventory = context.inventory("list the held addresses").await?;
    tell_unreadable(&inventory, args.filter.network.as_ref(), terminal);
    let rows: Vec<&Row> = inventory.rows.iter().filter(|row| row.is_wanted(&args.filter)).collect();
    if rows.is_empty() {
        unknown_names(&inventory, &args.filter).iter().for_each(|hint| terminal.tell(hint));
    }
    terminal.list(&COLUMNS, rows, &args.output)?;
    Ok(ExitCode::SUCCESS)
}

/// A sentence for each name that was asked for and that nothing held has, with the most similar one that there is.
fn unknown_names(inventory: &Inventory, filter: &Filter) -> Vec<String> {
    let Filter { network, place: Place { node, cluster }, namespace, pod } = filter;
    let rows = || inventory.rows.iter();
    let owners = || rows().filter_map(Row::container);
    let pods = || rows().filter_map(|row| row.holder.as_ref()).map(|holder| &holder.labels.pod);
    let pod = pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
    let names: BTreeSet<String> = pods().map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
    let asked: [(_, Option<&str>, BTreeSet<&str>); 5] = [
        (
            "in network",
            network.as_ref().map(NetworkName::as_str),
            rows().filter_map(|row| row.network.as_ref()).map(NetworkName::as_str).collect(),
        ),
        ("on node", node.as_deref(), owners().map(|owner| owner.node.as_str()).collect()),
        ("in cluster", cluster.as_deref(), owners().map(Owner::cluster_or_dash).collect()),
        ("in namespace", namespace.as_deref(), pods().map(|pod| pod.namespace.as_str()).collect()),
        ("by pod", pod.as_deref(), names.iter().map(String::as_str).collect()),
    ];
    let hint = |(place, name, known): (&str, Option<&str>, BTreeSet<&str>)| {
        let name = name.filter(|name| !known.contains(name))?;
        let known: Vec<&str> = known.into_iter().collect();
        let similar = nearest(name, &known, SIMILAR_NAME_EDITS);
        let similar = similar.map(|similar| format!("; did you mean {similar:?}?")).unwrap_or_default();
        Some(format!("metes: no address is held {place} {name:?}{similar}"))
    };
    asked.into_iter().filter_map(hint).collect()
}

/// Shows all rows of one address or container.
pub(super) async fn show<K: Kv>(
    context: &Context<'_, K>,
    args: &ShowArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let what = &args.what;
    let inventory = context.inventory(&format!("look up {what:?}")).await?;
    tell_unreadable(&inventory, None, terminal);
    let filter = &args.filter;
    let mut rows = find(&inventory.rows, what);
    rows.retain(|row| row.is_wanted(filter));
    if rows.is_empty() {
        let sentence = match what.parse::<IpAddr>() {
            Ok(address) => format!("{address} is not held{filter}; metes list shows what is"),
            Err(_) => format!(
                "{what:?} is neither an address nor the id of a container that holds one{filter}; metes list shows \
                 them"
            ),
        };
        return Err(CliError::Refused(sentence));
    }
    if args.output.format == ListFormat::Table {
        let blocks: Vec<String> = rows.into_iter().map(block).collect();
        terminal.answer(&blocks.join("\n"))?;
    } else {
        terminal.list(&COLUMNS, rows, &args.output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Names what does not decode: it is held by somebody all the same.
fn tell_unreadable(inventory: &Inventory, wanted: Option<&NetworkName>, terminal: &mut Terminal<'_>) {
    for unreadable in &inventory.unreadable {
        if wanted.is_none() || unreadable.network.is_none() || unreadable.network.as_ref() == wanted {
            terminal.tell(&format!("metes: cannot decode {}", unreadable.what));
        }
    }
}

/// The rows of an address, of a container, or of all containers whose ids begin like that.
fn find<'a>(rows: &'a [Row], what: &str) -> Vec<&'a Row> {
    let held = |test: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| test(row)).collect::<Vec<_>>();
    if let Ok(address) = what.parse::<IpAddr>() {
        return held(&|row| row.address == Addr::from(address));
    }
    let id = |test: &dyn Fn(&str) -> bool| {
        held(&|row| row.container().is_some_and(|o| test(o.container_id.as_str())))
    };
    let exact = id(&|id| id == what);
    if exact.is_empty() && !what.is_empty() { id(&|id| id.starts_with(what)) } else { exact }
}

/// All that is known of one address, one line each.
fn block(row: &Row) -> String {
    let holder = row.holder.as_ref();
    if let Some(hold) = holder.and_then(|holder| holder.hold.as_ref()) {
        return hold_block(row, hold);
    }
    let owner = row.owner();
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
    let (address, others) = lines.split_at(2);
    let lines = address.iter().cloned().chain(pool).chain(others.iter().cloned());
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
    use super::super::inventory::Inventory;
    use super::super::table::{Listed, TableForm, table_of};
    use super::*;
    use crate::audit::fixture;
    use crate::pool::record::{Held, Labels, Owner, OwnerRecord, Record, Reservation};

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
                r#""hold":null}"#,
            )
        );
        assert_eq!(
            text[2],
            concat!(
                r#"{"network":"default","address":"10.0.0.3","pool":null,"container_id":null,"ifname":null,"#,
                r#""pod":{"namespace":null,"name":null,"uid":null},"#,
                r#""node":null,"cluster":null,"cni_network":null,"created_at":null,"hold":null}"#,
            )
        );
        assert_eq!(
            text[3],
            concat!(
                r#"{"network":"other","address":"10.0.0.9","pool":null,"container_id":null,"ifname":null,"#,
                r#""pod":{"namespace":null,"name":null,"uid":null},"#,
                r#""node":null,"cluster":null,"cni_network":null,"created_at":"2026-01-02T03:04:05Z","#,
                r#""hold":{"note":"printer","for":7200}}"#,
            )
        );
        assert_eq!(
            text[4],
            concat!(
                r#"{"network":null,"address":"192.0.2.1","pool":null,"container_id":"cafe","ifname":"eth0","#,
                r#""pod":{"namespace":null,"name":null,"uid":null},"#,
                r#""node":"n2","cluster":null,"cni_network":"fixed","created_at":null,"hold":null}"#,
            )
        );
    }

    #[test]
    fn found_by_address_by_id_and_by_its_beginning() {
        let rows = inventory().rows;
        for (what, count) in [
            ("10.0.0.2", 1),
            ("c1", 2),
            ("c", 3),
            ("caf", 1),
            ("10.0.0.9", 1),
            ("10.0.0.8", 0),
            ("0000", 0),
            ("x", 0),
            ("", 0),
        ] {
            assert_eq!(find(&rows, what).len(), count, "{what:?}");
        }
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
