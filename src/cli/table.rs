//! Text for people: columns of a table, and what may stand in a terminal. Pure.

use std::borrow::Cow;

/// A table with a header; columns are two blanks apart, and nothing trails.
pub(super) fn table<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let header = header.map(str::to_owned);
    let lines = || std::iter::once(&header).chain(rows);
    let width = |column: usize| lines().map(|line| printable(&line[column]).chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for line in lines() {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(widths) {
            row.push_str(&format!("{:width$}  ", printable(cell)));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Text without control characters: what others stored must not steer a terminal.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(char::is_control) {
        return text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect::<String>().into();
    }
    text.into()
}

/// A number of things, in English.
pub(super) fn many(count: usize, thing: &str) -> String {
    let ending = match (count, thing.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {thing}{ending}")
}

/// A cell for what may be unknown.
pub(super) fn or_dash(text: Option<&str>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_trails() {
        let rows = [["10.0.0.1".to_owned(), "a".to_owned()], ["::1".to_owned(), String::new()]];
        assert_eq!(table(["ADDRESS", "NODE"], &rows), "ADDRESS   NODE\n10.0.0.1  a\n::1\n");
    }

    #[test]
    fn stored_text_does_not_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(printable("plain"), "plain");
    }
}
