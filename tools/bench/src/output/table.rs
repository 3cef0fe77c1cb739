//! The table on stdout.

use std::fmt::Write;

use crate::marks::Mark;
use crate::output::SECTIONS;
use crate::results::{Data, Results, Row};
use crate::samples::{Sample, Storm, median};

const RATIO: &str = "
ratio: a storm's wall time to the mean of the floor storms before and after it; else the p50 to that of the floor
(CHECK and STATUS: of the floor that reads; from a pool: of the same from a configuration; under Size: of the same
with nothing held, nobody waiting; under Three members: of the same with all well). A DEL of a storm that was left
to the spool counts as a failure";

pub(crate) fn of(results: &Results, marks: &[Mark]) -> String {
    let mut table = String::new();
    for (section, title) in SECTIONS {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.section == section).collect();
        if !rows.is_empty() {
            line(&mut table, &heading(title));
            rows.iter().for_each(|row| line(&mut table, &body(results, row)));
        }
    }
    line(&mut table, RATIO);
    line(&mut table, &format!("\n{:<66} {:>8} {:>8}", "Marks", "value", "at most"));
    for mark in marks {
        let verdict = if mark.is_met() { "met" } else { "NOT MET" };
        line(&mut table, &format!("{:<66} {:>8.3} {:>8.2}  {verdict}", mark.what, mark.value, mark.limit));
    }
    let met = marks.iter().filter(|mark| mark.is_met()).count();
    line(&mut table, &format!("{met} of {} marks are met", marks.len()));
    table
}

fn line(table: &mut String, text: &str) {
    writeln!(table, "{}", text.trim_end()).expect("a string takes everything");
}

fn heading(title: &str) -> String {
    let columns = ["ratio", "wall s", "p50 ms", "p95 ms", "p99 ms", "max ms", "failures"];
    let columns: Vec<String> = columns.iter().map(|column| format!("{column:>9}")).collect();
    format!("\n{title:<48}{}", columns.concat())
}

fn body(results: &Results, row: &Row) -> String {
    match &row.data {
        Data::Times(sample, base) => {
            let base = base.as_ref().and_then(|base| results.sample(row.section, base));
            let to_base = base.map(|base| sample.percentile(50) / base.percentile(50));
            let what = format!("{} ({})", row.what, sample.count());
            columns(&what, to_base, None, sample)
        }
        Data::Storm(storms) => {
            let of = |value: fn(&Storm) -> f64| median(storms.iter().map(value));
            let all = row.data.times().unwrap_or_default();
            columns(&row.what, Some(of(Storm::to_floor)), Some(of(|storm| storm.wall_s)), &all)
        }
        Data::Number(values, unit) => {
            let value = if values.is_empty() {
                "not measured".to_owned()
            } else {
                format!("{:.2} {unit}", median(values.iter().copied()))
            };
            format!("{:<60} {value}", row.what)
        }
    }
}

fn columns(what: &str, to_floor: Option<f64>, wall_s: Option<f64>, sample: &Sample) -> String {
    let cell = |value: Option<f64>| value.map_or(" ".repeat(9), |value| format!("{value:>9.2}"));
    let times = sample.percentiles([50, 95, 99, 100]).map(|time| cell(Some(time))).concat();
    format!("{what:<48}{}{}{times}{:>9}", cell(to_floor), cell(wall_s), sample.failures)
}
