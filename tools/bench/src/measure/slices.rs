//! Many nodes at once, each with a range of its own, all of which lie in one page; beside as many nodes that share one
//! range, and as many that have a network each. Three members have links of 10 ms.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::lab::{Lab, of_pod};
use crate::measure::slow::Counts;
use crate::measure::storms::show_failures;
use crate::options::{Options, Section};
use crate::results::{Data, Results, Suffix};
use crate::samples::{Sample, Storm, float};
use support::{Node, Outcome, in_parallel, network_as};

/// As many as a /20 has /28.
const NODES: usize = 256;
const LINK: Duration = Duration::from_millis(10);

pub(crate) fn measure(options: &Options, results: &mut Results) {
    let lab = Lab::on_slow_links(options, Some(LINK));
    let nodes: Vec<Node> = (0..NODES).map(|at| lab.cluster.node(&format!("slice-{at}"))).collect();
    let crowd = Slicers { lab: &lab, nodes };
    // Not counted: it makes the nodes' folders.
    crowd.come_and_go("warm-up", shared);
    let before = crowd.come_and_go("before", shared);
    let slices = crowd.come_and_go("slices", slice);
    let networks = crowd.come_and_go("networks", network_each);
    let after = crowd.come_and_go("after", shared);
    let base = [0, 1].map(|verb| f64::midpoint(before[verb].wall_s, after[verb].wall_s));
    for (name, what, gusts) in [
        ("shared", "from one range", before),
        ("slices", "from a /28 each in one /20", slices),
        ("networks", "from a network each", networks),
    ] {
        for ((verb, gust), base_s) in ["add", "del"].into_iter().zip(gusts).zip(base) {
            let text = format!("{NODES} {}s {what}", verb.to_uppercase());
            gust.report(&format!("{verb}-{name}"), &text, base_s, results);
        }
    }
    let left = lab.cluster.stray_bits().len();
    let what = "bits that the DELs have left";
    results.add(Section::Slices, "left", what, Data::Number(vec![float(left)], ""));
}

/// The request of each node, by its number and the name of the storm.
type Asked = fn(usize, &str) -> Value;

fn shared(_: usize, name: &str) -> Value {
    asking("10.66.0.0/20", name)
}

fn slice(at: usize, name: &str) -> Value {
    asking(&format!("10.66.{}.{}/28", at / 16, at % 16 * 16), name)
}

fn network_each(at: usize, name: &str) -> Value {
    asking("10.66.0.0/20", &format!("{name}-{at}"))
}

fn asking(range: &str, name: &str) -> Value {
    network_as("1.0.0", name, json!({"range": range, "network_name": name, "order": "next"}))
}

struct Slicers<'a> {
    lab: &'a Lab,
    nodes: Vec<Node>,
}

/// One verb of all nodes at once.
struct Gust {
    wall_s: f64,
    counts: Counts,
    each: Sample,
}

impl Slicers<'_> {
    /// An ADD of each node, then their DELs.
    fn come_and_go(&self, name: &str, asked: Asked) -> [Gust; 2] {
        let run = |at: usize, is_add: bool| {
            // Pods of one UID would take each other's addresses over.
            let pod = format!("{name}-{at}");
            let run = if is_add { self.nodes[at].add(&pod) } else { self.nodes[at].del(&pod) };
            of_pod(run, &pod).config(&asked(at, name)).run()
        };
        [true, false].map(|is_add| self.gust(|at| run(at, is_add)))
    }

    fn gust(&self, run: impl Fn(usize) -> Outcome + Sync) -> Gust {
        let (before, start) = (Counts::of(self.lab), Instant::now());
        let outcomes = in_parallel(NODES, 0..NODES, run);
        let wall_s = start.elapsed().as_secs_f64();
        show_failures(&outcomes);
        Gust { wall_s, counts: Counts::of(self.lab).since(&before), each: Sample::of(&outcomes) }
    }
}

impl Gust {
    fn report(self, name: &str, what: &str, floor_s: f64, results: &mut Results) {
        let Self { wall_s, counts, each } = self;
        let storm = Storm { wall_s, floor_s, each };
        results.add(Section::Slices, name, what, Data::Storm(vec![storm]));
        counts.report(Section::Slices, NODES, (name, what), &Suffix::default(), results);
    }
}
