//! Pictures as SVG, and as a page around it: one file, without scripts and without anything from elsewhere. Pure.

use std::fmt::Write;

use super::picture::{CellNames, Frame, Paint, Picture};
use super::words::{cell_words, counts, legend, title};
use crate::table::printable;

/// All lengths are in pixels. How wide the cells of a picture are together, and how wide one may be.
const PICTURE_WIDTH: usize = 768;
const CELL_MAX: usize = 32;
const MARGIN: usize = 24;
const LINE: usize = 20;
/// The width of a letter, at most; nothing here knows the fonts.
const LETTER: usize = 8;
/// More labels than this stand too close.
const LABELS_MAX: usize = 32;
/// Where words of the legend wrap.
const LEGEND_WIDTH: usize = 860;

const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#24292f}\
.h{font-size:20px;font-weight:600}\
.t{font-size:15px;font-weight:600}\
.l{font:11px ui-monospace,monospace;fill:#57606a}\
.m{fill:#57606a}\
rect.c:hover{stroke:#111;stroke-width:2}";

/// The size of a picture in cells: about as many rows as columns.
pub(super) fn frame(bits: u32) -> Frame {
    let columns = 1 << bits.min(12).div_ceil(2);
    Frame { columns, rows: 64 }
}

/// A page that a browser shows.
pub(super) fn html(heading: &str, pictures: &[Picture<'_>], names: &CellNames) -> String {
    let drawn = svg(heading, pictures, names);
    let heading = escaped(heading);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{heading}</title>\n\
         <style>body{{margin:0;background:#fff}}svg{{display:block;margin:0 auto}}</style>\n</head>\n<body>\n\
         {drawn}</body>\n</html>\n"
    )
}

/// All pictures, one below the other.
pub(super) fn svg(heading: &str, pictures: &[Picture<'_>], names: &CellNames) -> String {
    let mut body = String::new();
    let mut y = MARGIN + LINE;
    line(&mut body, y, "h", heading);
    y = legend_at(&mut body, y + LINE, pictures, names);
    let label = pictures.iter().map(label_width).max().unwrap_or_default();
    for picture in pictures {
        y += 2 * LINE;
        line(&mut body, y, "t", &title(picture));
        line(&mut body, y + LINE, "", &counts(&picture.sum()));
        line(&mut body, y + 2 * LINE, "m", &cell_words(picture));
        y = cells_at(&mut body, (MARGIN + label, y + 3 * LINE), picture, names);
    }
    let (width, height) = (2 * MARGIN + (label + PICTURE_WIDTH).max(LEGEND_WIDTH), y + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n<style>{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

fn line(body: &mut String, y: usize, class: &str, words: &str) {
    let _ = writeln!(body, "<text x=\"{MARGIN}\" y=\"{y}\" class=\"{class}\">{}</text>", escaped(words));
}

/// Returns where it ends.
fn legend_at(body: &mut String, top: usize, pictures: &[Picture<'_>], names: &CellNames) -> usize {
    let (mut x, mut y) = (MARGIN, top);
    let outside =
        pictures.iter().flat_map(|picture| &picture.cells).any(|cell| cell.paint() == Paint::Outside);
    let outside = outside.then(|| (Paint::Outside, "in no range".to_owned()));
    for (paint, words) in legend(pictures, names).into_iter().chain(outside) {
        let width = 2 * LINE + words.chars().count() * LETTER;
        if x > MARGIN && x + width > MARGIN + LEGEND_WIDTH {
            (x, y) = (MARGIN, y + LINE + 4);
        }
        let _ = writeln!(
            body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{}\" stroke=\"#d0d7de\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            fill(paint),
            x + LINE,
            y + 12,
            escaped(&words)
        );
        x += width;
    }
    y + LINE
}

fn label(picture: &Picture<'_>, row: usize) -> String {
    picture.block(row * picture.columns).first.to_string()
}

fn label_width(picture: &Picture<'_>) -> usize {
    let rows = picture.cells.len() / picture.columns;
    (0..rows).map(|row| label(picture, row).len() * LETTER).max().unwrap_or_default() + LETTER
}

/// Returns where they end.
fn cells_at(
    body: &mut String,
    (left, top): (usize, usize),
    picture: &Picture<'_>,
    names: &CellNames,
) -> usize {
    let side = (PICTURE_WIDTH / picture.columns).min(CELL_MAX);
    let rows = picture.cells.len() / picture.columns;
    for row in (0..rows).step_by(rows.div_ceil(LABELS_MAX)) {
        let (x, y) = (left - LETTER, top + row * side + side / 2 + 4);
        let words = label(picture, row);
        let _ = writeln!(body, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" class=\"l\">{words}</text>");
    }
    for (at, cell) in picture.cells.iter().enumerate() {
        let (x, y) = (left + at % picture.columns * side, top + at / picture.columns * side);
        let side = side - 1;
        let _ = writeln!(
            body,
            "<rect class=\"c\" x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" \
             fill=\"{}\"><title>{}: {}</title></rect>",
            fill(cell.paint()),
            picture.block(at).text(),
            escaped(&cell.words(names))
        );
    }
    top + rows * side
}

/// The fill of a cell. Cells outside of all ranges have one too, so that they can be pointed at.
fn fill(paint: Paint) -> &'static str {
    paint.colour().map_or("#fafbfc", |colour| colour.page)
}

/// As text of XML, whatever others have stored.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no words for these.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::MapBy;
    use crate::map::picture::fixture::{NOW, area, inventory};

    #[test]
    fn what_others_have_stored_is_text() {
        let inventory = inventory();
        let area = area(&inventory, "10.0.0.0/24");
        let names = CellNames::of(MapBy::Namespace, inventory.rows.iter(), NOW);
        let picture = Picture::of(&area, &inventory, &names, frame(area.block.bits));
        let page = html("a & \"b\"\u{1b}", &[picture], &names);
        assert!(
            page.starts_with("<!doctype html>")
                && page.contains("<title>a &amp; &quot;b&quot;\u{fffd}</title>")
        );
        assert!(page.contains("team-&lt;a&gt;") && !page.contains("<a>"), "{page}");
        assert!(page.contains("<title>10.0.0.130: set aside: printer, since 2026-01-02T11:30:00Z</title>"));
        assert_eq!(page.matches("class=\"c\"").count(), 256);
        for word in ["<script", "http://", "https://", "url("] {
            let own = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!own.contains(word), "{word}");
        }
    }

    #[test]
    fn a_picture_has_about_as_many_rows_as_columns() {
        for (bits, columns) in [(0, 1), (4, 4), (8, 16), (9, 32), (12, 64), (16, 64), (128, 64)] {
            assert_eq!(frame(bits), Frame { columns, rows: 64 }, "{bits}");
        }
    }
}
