//! The words around a picture: its title, its counts, and the meaning of its colours. Pure.

use std::collections::BTreeSet;

use super::picture::{CellNames, LEVELS, MapCell, Paint, Picture};

/// The drawn area.
pub(super) fn title(picture: &Picture<'_>) -> String {
    let area = picture.area;
    let part = match area.part_of {
        Some(whole) => format!(", the part of {} in which something is held", whole.text()),
        None => String::new(),
    };
    format!("{} of network {}{part}", area.block.text(), area.network)
}

/// The numbers of addresses: all, held, set aside, cooling and free.
pub(super) fn counts(sum: &MapCell) -> String {
    let MapCell { size, held, set_aside, cooling, free, .. } = sum;
    let full = if *size == 0 { String::new() } else { format!(" ({:.1} % taken)", percent(sum)) };
    let addresses = if *size == 1 { "address" } else { "addresses" };
    format!(
        "{size} {addresses}: {held} held, {set_aside} of them set aside, {cooling} cooling, {free} free{full}"
    )
}

fn percent(sum: &MapCell) -> f64 {
    (sum.size - sum.free.min(sum.size)) as f64 * 100.0 / sum.size as f64
}

/// The numbers of addresses of a cell and of a row.
pub(super) fn cell_words(picture: &Picture<'_>) -> String {
    let power = |bits: u32| match bits {
        0 => "1 address".to_owned(),
        1..=63 => format!("{} addresses", 1_u64 << bits),
        _ => format!("2^{bits} addresses"),
    };
    let row = picture.cell_bits + picture.columns.ilog2();
    format!("a cell is {}, a row {}", power(picture.cell_bits), power(row))
}

/// The colours that occur in the pictures, in their order, with the meaning of each.
pub(super) fn legend(pictures: &[Picture<'_>], names: &CellNames) -> Vec<(Paint, String)> {
    let seen: BTreeSet<Paint> =
        pictures.iter().flat_map(|picture| &picture.cells).map(MapCell::paint).collect();
    let has_levels = seen.iter().any(|paint| matches!(paint, Paint::Fill(1..LEVELS)));
    let mut all: Vec<(Paint, String)> = Vec::new();
    let plain = [(Paint::Free, "free"), (Paint::Cooling, "cooling"), (Paint::Aside, "set aside")];
    all.extend(
        plain
            .iter()
            .filter(|(paint, _)| seen.contains(paint))
            .map(|(paint, words)| (*paint, (*words).into())),
    );
    if has_levels {
        let part = |level: u8| format!("from {} %", u32::from(level - 1) * 100 / u32::from(LEVELS - 1));
        all.push((Paint::Fill(1), "some held".to_owned()));
        all.extend((2..LEVELS).map(|level| (Paint::Fill(level), part(level))));
    }
    if has_levels || seen.contains(&Paint::Fill(LEVELS)) {
        let is_single = pictures.iter().all(|picture| picture.cell_bits == 0);
        all.push((Paint::Fill(LEVELS), if is_single { "held" } else { "all held" }.to_owned()));
    }
    let named = names.named.iter().enumerate().filter(|(at, _)| seen.contains(&Paint::Name(*at)));
    all.extend(named.map(|(at, (name, count))| (Paint::Name(at), format!("{name} ({count})"))));
    all
}
