//! The colours of cells: for pages, and for terminals with 256 of them. Pure.

use super::picture::{LEVELS, NAMED, Paint};

/// A colour, as a page writes it and as a terminal counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Colour {
    pub(super) page: &'static str,
    pub(super) terminal: u8,
}

const fn colour(page: &'static str, terminal: u8) -> Colour {
    Colour { page, terminal }
}

/// From little to full: lighter to darker, so that it can be told without seeing colours.
const FILL: [Colour; LEVELS as usize] = [
    colour("#ffeda0", 229),
    colour("#fed976", 222),
    colour("#feb24c", 215),
    colour("#fd8d3c", 208),
    colour("#fc4e2a", 202),
    colour("#e31a1c", 196),
    colour("#bd0026", 160),
    colour("#800026", 88),
];
/// The last one is for all others.
const NAMES: [Colour; NAMED + 1] = [
    colour("#4e79a7", 67),
    colour("#f28e2b", 208),
    colour("#59a14f", 71),
    colour("#e15759", 167),
    colour("#b07aa1", 139),
    colour("#edc948", 221),
    colour("#17a2a2", 37),
    colour("#ff9da7", 217),
    colour("#9c755f", 137),
    colour("#8cd17d", 114),
    colour("#8f8a86", 245),
];
const FREE: Colour = colour("#e9edf1", 238);
const COOLING: Colour = colour("#9fd3ef", 117);
const ASIDE: Colour = colour("#b9a6dc", 141);

impl Paint {
    /// None where nothing is drawn.
    pub(super) fn colour(self) -> Option<Colour> {
        match self {
            Paint::Outside => None,
            Paint::Free => Some(FREE),
            Paint::Cooling => Some(COOLING),
            Paint::Aside => Some(ASIDE),
            Paint::Fill(level) => FILL.get(usize::from(level.saturating_sub(1))).copied(),
            Paint::Name(name) => Some(NAMES[name.min(NAMED)]),
        }
    }

    /// Where there is no colour.
    pub(super) fn letter(self) -> char {
        match self {
            Paint::Outside => ' ',
            Paint::Free => '.',
            Paint::Cooling => '~',
            Paint::Aside => '=',
            Paint::Fill(LEVELS) => '#',
            Paint::Fill(level) => char::from(b'0' + level),
            Paint::Name(name) if name < NAMED => char::from(b'A' + name as u8),
            Paint::Name(_) => '+',
        }
    }
}
