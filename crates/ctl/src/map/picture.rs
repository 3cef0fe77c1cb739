//! From the rows of an inventory to cells of a picture. Pure, and in one walk over the rows.

use std::collections::HashMap;

use super::MapBy;
use super::area::{Area, Block};
use crate::inventory::{Inventory, Row};
use metes_core::pool::{Addr, Span};

/// The most names that have a colour of their own; all others share one.
pub(super) const NAMED: usize = 10;
/// The levels of how full a cell is: the last one is full.
pub(super) const LEVELS: u8 = 8;

/// The ages that have a colour, by the longest in seconds, the youngest first.
const AGES: [(u64, &str); 5] = [
    (3600, "an hour"),
    (86_400, "a day"),
    (7 * 86_400, "a week"),
    (30 * 86_400, "a month"),
    (365 * 86_400, "a year"),
];

/// The most columns and rows of a picture in cells, each a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// An area in cells.
#[derive(Debug)]
pub(super) struct Picture<'a> {
    pub(super) area: &'a Area,
    /// A cell is 2 to this power of addresses.
    pub(super) cell_bits: u32,
    pub(super) columns: usize,
    pub(super) cells: Vec<MapCell>,
}

/// The addresses of one cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MapCell {
    /// The number of addresses that ranges give.
    pub(super) size: u128,
    /// The number of held ones, given by a range or not.
    pub(super) held: usize,
    /// The number of held ones that are set aside.
    pub(super) set_aside: usize,
    /// The number of cooling ones.
    pub(super) cooling: usize,
    /// The number of addresses of `size` that are neither held nor cooling.
    pub(super) free: u128,
    /// The most frequent name among the addresses that containers hold, and the number of addresses that have it.
    pub(super) most: Option<(usize, usize)>,
    /// The holder, if the cell is one address.
    pub(super) holder: Option<String>,
}

/// The look of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paint {
    /// No range gives its addresses, and none is held.
    Outside,
    Free,
    /// Only cooling.
    Cooling,
    /// Only set aside.
    Aside,
    /// So full, from 1 to [`LEVELS`].
    Fill(u8),
    /// Most of what is held there has this name.
    Name(usize),
}

/// The names that cells are coloured by.
#[derive(Debug)]
pub(super) struct CellNames {
    by: MapBy,
    /// Those that have a colour, and how many addresses each has.
    pub(super) named: Vec<(String, usize)>,
    /// By name, where it stands in `named`.
    at: HashMap<String, usize>,
    now: u64,
}

impl CellNames {
    /// The most frequent names of all rows that are drawn. `now` is in seconds since 1970.
    pub(super) fn of<'a>(by: MapBy, rows: impl Iterator<Item = &'a Row>, now: u64) -> Self {
        let mut names = Self { by, named: Vec::new(), at: HashMap::new(), now };
        match by {
            MapBy::Fill => {}
            MapBy::Age => names.set_ages(rows),
            MapBy::Namespace | MapBy::Node => names.set_most_frequent(rows),
        }
        names
    }

    fn set_ages<'a>(&mut self, rows: impl Iterator<Item = &'a Row>) {
        let words = AGES.iter().map(|(_, words)| format!("younger than {words}"));
        self.named =
            words.chain(["older".to_owned(), "unknown".to_owned()]).map(|words| (words, 0)).collect();
        for row in rows.filter(|row| !row.is_set_aside()) {
            let at = self.age(row);
            self.named[at].1 += 1;
        }
    }

    fn set_most_frequent<'a>(&mut self, rows: impl Iterator<Item = &'a Row>) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for row in rows.filter(|row| !row.is_set_aside()) {
            *counts.entry(self.name(row)).or_default() += 1;
        }
        let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let others = counts.split_off(counts.len().min(NAMED));
        self.named = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        self.at = counts.iter().enumerate().map(|(at, (name, _))| ((*name).to_owned(), at)).collect();
        if !others.is_empty() {
            let count = others.iter().map(|(_, count)| count).sum();
            self.named.push((format!("{} others", others.len()), count));
        }
    }

    fn name<'r>(&self, row: &'r Row) -> &'r str {
        let name = match self.by {
            MapBy::Node => row.container().map(|owner| owner.node.as_str()),
            _ => row.holder.as_ref().map(|holder| holder.labels.pod.namespace.as_str()),
        };
        name.filter(|name| !name.is_empty()).unwrap_or("-")
    }

    /// Where in `named` the row's name stands.
    fn index(&self, row: &Row) -> Option<usize> {
        match self.by {
            MapBy::Fill => None,
            MapBy::Age => Some(self.age(row)),
            MapBy::Namespace | MapBy::Node => {
                Some(self.at.get(self.name(row)).copied().unwrap_or(self.at.len()))
            }
        }
    }

    fn age(&self, row: &Row) -> usize {
        let at = row.holder.as_ref().and_then(|holder| holder.created_at.as_deref());
        let since =
            at.and_then(|at| humantime::parse_rfc3339(at).ok()?.duration_since(std::time::UNIX_EPOCH).ok());
        let Some(since) = since else { return AGES.len() + 1 };
        let age = self.now.saturating_sub(since.as_secs());
        AGES.iter().position(|(most, _)| age < *most).unwrap_or(AGES.len())
    }
}

impl<'a> Picture<'a> {
    /// The picture of an area, in at most the cells of a frame.
    pub(super) fn of(area: &'a Area, inventory: &Inventory, names: &CellNames, frame: Frame) -> Self {
        let most_bits = (frame.columns * frame.rows).ilog2();
        let cell_bits = area.block.bits.saturating_sub(most_bits);
        let count = 1 << (area.block.bits - cell_bits);
        let cells = vec![MapCell::default(); count];
        let mut picture = Self { area, cell_bits, columns: frame.columns.min(count), cells };
        picture.give();
        picture.hold(inventory, names);
        picture.cool(inventory);
        for cell in &mut picture.cells {
            cell.free = cell.free.saturating_sub(cell.cooling as u128);
        }
        picture
    }

    /// Counts what ranges give.
    fn give(&mut self) {
        for span in self.area.given.iter().filter_map(|span| span.within(self.area.block.span())) {
            for at in self.index(span.first)..=self.index(span.last) {
                let size = self.block(at).span().within(span).map_or(0, Span::size);
                self.cells[at].size += size;
                self.cells[at].free += size;
            }
        }
    }

    /// Counts what is held. The rows are in order, so those of one cell stand together.
    fn hold(&mut self, inventory: &Inventory, names: &CellNames) {
        let block = self.area.block;
        let mut given = self.area.given.iter().peekable();
        let mut counts = vec![0; names.named.len()];
        let mut before = None;
        for row in inventory.between(&self.area.network, block.first, block.last()) {
            let at = self.index(row.address);
            if before.replace(at).is_some_and(|before| before != at) {
                counts.fill(0);
            }
            while given.next_if(|span| span.last < row.address).is_some() {}
            let cell = &mut self.cells[at];
            cell.held += 1;
            cell.free -= u128::from(given.peek().is_some_and(|span| span.contains(row.address)));
            if row.is_set_aside() {
                cell.set_aside += 1;
            } else if let Some(name) = names.index(row) {
                counts[name] += 1;
                if cell.most.is_none_or(|(_, most)| counts[name] > most) {
                    cell.most = Some((name, counts[name]));
                }
            }
            if self.cell_bits == 0 {
                cell.holder = holder(row);
            }
        }
    }

    fn cool(&mut self, inventory: &Inventory) {
        let (network, block) = (&self.area.network, self.area.block);
        let cooling =
            inventory.cooling.range((network.clone(), block.first)..=(network.clone(), block.last()));
        for (_, address) in cooling {
            let at = self.index(*address);
            self.cells[at].cooling += 1;
        }
    }

    fn index(&self, address: Addr) -> usize {
        ((address.0 - self.area.block.first.0).checked_shr(self.cell_bits).unwrap_or(0)) as usize
    }

    /// The addresses of a cell.
    pub(super) fn block(&self, at: usize) -> Block {
        let before = (at as u128).checked_shl(self.cell_bits).unwrap_or(0);
        Block { first: Addr(self.area.block.first.0 + before), bits: self.cell_bits }
    }

    pub(super) fn sum(&self) -> MapCell {
        self.cells.iter().fold(MapCell::default(), |sum, cell| MapCell {
            size: sum.size.saturating_add(cell.size),
            held: sum.held + cell.held,
            set_aside: sum.set_aside + cell.set_aside,
            cooling: sum.cooling + cell.cooling,
            free: sum.free.saturating_add(cell.free),
            ..sum
        })
    }
}

fn holder(row: &Row) -> Option<String> {
    let words = row.holder_words();
    let on = row.container().map(|owner| format!("on {}", owner.node));
    let since =
        row.holder.as_ref().and_then(|holder| holder.created_at.as_ref()).map(|at| format!("since {at}"));
    let all: Vec<String> = [words, on, since].into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join(", "))
}

impl MapCell {
    pub(super) fn paint(&self) -> Paint {
        match self {
            Self { size: 0, held: 0, cooling: 0, .. } => Paint::Outside,
            Self { held: 0, cooling: 0, .. } => Paint::Free,
            Self { held: 0, .. } => Paint::Cooling,
            Self { most: Some((name, _)), .. } => Paint::Name(*name),
            Self { held, set_aside, .. } if held == set_aside => Paint::Aside,
            Self { free: 0, .. } => Paint::Fill(LEVELS),
            _ => {
                let taken = (self.size - self.free.min(self.size)) as f64 / self.size.max(1) as f64;
                Paint::Fill(1 + (taken * f64::from(LEVELS - 1)).min(f64::from(LEVELS - 2)) as u8)
            }
        }
    }

    /// In words, for whoever points at it.
    pub(super) fn words(&self, names: &CellNames) -> String {
        if let Some(holder) = &self.holder {
            return holder.clone();
        }
        let mut words = match self.paint() {
            Paint::Outside => return "in no range".to_owned(),
            Paint::Free => return format!("{} free", self.free),
            _ => vec![format!("{} held", self.held)],
        };
        let more = [(self.set_aside as u128, "of them set aside"), (self.cooling as u128, "cooling")];
        words.extend(
            more.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
        );
        words.push(format!("{} free", self.free));
        if let Some((name, count)) = self.most {
            words.push(format!("most: {} ({count})", names.named[name].0));
        }
        words.join(", ")
    }
}

#[cfg(test)]
pub(super) mod fixture {
    use super::*;
    use crate::inventory::Holder;
    use crate::map::area::{Drawn, areas};
    use metes_core::pool::range::fixtures::addr;
    use metes_core::pool::{HoldNote, Labels, NetworkName, Owner, Pod};

    /// Noon of 2026-01-02.
    pub(in crate::map) const NOW: u64 = 1_767_355_200;

    pub(in crate::map) fn network() -> NetworkName {
        NetworkName::stored("lan").expect("a network")
    }

    /// An address that a container of this namespace holds; set aside without one.
    pub(in crate::map) fn row(address: Addr, namespace: Option<&str>) -> Row {
        let owner = Owner::named(["east", "n1", "c1", "eth0"]).expect("plain names");
        let pod =
            Pod { namespace: namespace.unwrap_or_default().to_owned(), name: "p".to_owned(), uid: None };
        let hold = namespace.is_none().then(|| HoldNote { note: "printer".to_owned(), seconds: None });
        let labels = Labels { pod, cni_network: "net".to_owned() }.into();
        let created_at = Some("2026-01-02T11:30:00Z".to_owned());
        Row {
            network: Some(network()),
            address,
            holder: Some(Holder { owner, labels, created_at, hold }),
            pool: None,
            kept: None,
        }
    }

    /// Of 10.0.0.0/24: the first quarter is full, some of the second is held, .130 is set aside and .140 is cooling.
    pub(in crate::map) fn inventory() -> Inventory {
        let mut inventory = Inventory::default();
        let at = |last: u128| Addr(addr("10.0.0.0").0 + last);
        let namespace = |last: u128| if last < 40 { "team-<a>" } else { "team-b" };
        let held = (0..64).chain((64..128).step_by(3));
        inventory.rows = held.map(|last| row(at(last), Some(namespace(last)))).collect();
        inventory.rows.push(row(at(130), None));
        inventory.cooling.insert((network(), at(140)));
        inventory.sorted()
    }

    /// The prefix, with all of its addresses given.
    pub(in crate::map) fn area(inventory: &Inventory, prefix: &str) -> Area {
        let prefix = prefix.parse().expect("a prefix");
        let mut areas = areas(inventory, &Drawn::Prefix(None, prefix));
        areas[0].given = vec![areas[0].block.span()];
        areas.remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{NOW, area, inventory, network, row};
    use super::*;
    use metes_core::pool::range::fixtures::addr;

    #[test]
    fn each_address_is_counted_in_its_cell() {
        let inventory = inventory();
        let area = area(&inventory, "10.0.0.0/24");
        let names = CellNames::of(MapBy::Namespace, inventory.rows.iter(), NOW);
        assert_eq!(names.named, [("team-b".to_owned(), 46), ("team-<a>".to_owned(), 40)]);
        let picture = Picture::of(&area, &inventory, &names, Frame { columns: 4, rows: 4 });
        assert_eq!((picture.columns, picture.cell_bits, picture.cells.len()), (4, 4, 16));
        let full = MapCell { size: 16, held: 16, most: Some((1, 16)), ..MapCell::default() };
        assert_eq!(picture.cells[0], full);
        // 32 to 39 are team-a's, and 40 to 47 team-b's: the first that has most.
        assert_eq!(picture.cells[2].most, Some((1, 8)));
        assert_eq!(picture.cells[2].words(&names), "16 held, 0 free, most: team-<a> (8)");
        let (aside, free) = (&picture.cells[8], &picture.cells[15]);
        assert_eq!(
            (aside.paint(), aside.words(&names)),
            (Paint::Aside, "1 held, 1 of them set aside, 1 cooling, 14 free".into())
        );
        assert_eq!((free.paint(), free.words(&names).as_str()), (Paint::Free, "16 free"));
        let sum = picture.sum();
        assert_eq!((sum.size, sum.held, sum.set_aside, sum.cooling, sum.free), (256, 87, 1, 1, 168));
        assert_eq!(picture.block(15).text(), "10.0.0.240/28");
    }

    #[test]
    fn a_cell_of_one_address_says_who_holds_it() {
        let inventory = inventory();
        let area = area(&inventory, "10.0.0.0/24");
        let names = CellNames::of(MapBy::Fill, inventory.rows.iter(), NOW);
        let picture = Picture::of(&area, &inventory, &names, Frame { columns: 64, rows: 64 });
        assert_eq!((picture.columns, picture.cells.len()), (64, 256));
        assert_eq!(picture.cells[1].words(&names), "team-<a>/p, on n1, since 2026-01-02T11:30:00Z");
        assert_eq!(picture.cells[130].words(&names), "set aside: printer, since 2026-01-02T11:30:00Z");
        assert_eq!(
            (picture.cells[1].paint(), picture.cells[140].paint()),
            (Paint::Fill(LEVELS), Paint::Cooling)
        );
    }

    #[test]
    fn what_no_range_gives_is_outside_and_its_addresses_are_not_free() {
        let inventory = inventory();
        let mut area = area(&inventory, "10.0.0.0/24");
        area.given = vec![Span { first: addr("10.0.0.192"), last: addr("10.0.0.199") }];
        let names = CellNames::of(MapBy::Fill, inventory.rows.iter(), NOW);
        let picture = Picture::of(&area, &inventory, &names, Frame { columns: 4, rows: 4 });
        let [held, outside, given] = [0, 15, 12].map(|at| picture.cells[at].clone());
        assert_eq!((held.size, held.held, held.free, held.paint()), (0, 16, 0, Paint::Fill(LEVELS)));
        assert_eq!((outside.paint(), outside.words(&names).as_str()), (Paint::Outside, "in no range"));
        assert_eq!((given.size, given.free, given.paint()), (8, 8, Paint::Free));
    }

    #[test]
    fn levels_and_ages() {
        let level =
            |held, size| MapCell { size, held, free: size - held as u128, ..MapCell::default() }.paint();
        for (held, expected) in [(1, 1), (15, 2), (50, 4), (99, 7), (100, 8)] {
            assert_eq!(level(held, 100), Paint::Fill(expected), "{held}");
        }
        let at = |created_at: Option<&str>| {
            let mut row = row(addr("10.0.0.1"), Some("a"));
            row.holder.as_mut().expect("it has one").created_at = created_at.map(str::to_owned);
            row
        };
        let rows =
            [Some("2026-01-02T11:30:00Z"), Some("2026-01-01T12:00:01Z"), Some("2020-01-01T00:00:00Z"), None];
        let rows = rows.map(at);
        let names = CellNames::of(MapBy::Age, rows.iter(), NOW);
        assert_eq!(names.named.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1, 1, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn a_million_addresses_and_very_large_ranges_fit() {
        let mut inventory = Inventory::default();
        let first = addr("10.0.0.0").0;
        let row_at = |at| Row {
            network: Some(network()),
            address: Addr(first + at),
            holder: None,
            pool: None,
            kept: None,
        };
        inventory.rows = (0..1 << 20).map(row_at).collect();
        let block = area(&inventory, "10.0.0.0/12");
        let names = CellNames::of(MapBy::Node, inventory.rows.iter(), NOW);
        let picture = Picture::of(&block, &inventory, &names, Frame { columns: 64, rows: 64 });
        assert!(picture.cells.iter().all(|cell| (cell.held, cell.free) == (256, 0)));
        for prefix in ["::/0", "fd00::/8"] {
            let mut inventory = Inventory::default();
            inventory.rows = vec![Row { network: Some(network()), ..row(addr("fd00::5"), Some("a")) }];
            let block = Block::of(Span { first: addr("fd00::"), last: addr("fd00::ff") });
            let part = area(&inventory, prefix);
            assert_eq!((part.block, part.part_of.is_some()), (block, true), "{prefix}");
        }
    }
}
