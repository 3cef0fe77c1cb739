//! Pictures for a terminal: two cells in a character where it has colours, one where it has none. Pure.

use std::fmt::Write;

use super::picture::{CellNames, Frame, MapCell, Paint, Picture};
use super::words::{cell_words, counts, legend, title};
use crate::table::{Screen, printable};

/// The widest and the narrowest picture, in characters.
const COLUMNS: [usize; 2] = [16, 128];
/// The most lines of a picture.
const LINES: usize = 32;
/// The width of a screen of which nothing is known.
const WIDTH: usize = 80;

/// True if this screen shows cells as coloured half blocks; else they are letters.
fn has_halves(screen: Screen) -> bool {
    screen.has_colour && screen.has_utf8
}

/// The most cells that fit beside labels of `label` characters.
pub(super) fn frame(screen: Screen, label: usize) -> Frame {
    let room = screen.width.unwrap_or(WIDTH).saturating_sub(label + 2).clamp(COLUMNS[0], COLUMNS[1]);
    let rows = if has_halves(screen) { 2 * LINES } else { LINES };
    Frame { columns: 1 << room.ilog2(), rows }
}

/// All pictures, with one legend below.
pub(super) fn text(pictures: &[Picture<'_>], names: &CellNames, screen: Screen) -> String {
    let mut text = String::new();
    for picture in pictures {
        let _ = writeln!(text, "{}", screen.bold(&title(picture)));
        let _ = writeln!(text, "{}", counts(&picture.sum()));
        let _ = writeln!(text, "{}", cell_words(picture));
        draw(&mut text, picture, screen);
        text.push('\n');
    }
    let most = screen.width.unwrap_or(WIDTH);
    let mut at = 0;
    for (paint, words) in legend(pictures, names) {
        let (mark, width) = match paint.colour().filter(|_| has_halves(screen)) {
            Some(colour) => (format!("\u{1b}[38;5;{}m\u{2588}\u{2588}\u{1b}[0m", colour.terminal), 2),
            None => (paint.letter().to_string(), 1),
        };
        let words = printable(&words);
        let width = width + 1 + words.chars().count();
        let (space, begin) = match at {
            0 => ("", 0),
            _ if at + 3 + width > most => ("\n", 0),
            _ => ("   ", at + 3),
        };
        let _ = write!(text, "{space}{mark} {words}");
        at = begin + width;
    }
    text.push('\n');
    text
}

/// One line for each row of cells, or for two.
fn draw(text: &mut String, picture: &Picture<'_>, screen: Screen) {
    let rows: Vec<&[MapCell]> = picture.cells.chunks(picture.columns).collect();
    let together = if has_halves(screen) { 2 } else { 1 };
    let labels: Vec<String> =
        (0..rows.len()).map(|row| picture.block(row * picture.columns).first.to_string()).collect();
    let width = labels.iter().map(String::len).max().unwrap_or_default();
    for (row, label) in labels.iter().enumerate().step_by(together) {
        let _ = write!(text, "{label:width$}  ");
        match together {
            2 => halves(text, rows[row], rows.get(row + 1).copied()),
            _ => letters(text, rows[row]),
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
}

fn letters(text: &mut String, cells: &[MapCell]) {
    text.extend(cells.iter().map(|cell| cell.paint().letter()));
}

/// The upper half of a character is one cell, and the lower half the cell below it.
fn halves(text: &mut String, upper: &[MapCell], lower: Option<&[MapCell]>) {
    let mut before = String::new();
    for (at, cell) in upper.iter().enumerate() {
        let below = lower.map_or(Paint::Outside, |lower| lower[at].paint());
        let (colours, half) = match (cell.paint().colour(), below.colour()) {
            (Some(up), Some(down)) => (format!("38;5;{};48;5;{}", up.terminal, down.terminal), '\u{2580}'),
            (Some(up), None) => (format!("38;5;{};49", up.terminal), '\u{2580}'),
            (None, Some(down)) => (format!("38;5;{};49", down.terminal), '\u{2584}'),
            (None, None) => ("39;49".to_owned(), ' '),
        };
        if colours != before {
            let _ = write!(text, "\u{1b}[{colours}m");
            before = colours;
        }
        text.push(half);
    }
    text.push_str("\u{1b}[0m");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::MapBy;
    use crate::map::picture::fixture::{NOW, area, inventory};

    fn drawn(by: MapBy, screen: Screen) -> String {
        let inventory = inventory();
        let area = area(&inventory, "10.0.0.0/24");
        let names = CellNames::of(by, inventory.rows.iter(), NOW);
        let picture = Picture::of(&area, &inventory, &names, frame(screen, 10));
        text(&[picture], &names, screen)
    }

    #[test]
    fn golden_in_letters() {
        let screen = Screen { width: Some(50), ..Screen::default() };
        assert_eq!(drawn(MapBy::Fill, screen), include_str!("golden/fill.txt"));
        assert_eq!(drawn(MapBy::Namespace, screen), include_str!("golden/namespace.txt"));
    }

    #[test]
    fn golden_in_colours() {
        let screen = Screen { width: Some(50), has_colour: true, has_utf8: true, now: None };
        assert_eq!(drawn(MapBy::Fill, screen), include_str!("golden/colours.txt"));
        // Without UTF-8 there are no half blocks.
        let screen = Screen { has_utf8: false, ..screen };
        assert!(drawn(MapBy::Fill, screen).is_ascii());
    }

    #[test]
    fn it_fits_the_screen() {
        for (width, columns) in [(80, 64), (79, 64), (20, 16), (1000, 128), (0, 16)] {
            let screen = Screen { width: Some(width), ..Screen::default() };
            assert_eq!(frame(screen, 13), Frame { columns, rows: LINES }, "{width}");
        }
        let coloured = Screen { width: None, has_colour: true, has_utf8: true, now: None };
        assert_eq!(frame(coloured, 13), Frame { columns: 64, rows: 2 * LINES });
    }
}
