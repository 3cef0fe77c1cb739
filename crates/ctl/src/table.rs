//! Text for people: columns of a table, and what may stand in a terminal. Pure.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::SystemTime;

use clap::builder::PossibleValue;
use serde::Serialize;

/// A column is not cut below so many characters.
const CUT_LEAST: usize = 5;
/// The number of digits of a container's id that a table shows, the same as docker's.
const ID_DIGITS: usize = 12;
/// A larger number is shown by its two first digits.
const COUNT_DIGITS: usize = 9;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) header: &'static str,
    form: CellForm,
    need: Need,
}

impl Column {
    /// A column of every table.
    pub(super) const fn new(header: &'static str, form: CellForm) -> Self {
        Self { header, form, need: Need::Always }
    }

    /// The same, left out where a terminal is too narrow: of several the one with the highest number first.
    pub(super) const fn spare(self, number: u8) -> Self {
        Self { need: Need::IfItFits(number), ..self }
    }

    /// The same, only in a wide table.
    pub(super) const fn wide(self) -> Self {
        Self { need: Need::Wide, ..self }
    }

    fn spare_number(&self) -> Option<u8> {
        match self.need {
            Need::IfItFits(number) => Some(number),
            Need::Always | Need::Wide => None,
        }
    }

    /// The header in a file, and the one on a terminal if that is another.
    fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let on_terminals = match self.form {
            CellForm::Time(header) => Some(header),
            _ => None,
        };
        std::iter::once(self.header).chain(on_terminals)
    }

    fn header(&self, form: TableForm) -> &'static str {
        match self.form {
            CellForm::Time(header) if form.now().is_some() => header,
            _ => self.header,
        }
    }

    fn cell(&self, text: &str, form: TableForm) -> String {
        let shown = match self.form {
            CellForm::Id if !form.is_wide => Some(short_id(text).to_owned()),
            CellForm::Count if !form.is_wide => short_count(text),
            CellForm::Time(_) => form.now().and_then(|now| age_of(text, now)),
            _ => None,
        };
        shown.unwrap_or_else(|| printable(text).into_owned())
    }
}

/// The form of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellForm {
    /// Cut in its middle where a terminal is too narrow: names that begin alike often differ at their ends.
    Name,
    /// Words, which are cut at their end.
    Text,
    /// Never cut.
    Whole,
    /// A container's id: the first digits, and all of it in a wide table.
    Id,
    /// A number; a large one by its size, and all of it in a wide table.
    Count,
    /// A time (RFC 3339); on a terminal, how long ago that was, under this header.
    Time(&'static str),
}

/// Where a column is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Always,
    IfItFits(u8),
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
    /// The time by which it shows ages instead of times.
    pub(super) now: Option<SystemTime>,
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

impl TableForm {
    /// The time by which ages are shown; none where times are.
    fn now(self) -> Option<SystemTime> {
        self.screen.now.filter(|_| !self.is_wide)
    }
}

/// A table; columns are two blanks apart, and nothing trails. Where the screen is too narrow, columns that it can do
/// without are left out, and then the longest ones are cut.
pub(super) fn table_of(columns: &[Column], rows: Vec<Vec<String>>, form: TableForm) -> String {
    let mut shown: Vec<(usize, &Column)> =
        columns.iter().enumerate().filter(|(_, column)| form.is_wide || column.need != Need::Wide).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().zip(columns).map(|(text, column)| column.cell(text, form)).collect())
        .collect();
    let width = |(at, column): &(usize, &Column)| {
        let header = if form.no_headers { "" } else { column.header(form) };
        let cells = rows.iter().filter_map(|row| row.get(*at)).map(String::as_str);
        cells.chain([header]).map(|text| text.chars().count()).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = shown.iter().map(width).collect();
    if let Some(most) = form.screen.width.filter(|_| !form.is_wide) {
        while length(&widths) > most
            && let Some(at) = least_needed(&shown)
        {
            shown.remove(at);
            widths.remove(at);
        }
        fit(&mut widths, &shown, most);
    }
    let header = shown.iter().map(|(_, column)| (column.header(form), column.form));
    let header = (!form.no_headers).then(|| form.screen.bold(&line(header, &widths)) + "\n");
    let row = |row: &Vec<String>| {
        let cells = shown.iter().map(|(at, column)| (row.get(*at).map_or("", String::as_str), column.form));
        line(cells, &widths) + "\n"
    };
    header.into_iter().chain(rows.iter().map(row)).collect()
}

/// A small table inside of other words.
pub(super) fn table<const N: usize>(header: [&'static str; N], rows: &[[String; N]]) -> String {
    let rows = rows.iter().map(|row| row.to_vec()).collect();
    table_of(&header.map(|header| Column::new(header, CellForm::Whole)), rows, TableForm::default())
}

/// The characters of a line.
fn length(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

/// The place of the column that a table can do without first.
fn least_needed(shown: &[(usize, &Column)]) -> Option<usize> {
    let spare = shown.iter().enumerate().filter_map(|(at, (_, column))| Some((column.spare_number()?, at)));
    spare.max().map(|(_, at)| at)
}

/// Cuts the longest columns that may be cut until a line has at most so many characters.
fn fit(widths: &mut [usize], shown: &[(usize, &Column)], most: usize) {
    while length(widths) > most {
        let may_cut = |column: &Column| matches!(column.form, CellForm::Name | CellForm::Text | CellForm::Id);
        let cuttable = widths.iter_mut().zip(shown);
        let cuttable = cuttable.filter(|(width, (_, column))| may_cut(column) && **width > CUT_LEAST);
        let Some((longest, _)) = cuttable.max_by_key(|(width, _)| **width) else { return };
        *longest -= 1;
    }
}

fn line<'t>(cells: impl Iterator<Item = (&'t str, CellForm)>, widths: &[usize]) -> String {
    let mut line = String::new();
    for ((cell, form), &width) in cells.zip(widths) {
        let cell = cut(cell, form, width);
        line.push_str(&format!("{cell:width$}  "));
    }
    line.truncate(line.trim_end().len());
    line
}

fn cut(cell: &str, form: CellForm, width: usize) -> Cow<'_, str> {
    let length = cell.chars().count();
    if length <= width {
        return cell.into();
    }
    let kept = width.saturating_sub(1);
    let tail = if form == CellForm::Name { kept / 2 } else { 0 };
    let head = cell.chars().take(kept - tail);
    head.chain(['\u{2026}']).chain(cell.chars().skip(length - tail)).collect::<String>().into()
}

/// A large number by its two first digits; none for others.
fn short_count(text: &str) -> Option<String> {
    if text.len() <= COUNT_DIGITS || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    text.parse::<f64>().ok().map(|number| format!("{number:.1e}"))
}

/// How long ago a time was, in its largest unit, and in the next one where that says much; none for other texts.
fn age_of(text: &str, now: SystemTime) -> Option<String> {
    const UNITS: [(u64, &str); 5] = [(365 * 86_400, "y"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let seconds = now.duration_since(humantime::parse_rfc3339(text).ok()?).unwrap_or_default().as_secs();
    let at = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(UNITS.len() - 1);
    let (unit, name) = UNITS[at];
    let count = seconds / unit;
    let rest = UNITS.get(at + 1).map(|(unit, name)| (seconds % UNITS[at].0 / unit, name));
    Some(match rest.filter(|(rest, _)| count < 10 && *rest > 0) {
        Some((rest, next)) => format!("{count}{name}{rest}{next}"),
        None => format!("{count}{name}"),
    })
}

/// The beginning of an id that a runtime has made; other ids as they are.
fn short_id(id: &str) -> &str {
    let is_made = id.len() > ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    if is_made { &id[..ID_DIGITS] } else { id }
}

/// Puts rows into the order of one of the columns' [`fields`]. Numbers and addresses go by their values.
pub(super) fn sort_by<T: Listed>(columns: &[Column], rows: &mut [T], field: &str) {
    let is_meant = |column: &Column| column.names().any(|name| name.eq_ignore_ascii_case(field));
    let at = columns.iter().position(is_meant);
    let key = |row: &T| at.map(|at| SortKey::of(row.cells().swap_remove(at)));
    rows.sort_by_cached_key(key);
}

/// The fields that rows can be sorted by, under each name that a table has for them.
pub(super) fn fields(columns: &[Column]) -> Vec<PossibleValue> {
    let field = |column: &Column| PossibleValue::new(column.header).aliases(column.names().skip(1));
    columns.iter().map(field).collect()
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
        Column::new("ADDRESS", CellForm::Whole),
        Column::new("POD", CellForm::Name),
        Column::new("CONTAINER", CellForm::Id).spare(1),
        Column::new("CNI", CellForm::Text).wide(),
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

    fn fitted(columns: &[Column], rows: Vec<Vec<String>>, width: usize) -> String {
        let screen = Screen { width: Some(width), ..Screen::default() };
        table_of(columns, rows, TableForm { screen, ..TableForm::default() })
    }

    #[test]
    fn columns_are_left_out_before_names_are_cut() {
        let columns = [
            Column::new("ADDRESS", CellForm::Whole),
            Column::new("NODE", CellForm::Name).spare(1),
            Column::new("IFNAME", CellForm::Name).spare(2),
            Column::new("POD", CellForm::Name),
        ];
        let row = ["10.0.0.1", "worker-17", "net1", "team/trainer-abcdef-x1"];
        let table = |width| fitted(&columns, vec![row.map(str::to_owned).to_vec()], width);
        let all = "ADDRESS   NODE       IFNAME  POD\n10.0.0.1  worker-17  net1    team/trainer-abcdef-x1\n";
        assert_eq!(table(51), all);
        assert_eq!(table(50), "ADDRESS   NODE       POD\n10.0.0.1  worker-17  team/trainer-abcdef-x1\n");
        assert_eq!(table(42), "ADDRESS   POD\n10.0.0.1  team/trainer-abcdef-x1\n");
        assert_eq!(table(31), "ADDRESS   POD\n10.0.0.1  team/train\u{2026}-abcdef-x1\n");
    }

    #[test]
    fn addresses_stay_whole_in_a_terminal_that_is_too_narrow_for_them() {
        let narrow = fitted(&COLUMNS, rows(), 10);
        assert!(narrow.contains("fd00::1234:5678:9abc:def0  -\n"), "{narrow}");
        assert!(narrow.contains("  te\u{2026}me\n"), "{narrow}");
    }

    #[test]
    fn a_terminal_shows_ages_and_the_sizes_of_large_numbers() {
        let columns = [Column::new("SIZE", CellForm::Count), Column::new("SINCE", CellForm::Time("AGE"))];
        let row = ["18446744073709551616", "2026-01-02T03:04:05Z"].map(str::to_owned).to_vec();
        let now = humantime::parse_rfc3339("2026-01-02T05:04:06Z").ok();
        let screen = Screen { now, ..Screen::default() };
        let table = |is_wide, screen| {
            table_of(&columns, vec![row.clone()], TableForm { is_wide, screen, no_headers: false })
        };
        assert_eq!(table(false, screen), "SIZE    AGE\n1.8e19  2h\n");
        assert_eq!(table(false, Screen::default()), "SIZE    SINCE\n1.8e19  2026-01-02T03:04:05Z\n");
        let wide = "SIZE                  SINCE\n18446744073709551616  2026-01-02T03:04:05Z\n";
        assert_eq!(table(true, screen), wide);
    }

    #[test]
    fn ages_have_at_most_two_units() {
        let now = humantime::parse_rfc3339("2026-11-02T12:00:00Z").expect("a time");
        for (since, age) in [
            ("2026-11-02T12:00:00Z", Some("0s")),
            // By another clock.
            ("2026-11-02T12:30:00Z", Some("0s")),
            ("2026-11-02T11:59:01Z", Some("59s")),
            ("2026-11-02T11:57:55Z", Some("2m5s")),
            ("2026-11-02T11:49:55Z", Some("10m")),
            ("2026-11-02T02:59:00Z", Some("9h1m")),
            ("2026-10-29T08:00:00Z", Some("4d4h")),
            ("2026-01-02T00:00:00Z", Some("304d")),
            ("2024-11-02T12:00:00Z", Some("2y")),
            ("-", None),
        ] {
            assert_eq!(age_of(since, now).as_deref(), age, "{since}");
        }
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
        sort_by(&[Column::new("CELL", CellForm::Text)], &mut rows, "cell");
        let sorted = rows.map(|Cell(text)| text);
        assert_eq!(sorted, ["9", "10", "10.0.0.9", "10.0.0.10", "fd00::1", "a", "b"]);
        let fields = fields(&[Column::new("SINCE", CellForm::Time("AGE"))]);
        assert!(["since", "age"].iter().all(|name| fields[0].matches(name, true)));
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
