//! All results for programs: each row with its quantiles, so that the chart can be drawn again from it.

use serde_json::{Value, json};

use crate::machine::Machine;
use crate::marks::Mark;
use crate::options::{Options, Section};
use crate::results::{Data, Results, Row};
use crate::samples::{Sample, Storm, median};

pub(crate) fn of(machine: &Machine, options: &Options, results: &Results, marks: &[Mark]) -> String {
    let Machine { processor, cores, kernel, etcd, metes, at } = machine;
    let Options { rounds, runs, storm, held, .. } = options;
    let report = json!({
        "machine": {"processor": processor, "cores": cores, "kernel": kernel},
        "etcd": etcd,
        "metes": metes,
        "at": at,
        "options": {"rounds": rounds, "runs": runs, "storm": storm, "held": held},
        "rows": results.rows.iter().map(|row| self::row(results, row)).collect::<Vec<Value>>(),
        "marks": marks.iter().map(mark).collect::<Vec<Value>>(),
    });
    format!("{report:#}\n")
}

fn row(results: &Results, row: &Row) -> Value {
    let mut value = match &row.data {
        Data::Times(sample, base) => {
            let to = base.as_ref().and_then(|base| results.sample(row.section, base));
            let ratio = to.map(|to| sample.percentile(50) / to.percentile(50));
            merge(times(sample), json!({"ratio": ratio, "ratio_to": base}))
        }
        Data::Storm(storms) => {
            let each = |value: fn(&Storm) -> f64| storms.iter().map(value).collect::<Vec<f64>>();
            let ratios = each(Storm::to_floor);
            let more = json!({
                "ratio": median(ratios.iter().copied()),
                "ratio_to": "floor-storm",
                "ratio_of_runs": ratios,
                "wall_s_of_runs": each(|storm| storm.wall_s),
                "floor_s_of_runs": each(|storm| storm.floor_s),
            });
            merge(times(&row.data.times().unwrap_or_default()), more)
        }
        Data::Number(values, unit) => {
            let value = (!values.is_empty()).then(|| median(values.iter().copied()));
            json!({"value": value, "values_of_runs": values, "unit": unit})
        }
    };
    value["section"] = json!(section(row.section));
    value["name"] = json!(row.name);
    value["what"] = json!(row.what);
    value
}

fn times(sample: &Sample) -> Value {
    let [p50, p95, p99, max] = sample.percentiles([50, 95, 99, 100]);
    let quantiles: [usize; 101] = std::array::from_fn(|percent| percent);
    json!({
        "count": sample.count(),
        "failures": sample.failures,
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "max_ms": max,
        "quantiles_ms": sample.percentiles(quantiles).to_vec(),
    })
}

fn mark(mark: &Mark) -> Value {
    let Mark { what, value, values, limit } = mark;
    json!({"what": what, "value": value, "values_of_runs": values, "at_most": limit, "met": mark.is_met()})
}

fn section(section: Section) -> &'static str {
    match section {
        Section::Single => "single",
        Section::Storms => "storms",
        Section::Tls => "tls",
        Section::Pools => "pools",
        Section::Size => "size",
        Section::Commands => "commands",
        Section::Process => "process",
        Section::Cluster => "cluster",
        Section::Slow => "slow",
        Section::Slices => "slices",
        Section::Deaths => "deaths",
        Section::Identities => "identities",
    }
}

fn merge(mut into: Value, from: Value) -> Value {
    if let (Value::Object(into), Value::Object(from)) = (&mut into, from) {
        into.extend(from);
    }
    into
}
