//! Text for people: columns of a table, and what may stand in a terminal. Pure.

use std::borrow::Cow;
use std::net::IpAddr;

use serde::Serialize;

/// A column is not cut below so many characters.
const CUT_LEAST: usize = 5;
/// The number of digits of a container's id that a table shows, the same as docker's.
const ID_DIGITS: usize = 12;

/// The header of a column, and the form of its cells.
pub(super) type Column = (&'static str, CellForm);

/// The form of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellForm {
    /// Cut where a terminal is too narrow.
    Text,
    /// Never cut.
    Whole,
    /// A container's id: the first digits, and all of it in a wide table.
    Id,
    /// Only in a wide table.
    Wide,
}

/// A listed thing: a line of a table, an object for programs, or a name.
pub(super) trait Listed: Serialize {
    /// One cell for each column, wide ones too.
    fn cells(&self) -> Vec<String>;

    /// The name by which other commands take it.
    fn name(&self) -> String;
}

impl<T: Listed> Listed for &T {
    fn cells(&self) -> Vec<String> {
        (*self).cells()
    }

    fn name(&self) -> String {
        (*self).name()
    }
}

/// The known properties of the terminal that a table goes to. It has none if the table goes to a file or a program.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Screen {
    /// The width of a line in characters.
    pub(super) width: Option<usize>,
    pub(super) has_colour: bool,
    /// True if it shows more than ASCII.
    pub(super) has_utf8: bool,
}

impl Screen {
    /// A header, or another line that stands out.
    pub(super) fn bold(self, line: &str) -> String {
        self.marked("1", line)
    }

    /// The obstacle.
    pub(super) fn red(self, line: &str) -> String {
        self.marked("31", line)
    }

    /// Marks a text that somebody should look at.
    pub(super) fn yellow(self, text: &str) -> String {
        self.marked("33", text)
    }

    /// Marks a text that says that all is well.
    pub(super) fn green(self, text: &str) -> String {
        self.marked("32", text)
    }

    fn marked(self, mark: &str, line: &str) -> String {
        if self.has_colour { format!("\u{1b}[{mark}m{line}\u{1b}[0m") } else { line.to_owned() }
    }
}

/// The shown part of a table, and the screen that it goes to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TableForm {
    pub(super) is_wide: bool,
    pub(super) no_headers: bool,
    pub(super) screen: Screen,
}

/// A table; columns are two blanks apart, and nothing trails. Where the screen is too narrow, the longest columns
/// are cut.
pub(super) fn table_of(columns: &[Column], rows: Vec<Vec<String>>, form: TableForm) -> String {
    let shown = |(_, cell): &Column| form.is_wide || *cell != CellForm::Wide;
    let cell = |(text, (_, cell)): (String, &Column)| match cell {
        CellForm::Id if !form.is_wide => short_id(&text).to_owned(),
        _ => printable(&text).into_owned(),
    };
    let row = |row: Vec<String>| -> Vec<String> {
        row.into_iter().zip(columns).filter(|(_, column)| shown(column)).map(cell).collect()
    };
    let rows: Vec<Vec<String>> = rows.into_iter().map(row).collect();
    let columns: Vec<&Column> = columns.iter().filter(|column| shown(column)).collect();
    let header: Vec<String> = columns.iter().map(|(header, _)| (*header).to_owned()).collect();
    let header = (!form.no_headers).then_some(header);
    let mut widths = vec![0; columns.len()];
    for line in header.iter().chain(&rows) {
        widths.iter_mut().zip(line).for_each(|(width, cell)| *width = (*width).max(cell.chars().count()));
    }
    if let Some(most) = form.screen.width.filter(|_| !form.is_wide) {
        let may_cut: Vec<bool> = columns.iter().map(|(_, cell)| *cell != CellForm::Whole).collect();
        fit(&mut widths, &may_cut, most);
    }
    let header = header.map(|header| form.screen.bold(&line(&header, &widths)) + "\n");
    let rows = rows.iter().map(|row| line(row, &widths) + "\n");
    header.into_iter().chain(rows).collect()
}

/// A small table inside of other words.
pub(super) fn table<const N: usize>(header: [&'static str; N], rows: &[[String; N]]) -> String {
    let rows = rows.iter().map(|row| row.to_vec()).collect();
    table_of(&header.map(|header| (header, CellForm::Whole)), rows, TableForm::default())
}

/// Cuts the longest columns that may be cut until a line has at most so many characters.
fn fit(widths: &mut [usize], may_cut: &[bool], most: usize) {
    while widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1) > most {
        let cuttable = widths.iter_mut().zip(may_cut).filter(|(width, may)| **may && **width > CUT_LEAST);
        let Some((longest, _)) = cuttable.max_by_key(|(width, _)| **width) else { return };
        *longest -= 1;
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, &width) in cells.iter().zip(widths) {
        match cell.char_indices().nth(width) {
            Some(_) => line.extend(cell.chars().take(width - 1).chain("\u{2026}  ".chars())),
            None => line.push_str(&format!("{cell:width$}  ")),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// The beginning of an id that a runtime has made; other ids as they are.
fn short_id(id: &str) -> &str {
    let is_made = id.len() > ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    if is_made { &id[..ID_DIGITS] } else { id }
}

/// Puts rows into the order of one of the columns' [`fields`]. Numbers and addresses go by their values.
pub(super) fn sort_by<T: Listed>(columns: &[Column], rows: &mut [T], field: &str) {
    let at = columns.iter().position(|(header, _)| header.eq_ignore_ascii_case(field));
    let key = |row: &T| at.map(|at| SortKey::of(row.cells().swap_remove(at)));
    rows.sort_by_cached_key(key);
}

/// The fields that rows can be sorted by.
pub(super) fn fields(columns: &[Column]) -> Vec<&'static str> {
    columns.iter().map(|(header, _)| *header).collect()
}

/// Numbers come before addresses, and what is neither comes last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Number(u128),
    Address(IpAddr),
    Text(String),
}

impl SortKey {
    fn of(cell: String) -> Self {
        let address = || cell.parse().map(SortKey::Address).ok();
        let value = cell.parse().map(SortKey::Number).ok().or_else(address);
        value.unwrap_or(SortKey::Text(cell))
    }
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

    const COLUMNS: [Column; 4] = [
        ("ADDRESS", CellForm::Whole),
        ("POD", CellForm::Text),
        ("CONTAINER", CellForm::Id),
        ("CNI", CellForm::Wide),
    ];

    fn rows() -> Vec<Vec<String>> {
        let id = "0123456789abcdef".repeat(4);
        [
            ["10.0.0.1", "team/a-pod-with-a-long-name", &id, "lan"],
            ["fd00::1234:5678:9abc:def0", "-", "cnitool-efa556b292a7ce00", "lan"],
        ]
        .map(|row| row.map(str::to_owned).to_vec())
        .to_vec()
    }

    #[test]
    fn ids_are_shortened_and_wide_shows_them_whole() {
        let narrow = table_of(&COLUMNS, rows(), TableForm::default());
        assert!(narrow.lines().next().is_some_and(|header| header.ends_with("CONTAINER")), "{narrow}");
        assert!(
            narrow.contains("  0123456789ab\n") && narrow.contains("  cnitool-efa556b292a7ce00\n"),
            "{narrow}"
        );
        let screen = Screen { width: Some(20), ..Screen::default() };
        let wide = table_of(&COLUMNS, rows(), TableForm { is_wide: true, screen, ..TableForm::default() });
        assert!(wide.contains(&format!("  {}  lan\n", "0123456789abcdef".repeat(4))), "{wide}");
        let none = table_of(&COLUMNS, rows(), TableForm { no_headers: true, ..TableForm::default() });
        assert_eq!(none.lines().count(), 2, "{none}");
    }

    #[test]
    fn a_table_fits_its_terminal_and_addresses_stay_whole() {
        let fitted = |width| {
            let screen = Screen { width: Some(width), ..Screen::default() };
            table_of(&COLUMNS, rows(), TableForm { screen, ..TableForm::default() })
        };
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max();
        assert_eq!(longest(&fitted(60)), Some(60));
        let expected = "  team/a-pod-with\u{2026}  0123456789ab";
        assert!(fitted(60).contains(expected), "{}", fitted(60));
        // Narrower than it can get.
        let narrow = fitted(10);
        assert!(narrow.contains("fd00::1234:5678:9abc:def0  -      cnit\u{2026}\n"), "{narrow}");
    }

    #[test]
    fn colours_stand_around_a_line() {
        let screen = Screen { has_colour: true, ..Screen::default() };
        let text = table_of(&COLUMNS, Vec::new(), TableForm { screen, ..TableForm::default() });
        assert_eq!(text, "\u{1b}[1mADDRESS  POD  CONTAINER\u{1b}[0m\n");
        assert_eq!(
            (screen.red("x"), Screen::default().red("x")),
            ("\u{1b}[31mx\u{1b}[0m".into(), "x".into())
        );
    }

    #[test]
    fn numbers_and_addresses_go_by_their_values() {
        let mut rows = ["b", "fd00::1", "10", "10.0.0.10", "9", "10.0.0.9", "a"].map(Cell);
        sort_by(&[("CELL", CellForm::Text)], &mut rows, "cell");
        let sorted = rows.map(|Cell(text)| text);
        assert_eq!(sorted, ["9", "10", "10.0.0.9", "10.0.0.10", "fd00::1", "a", "b"]);
        assert_eq!(fields(&COLUMNS), ["ADDRESS", "POD", "CONTAINER", "CNI"]);
    }

    #[derive(Serialize)]
    struct Cell(&'static str);

    impl Listed for Cell {
        fn cells(&self) -> Vec<String> {
            vec![self.0.to_owned()]
        }

        fn name(&self) -> String {
            self.0.to_owned()
        }
    }
}
