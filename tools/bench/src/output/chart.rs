//! The distributions as an SVG: a panel for each section, a shape for each kind of process, times on a logarithmic
//! axis.
//!
//! Drawn by hand: a plotting crate is many times as much code as this, and knows no such panel.

use std::fmt::Write;

use crate::machine::Machine;
use crate::options::Section;
use crate::output::SECTIONS;
use crate::results::{Data, Results, Row};
use crate::samples::{Sample, float, median, percentile};

const WIDTH: f64 = 1120.0;
const MARGIN: f64 = 24.0;
/// Names stand left of this, shapes right of it.
const LEFT: f64 = 360.0;
/// Figures stand right of this, and end at these.
const RIGHT: f64 = 840.0;
const P50: f64 = 916.0;
const P99: f64 = 976.0;
const MAX: f64 = 1036.0;
const STORM: f64 = 1096.0;
const ROW: f64 = 30.0;
const PANEL_HEAD: f64 = 46.0;
const PANEL_FOOT: f64 = 40.0;
const HEAD: f64 = 104.0;

const INK: &str = "#1c2430";
const FAINT: &str = "#667085";
const GRID: &str = "#e4e7ec";

/// The program of a process.
#[derive(Clone, Copy)]
enum Kind {
    Floor,
    Metes,
    Other,
}

impl Kind {
    const ALL: [(Kind, &'static str); 3] = [
        (Kind::Metes, "metes"),
        (Kind::Floor, "floor: the least that any plugin on etcd does"),
        (Kind::Other, "another plugin"),
    ];

    fn of(row: &Row) -> Self {
        match row.name.as_str() {
            name if name.contains("floor") => Kind::Floor,
            name if name.starts_with("host-local") || name.starts_with("peer") => Kind::Other,
            _ => Kind::Metes,
        }
    }

    fn color(self) -> &'static str {
        match self {
            Kind::Floor => "#8b95a5",
            Kind::Metes => "#2563eb",
            Kind::Other => "#d97706",
        }
    }
}

pub(crate) fn of(machine: &Machine, results: &Results) -> String {
    let mut svg = Svg::default();
    head(&mut svg, machine);
    let mut top = HEAD;
    for (section, title) in SECTIONS {
        let rows = rows(results, section);
        if !rows.is_empty() {
            top = panel(&mut svg, top, title, &rows);
        }
    }
    svg.finish(top)
}

/// Those that have times, in milliseconds and sorted.
fn rows(results: &Results, section: Section) -> Vec<(&Row, Vec<f64>)> {
    let rows = results.rows.iter().filter(|row| row.section == section);
    rows.filter_map(|row| Some((row, row.data.times()?)))
        .map(sorted)
        .filter(|(_, ms)| !ms.is_empty())
        .collect()
}

fn sorted((row, sample): (&Row, Sample)) -> (&Row, Vec<f64>) {
    (row, sample.sorted_ms())
}

fn head(svg: &mut Svg, machine: &Machine) {
    svg.text(MARGIN, 34.0, "start", 20.0, INK, "How long one process takes");
    let Machine { processor, cores, etcd, metes, .. } = machine;
    let where_ = format!(
        "{metes}, {etcd} on loopback, {cores} x {processor}. Each from the start of a process to its end."
    );
    svg.text(MARGIN, 56.0, "start", 12.0, FAINT, &where_);
    let mut x = MARGIN;
    for (kind, name) in Kind::ALL {
        svg.rect(x, 72.0, 12.0, 12.0, kind.color(), 0.7);
        svg.text(x + 18.0, 82.0, "start", 12.0, INK, name);
        x += 18.0 + 6.1 * float(name.len()) + 24.0;
    }
    let key = "logarithmic; shape: how often; bar: middle half; line: p50; dot: p99";
    svg.text(WIDTH - MARGIN, 82.0, "end", 12.0, FAINT, key);
}

/// Where the next one begins.
fn panel(svg: &mut Svg, top: f64, title: &str, rows: &[(&Row, Vec<f64>)]) -> f64 {
    let axis = Axis::over(rows.iter().map(|(_, ms)| ms.as_slice()));
    let bottom = top + PANEL_HEAD + ROW * float(rows.len());
    svg.text(MARGIN, top + 24.0, "start", 15.0, INK, title);
    let has_storms = rows.iter().any(|(row, _)| matches!(row.data, Data::Storm(_)));
    for (name, x) in [("p50 ms", P50), ("p99 ms", P99), ("max ms", MAX), ("storm s", STORM)] {
        if has_storms || x != STORM {
            svg.text(x, top + PANEL_HEAD - 8.0, "end", 11.0, FAINT, name);
        }
    }
    for (ms, is_named) in axis.ticks() {
        svg.line(
            [axis.x(ms), top + PANEL_HEAD],
            [axis.x(ms), bottom],
            GRID,
            if is_named { 1.4 } else { 0.7 },
        );
        if is_named {
            svg.text(axis.x(ms), bottom + 16.0, "middle", 11.0, FAINT, &time(ms));
        }
    }
    for (index, (row, ms)) in rows.iter().enumerate() {
        shape(svg, &axis, top + PANEL_HEAD + ROW * (float(index) + 0.5), row, ms);
    }
    bottom + PANEL_FOOT
}

fn shape(svg: &mut Svg, axis: &Axis, y: f64, row: &Row, ms: &[f64]) {
    let color = Kind::of(row).color();
    svg.text(LEFT - 14.0, y + 4.0, "end", 12.5, INK, &row.what);
    svg.outline(&density(axis, ms, y), color);
    let [p25, p50, p75, p99, max] = [25, 50, 75, 99, 100].map(|percent| percentile(ms, percent));
    svg.rect(axis.x(p25), y - 3.0, (axis.x(p75) - axis.x(p25)).max(1.0), 6.0, color, 0.9);
    svg.line([axis.x(p50), y - 10.0], [axis.x(p50), y + 10.0], INK, 2.0);
    svg.dot(axis.x(p99), y, 3.0, color);
    for (x, value) in [(P50, p50), (P99, p99), (MAX, max)] {
        svg.text(x, y + 4.0, "end", 12.0, INK, &short(value));
    }
    if let Data::Storm(storms) = &row.data {
        let wall_s = median(storms.iter().map(|storm| storm.wall_s));
        svg.text(STORM, y + 4.0, "end", 12.0, INK, &short(wall_s));
    }
}

/// The distribution of the times, as the outline of a shape that is mirrored at `y`.
fn density(axis: &Axis, ms: &[f64], y: f64) -> Vec<[f64; 2]> {
    const BIN: f64 = 4.0;
    const KERNEL: [f64; 5] = [0.1, 0.2, 0.4, 0.2, 0.1];
    let bin = |ms: f64| to_index((axis.x(ms) - LEFT) / BIN);
    let mut counts = vec![0.0; to_index((RIGHT - LEFT) / BIN) + 1];
    ms.iter().for_each(|ms| counts[bin(*ms)] += 1.0);
    let at = |index: usize, offset: usize| (index + offset).checked_sub(2).and_then(|at| counts.get(at));
    let smooth: Vec<f64> = (0..counts.len())
        .map(|index| (0..5).map(|offset| KERNEL[offset] * at(index, offset).unwrap_or(&0.0)).sum())
        .collect();
    let highest = smooth.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let (first, last) = (bin(ms[0]).saturating_sub(2), (bin(ms[ms.len() - 1]) + 3).min(smooth.len()));
    // Heights grow with the root of the frequency; otherwise rare times would be invisible.
    let half = |index: usize| (smooth[index] / highest).sqrt() * ROW * 0.42;
    let x = |index: usize| LEFT + (float(index) + 0.5) * BIN;
    let upper = (first..last).map(|index| [x(index), y - half(index)]);
    let lower = (first..last).rev().map(|index| [x(index), y + half(index)]);
    upper.chain(lower).collect()
}

/// Not negative, and no larger than the chart is wide.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped right here")]
fn to_index(value: f64) -> usize {
    value.clamp(0.0, WIDTH) as usize
}

/// A logarithmic axis from LEFT to RIGHT.
struct Axis {
    least: f64,
    greatest: f64,
}

impl Axis {
    /// From just below the least to just above the greatest.
    fn over<'a>(rows: impl Iterator<Item = &'a [f64]>) -> Self {
        let ends = rows.map(|ms| (ms[0], ms[ms.len() - 1]));
        let (least, greatest) =
            ends.fold((f64::MAX, f64::MIN), |(low, high), (first, last)| (low.min(first), high.max(last)));
        Self { least: least / 1.15, greatest: greatest * 1.15 }
    }

    fn x(&self, ms: f64) -> f64 {
        let share = (ms / self.least).ln() / (self.greatest / self.least).ln();
        LEFT + share * (RIGHT - LEFT)
    }

    /// 1, 2, 3 ... 10, 20, 30 ..., and whether there is room for the name.
    fn ticks(&self) -> Vec<(f64, bool)> {
        let named: &[usize] = if self.greatest / self.least > 300.0 { &[1] } else { &[1, 2, 5] };
        let decades = (-3..6).map(|power| 10_f64.powi(power));
        let ticks = decades.flat_map(|unit| (1..10).map(move |digit| (unit * float(digit), digit)));
        let inside = ticks.filter(|(ms, _)| (self.least..=self.greatest).contains(ms));
        inside.map(|(ms, digit)| (ms, named.contains(&digit))).collect()
    }
}

fn time(ms: f64) -> String {
    if ms >= 1000.0 { format!("{} s", ms / 1000.0) } else { format!("{} ms", (ms * 1000.0).round() / 1000.0) }
}

fn short(ms: f64) -> String {
    if ms >= 100.0 { format!("{ms:.0}") } else { format!("{ms:.2}") }
}

#[derive(Default)]
struct Svg(String);

impl Svg {
    fn text(&mut self, x: f64, y: f64, anchor: &str, size: f64, color: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        self.put(&format!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" fill="{color}">{text}</text>"#
        ));
    }

    fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], color: &str, width: f64) {
        self.put(&format!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{color}" stroke-width="{width}"/>"#
        ));
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, color: &str, opacity: f64) {
        let fill = format!(r#"fill="{color}" fill-opacity="{opacity}""#);
        self.put(&format!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="1.5" {fill}/>"#
        ));
    }

    fn dot(&mut self, x: f64, y: f64, radius: f64, color: &str) {
        self.put(&format!(
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="{radius}" fill="#ffffff" stroke="{color}" stroke-width="1.8"/>"##
        ));
    }

    fn outline(&mut self, points: &[[f64; 2]], color: &str) {
        let points: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let points = points.join(" ");
        self.put(&format!(r#"<polygon points="{points}" fill="{color}" fill-opacity="0.28"/>"#));
    }

    fn put(&mut self, element: &str) {
        writeln!(self.0, "{element}").expect("a string takes everything");
    }

    fn finish(self, height: f64) -> String {
        let Self(body) = self;
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"
 viewBox="0 0 {WIDTH} {height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
{body}</svg>
"##
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decade_is_as_wide_as_the_next() {
        let axis = Axis { least: 1.0, greatest: 100.0 };
        assert_eq!((axis.x(1.0), axis.x(100.0)), (LEFT, RIGHT));
        assert!((axis.x(10.0) - f64::midpoint(LEFT, RIGHT)).abs() < 1e-9);
        let named: Vec<f64> = axis.ticks().into_iter().filter(|tick| tick.1).map(|tick| tick.0).collect();
        assert_eq!(named, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn a_shape_is_widest_where_most_times_are() {
        let axis = Axis { least: 1.0, greatest: 100.0 };
        let mut times = vec![10.0; 90];
        times.extend([20.0; 9]);
        times.push(50.0);
        let outline = density(&axis, &times, 0.0);
        let widest = outline.iter().min_by(|a, b| a[1].total_cmp(&b[1])).expect("there are points");
        assert!((widest[0] - axis.x(10.0)).abs() < 6.0, "{widest:?}");
        assert!(outline.iter().all(|[x, _]| (LEFT..=RIGHT).contains(x)));
    }

    #[test]
    fn one_time_alone_is_drawn_too() {
        let times = [3.0];
        let axis = Axis::over([times.as_slice()].into_iter());
        assert!(density(&axis, &times, 0.0).len() >= 6);
    }
}
