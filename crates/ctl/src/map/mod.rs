//! `metes map`: a picture of ranges.
//!
//! - `area`: which addresses; `picture`: from rows to cells, in one walk; both pure.
//! - `colour`, `words`: what cells look like and what is said of them; pure.
//! - `text`, `page`: pictures for terminals and browsers; pure.

mod area;
mod colour;
mod page;
mod picture;
mod text;
mod words;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use ipnetwork::IpNetwork;
use serde::Serialize;

use super::inventory::Inventory;
use super::list::tell_unreadable;
use super::output::value_name;
use super::selector::fault_of;
use super::{CliError, Context, Terminal};
use area::{Area, Drawn, areas};
use metes_config::keys::nearest;
use metes_core::pool::{NetworkName, PoolName, known_ranges};
use metes_engine::kv::{Failure, Kv};
use picture::{CellNames, Picture};

#[derive(Debug, Args)]
pub(super) struct MapArgs {
    /// A network, a pool or a prefix
    #[arg(value_name = "WHAT")]
    what: String,
    /// What it is, if the name stands for both
    #[arg(long = "as", value_enum, value_name = "KIND")]
    kind: Option<MapKind>,
    /// What cells are coloured by
    #[arg(long, value_enum, default_value_t = MapBy::Fill)]
    by: MapBy,
    /// Only this network, if a prefix is drawn
    #[arg(long, value_parser = NetworkName::stored)]
    network: Option<NetworkName>,
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t = MapFormat::Table)]
    format: MapFormat,
}

/// The kind of thing that a name may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MapKind {
    /// A network
    Network,
    /// A pool
    Pool,
}

/// The measure by which cells are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum MapBy {
    /// How full they are
    Fill,
    /// The namespace of most pods
    Namespace,
    /// The node of most containers
    Node,
    /// For how long most have been held
    Age,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum MapFormat {
    /// For a terminal
    Table,
    /// A drawing
    Svg,
    /// A page for a browser
    Html,
    /// For programs
    Json,
    /// For programs and people
    Yaml,
}

/// The most edits between a name and a similar one that is suggested for it.
const SIMILAR_NAME_EDITS: usize = 2;

/// Draws a network, a pool or a prefix.
pub(super) async fn map<K: Kv>(
    context: &Context<'_, K>,
    args: &MapArgs,
    terminal: &mut Terminal<'_>,
) -> Result<ExitCode, CliError> {
    let failed = || CliError::store(format!("read what is held in {:?}", args.what));
    let ranges = context.ranges().await.map_err(failed())?;
    let networks = context.networks().await.map_err(failed())?;
    let drawn = drawn(args, &ranges, &networks, terminal)?;
    let inventory = read(context, ranges, &networks, (&drawn, args.by)).await.map_err(failed())?;
    tell_unreadable(&inventory, None, terminal);
    let areas = areas(&inventory, &drawn);
    if areas.is_empty() {
        let what = &args.what;
        return Err(CliError::Refused(format!(
            "nothing is held in {what}, and no known range overlaps it; metes usage lists the ranges"
        )));
    }
    tell_outside(&inventory, &drawn, &areas, terminal);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let rows =
        areas.iter().flat_map(|area| inventory.between(&area.network, area.block.first, area.block.last()));
    let names = CellNames::of(args.by, rows, now);
    print(&areas, &inventory, &names, args, terminal)?;
    Ok(ExitCode::SUCCESS)
}

/// Finds the thing that the arguments name. A network goes before a pool of the same name: most often both have the
/// same addresses.
fn drawn(
    args: &MapArgs,
    ranges: &Inventory,
    networks: &[NetworkName],
    terminal: &mut Terminal<'_>,
) -> Result<Drawn, CliError> {
    let MapArgs { what, kind, network, .. } = args;
    if let (None, Ok(prefix)) = (kind, what.parse::<IpNetwork>()) {
        return Ok(Drawn::Prefix(network.clone(), prefix));
    }
    let pool = what.parse::<PoolName>().ok().filter(|pool| ranges.pools.get(pool).is_some());
    let mut known: Vec<NetworkName> = networks.to_vec();
    known.extend(
        known_ranges(ranges.pools.iter(), &ranges.asked).iter().map(|known| known.range.network().clone()),
    );
    let of_network = known.iter().find(|network| network.as_str() == what).cloned();
    match (kind, of_network, pool) {
        (Some(MapKind::Pool), _, Some(pool)) | (None, None, Some(pool)) => Ok(Drawn::Pool(pool)),
        (Some(MapKind::Network) | None, Some(network), pool) => {
            if kind.is_none() && pool.is_some() {
                terminal.tell(&format!("metes: this is the network {what}; --as pool draws the pool"));
            }
            Ok(Drawn::Network(network))
        }
        _ => Err(unknown(args, ranges, &known)),
    }
}

fn unknown(args: &MapArgs, ranges: &Inventory, networks: &[NetworkName]) -> CliError {
    if let Some(fault) = fault_of(&args.what) {
        return CliError::Refused(fault);
    }
    let (what, kind) = (&args.what, args.kind.map_or_else(|| "network or pool".to_owned(), value_name));
    let pools =
        ranges.pools.iter().map(|pool| pool.pool.as_str()).filter(|_| args.kind != Some(MapKind::Network));
    let networks = networks.iter().map(NetworkName::as_str).filter(|_| args.kind != Some(MapKind::Pool));
    let names: Vec<&str> = networks.chain(pools).collect();
    let similar = nearest(what, &names, SIMILAR_NAME_EDITS);
    let similar = similar.map(|similar| format!("; did you mean {similar:?}?")).unwrap_or_default();
    CliError::Refused(format!("no {kind} {what:?} is known{similar}; metes usage lists networks and pools"))
}

/// Adds what is held to the ranges.
async fn read<K: Kv>(
    context: &Context<'_, K>,
    mut ranges: Inventory,
    networks: &[NetworkName],
    (drawn, by): (&Drawn, MapBy),
) -> Result<Inventory, Failure> {
    let of_pool = match drawn {
        Drawn::Pool(pool) => ranges.pools.get(pool).map(|pool| pool.network.clone()),
        _ => None,
    };
    let read = match drawn {
        Drawn::Network(network) | Drawn::Prefix(Some(network), _) => vec![network.clone()],
        Drawn::Prefix(None, _) => networks.to_vec(),
        Drawn::Pool(_) => of_pool.into_iter().collect(),
    };
    let within = match drawn {
        Drawn::Prefix(_, prefix) => Some(*prefix),
        Drawn::Network(_) | Drawn::Pool(_) => None,
    };
    context.read_held(&read, within, &mut ranges).await?;
    match by {
        MapBy::Namespace => context.with_owners(ranges).await,
        MapBy::Fill | MapBy::Node | MapBy::Age => Ok(ranges.sorted()),
    }
}

/// Tells the number of held addresses of a network that no picture shows.
fn tell_outside(inventory: &Inventory, drawn: &Drawn, areas: &[Area], terminal: &mut Terminal<'_>) {
    let Drawn::Network(_) = drawn else { return };
    let shown: usize = areas
        .iter()
        .map(|area| inventory.between(&area.network, area.block.first, area.block.last()).len())
        .sum();
    let outside = inventory.rows.len().saturating_sub(shown);
    if outside > 0 {
        terminal.tell(&format!("metes: {outside} of its addresses lie in no known range, and are not drawn"));
    }
}

fn print(
    areas: &[Area],
    inventory: &Inventory,
    names: &CellNames,
    args: &MapArgs,
    terminal: &mut Terminal<'_>,
) -> Result<(), CliError> {
    let of_page = || -> Vec<Picture<'_>> {
        areas.iter().map(|area| Picture::of(area, inventory, names, page::frame(area.block.bits))).collect()
    };
    let heading = format!("metes map: {} by {}", args.what, value_name(args.by));
    match args.format {
        MapFormat::Table => {
            let (screen, label) = (terminal.screen, label_width(areas));
            let pictures: Vec<Picture<'_>> = areas
                .iter()
                .map(|area| Picture::of(area, inventory, names, text::frame(screen, label)))
                .collect();
            terminal.answer(&text::text(&pictures, names, screen))
        }
        MapFormat::Svg => terminal.answer(&page::svg(&heading, &of_page(), names)),
        MapFormat::Html => terminal.answer(&page::html(&heading, &of_page(), names)),
        MapFormat::Json => terminal.answer_json(&told(&of_page(), names, args.by)),
        MapFormat::Yaml => terminal.answer_yaml(&told(&of_page(), names, args.by)),
    }
}

/// The width of the longest address that stands before a row, in characters.
fn label_width(areas: &[Area]) -> usize {
    areas.iter().map(|area| area.block.last().to_string().len()).max().unwrap_or_default()
}

/// Pictures for programs. Sizes are text, because some programs round large numbers.
#[derive(Serialize)]
struct MapsJson<'a> {
    by: MapBy,
    maps: Vec<MapJson<'a>>,
}

#[derive(Serialize)]
struct MapJson<'a> {
    network: &'a NetworkName,
    range: String,
    #[serde(flatten)]
    counts: CountsJson,
    /// The number of addresses of a cell.
    cell_addresses: String,
    /// Those in which something is held or cooling.
    cells: Vec<MapCellJson<'a>>,
}

#[derive(Serialize)]
struct MapCellJson<'a> {
    range: String,
    #[serde(flatten)]
    counts: CountsJson,
    /// The name that most of its addresses have.
    most: Option<&'a str>,
}

#[derive(Serialize)]
struct CountsJson {
    size: String,
    held: usize,
    set_aside: usize,
    cooling: usize,
    free: String,
}

impl CountsJson {
    fn of(cell: &picture::MapCell) -> Self {
        let picture::MapCell { size, held, set_aside, cooling, free, .. } = cell;
        Self {
            size: size.to_string(),
            held: *held,
            set_aside: *set_aside,
            cooling: *cooling,
            free: free.to_string(),
        }
    }
}

fn told<'a>(pictures: &'a [Picture<'_>], names: &'a CellNames, by: MapBy) -> MapsJson<'a> {
    let cell = |picture: &Picture<'_>, at: usize, cell| MapCellJson {
        range: picture.block(at).text(),
        counts: CountsJson::of(cell),
        most: cell.most.map(|(name, _)| names.named[name].0.as_str()),
    };
    let of_picture = |picture: &'a Picture<'_>| {
        let used = picture.cells.iter().enumerate().filter(|(_, cell)| cell.held + cell.cooling > 0);
        MapJson {
            network: &picture.area.network,
            range: picture.area.block.text(),
            counts: CountsJson::of(&picture.sum()),
            cell_addresses: 1_u128.checked_shl(picture.cell_bits).unwrap_or(u128::MAX).to_string(),
            cells: used.map(|(at, used)| cell(picture, at, used)).collect(),
        }
    };
    MapsJson { by, maps: pictures.iter().map(of_picture).collect() }
}
