//! Three members whose links to each other take a while, as between racks and zones. Clients reach every member at
//! once: what is slow is the quorum.

use std::thread;
use std::time::{Duration, Instant};

use crate::lab::{Floor, Lab, Wire, of_pod, plain_network};
use crate::measure::single::ROUNDS_WARM_UP;
use crate::measure::storms::{Blown, Load, Weather};
use crate::options::{Options, Section};
use crate::results::{Data, Results, Suffix};
use crate::samples::{Sample, float};
use support::{Etcd, Node, Outcome, Run};

const ROUNDS_MAX: usize = 150;
/// So many nodes add again after this time.
const RESTED: usize = 30;
const REST: Duration = Duration::from_secs(21);

pub(crate) fn measure(options: &Options, results: &mut Results) {
    if options.verbs {
        let lab = Lab::new(options, Wire::Plain);
        let suffix = Suffix { name: "-one".to_owned(), what: ", one member".to_owned() };
        single(options, &lab, &suffix, results);
        storms(options, &lab, suffix, results);
        lab.cluster.assert_whole();
    } else {
        relays(options, results);
    }
    for &ms in options.links_ms() {
        let lab = Lab::on_slow_links(options, Some(Duration::from_millis(ms)));
        let suffix = Suffix { name: format!("-{ms}ms"), what: format!(", {ms} ms") };
        single(options, &lab, &suffix, results);
        storms(options, &lab, suffix, results);
        lab.cluster.assert_whole();
    }
}

/// Floors through relays that hold nothing back, and without relays: the cost of the relays themselves.
fn relays(options: &Options, results: &mut Results) {
    let labs = [None, Some(Duration::ZERO)].map(|one_way| Lab::on_slow_links(options, one_way));
    let mut samples = [(); 2].map(|()| Sample::default());
    for round in 0..ROUNDS_WARM_UP + rounds(options) {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let floor = labs[which].floor(Floor::Put).run();
            if round >= ROUNDS_WARM_UP {
                samples[which].take(&floor);
            }
        }
    }
    let [without, with] = samples;
    results.add_times(Section::Slow, "floor-direct", "floor without relays", without, "floor-direct");
    results.add_times(Section::Slow, "floor-relays", "floor, relays that do not wait", with, "floor-direct");
    for (lab, (name, what)) in
        labs.iter().zip([("-direct", " without relays"), ("-relays", ", relays that do not wait")])
    {
        let suffix = Suffix { name: name.to_owned(), what: what.to_owned() };
        Weather::new(lab, Section::Slow, suffix, options.storm).report_floor(results);
        lab.cluster.assert_whole();
    }
}

fn rounds(options: &Options) -> usize {
    options.rounds.min(ROUNDS_MAX)
}

/// One process after the other; each round runs every kind once.
fn single(options: &Options, lab: &Lab, Suffix { name, what }: &Suffix, results: &mut Results) {
    let mut kinds = Kinds::default();
    let rested: Vec<Node> = (0..RESTED).map(|index| lab.cluster.node(&format!("rested-{index}"))).collect();
    let add = |node: &Node, id: &str| attach(node.add(id), id, node.name());
    rested.iter().for_each(|node| drop(add(node, "before").address()));
    let begin = Instant::now();
    for round in 0..ROUNDS_WARM_UP + rounds(options) {
        if round == ROUNDS_WARM_UP {
            kinds = Kinds::default();
        }
        kinds.round(lab, round);
    }
    thread::sleep(REST.saturating_sub(begin.elapsed()));
    rested.iter().for_each(|node| kinds.rested_add.take(&add(node, "after")));
    let floor = format!("floor{name}");
    let mut add = |kind, text: &str, sample| {
        results.add_times(Section::Slow, format!("{kind}{name}"), format!("{text}{what}"), sample, &floor);
    };
    add("floor", "floor: connect, one durable put", kinds.floor);
    add("add", "ADD of a node that adds alone", kinds.add);
    add("rested-add", "ADD of such a node 20 s after its last", kinds.rested_add);
    add("quiet-add", "ADD of a quiet node", kinds.quiet_add);
    add("new-add", "ADD of a new node", kinds.new_add);
    add("takeover", "takeover", kinds.takeover);
    add("first-takeover", "takeover on a quiet node", kinds.first_takeover);
    add("looking-takeover", "takeover without hints", kinds.looking_takeover);
    add("del", "DEL", kinds.del);
    add("first-del", "DEL, the first of its node", kinds.first_del);
    add("looking-del", "DEL without hints", kinds.looking_del);
}

#[derive(Default)]
struct Kinds {
    floor: Sample,
    add: Sample,
    rested_add: Sample,
    new_add: Sample,
    quiet_add: Sample,
    takeover: Sample,
    first_takeover: Sample,
    looking_takeover: Sample,
    del: Sample,
    first_del: Sample,
    looking_del: Sample,
}

impl Kinds {
    fn round(&mut self, lab: &Lab, round: usize) {
        self.floor.take(&lab.floor(Floor::Put).run());
        let id = format!("round-{round}");
        // Nobody else writes in this network, so what the node remembers of it holds.
        self.add.take(&attach(lab.node().add(&id), &id, "alone"));
        let new = lab.cluster.node(&format!("new-{round}"));
        self.new_add.take(&attach(new.add(&id), &id, "new"));
        let quiet = lab.quiet_node(&format!("quiet-{round}"));
        self.quiet_add.take(&attach(quiet.add(&id), &id, "quiet"));
        self.first_del.take(&attach(quiet.del(&id), &id, "quiet"));
        // The sandboxes of a pod, each following the one before.
        let sandboxes = ["first", "second", "third"].map(|sandbox| format!("{sandbox}-{id}"));
        let node = &lab.nodes[1];
        attach(node.add(&sandboxes[0]), &id, "taken").ok();
        self.takeover.take(&attach(node.add(&sandboxes[1]), &id, "taken"));
        node.forget_owners();
        self.looking_takeover.take(&attach(node.add(&sandboxes[2]), &id, "taken"));
        self.del.take(&attach(node.del(&sandboxes[2]), &id, "taken"));
        attach(node.add("looking"), &id, "taken").ok();
        node.forget_owners();
        self.looking_del.take(&attach(node.del("looking"), &id, "taken"));
        // Leases are those of the endpoints that a node names, so one that names others has none.
        attach(quiet.add(&sandboxes[0]), &id, "quiet").ok();
        let quiet = lab.with_other_endpoints(quiet.name());
        self.first_takeover.take(&attach(quiet.add(&sandboxes[1]), &id, "quiet"));
    }
}

fn attach(run: Run, pod: &str, network: &str) -> Outcome {
    of_pod(run, pod).config(&plain_network(network)).run()
}

/// Many at once, as when a cluster starts again.
fn storms(options: &Options, lab: &Lab, suffix: Suffix, results: &mut Results) {
    let count = options.storm;
    let mut weather = Weather::new(lab, Section::Slow, suffix.clone(), count);
    let (mut many, mut one) = (Load::many_networks(lab, "many"), Load::one_network(lab, "one"));
    let mut storm = |results: &mut Results, name: &str, what: &str, storm: &mut dyn FnMut() -> Blown| {
        let mut counts = Counts::default();
        weather.storm(results, name, what, || {
            let before = Counts::of(lab);
            let blown = storm();
            counts = Counts::of(lab).since(&before);
            blown
        });
        counts.report(Section::Slow, count, (name, what), &suffix, results);
    };
    storm(results, "add-16", "ADDs over 16 networks", &mut || many.add(count));
    storm(results, "add-1", "ADDs over one network", &mut || one.add(count));
    for (name, what, load) in [("add-16", "16 networks", &many), ("add-1", "one network", &one)] {
        let name = format!("{name}-batch{}", suffix.name);
        let what = format!("  ADDs of one commit, over {what}{}", suffix.what);
        results.add(Section::Slow, name, what, Data::Number(load.per_commit().into_iter().collect(), ""));
    }
    storm(results, "del-16", "DELs over 16 networks", &mut || many.del());
    storm(results, "del-1", "DELs over one network", &mut || one.del());
    weather.report_floor(results);
}

/// Counts from etcd's metrics.
#[derive(Default)]
pub(super) struct Counts {
    requests: f64,
    proposals: f64,
}

impl Counts {
    pub(super) fn of(lab: &Lab) -> Self {
        let answered = ["grpc_type=\"unary\""];
        let requests = |etcd: &Etcd| etcd.metric("grpc_server_handled_total", &answered);
        // Each member counts all that is committed.
        let proposals = lab.etcd().metric("etcd_server_proposals_committed_total", &[]);
        Self { requests: lab.members().iter().map(requests).sum(), proposals }
    }

    pub(super) fn since(self, before: &Self) -> Self {
        Self { requests: self.requests - before.requests, proposals: self.proposals - before.proposals }
    }

    /// Adds what each run of a storm has cost: of so many, by the storm's name and text.
    pub(super) fn report(
        &self,
        section: Section,
        count: usize,
        (storm, of): (&str, &str),
        suffix: &Suffix,
        results: &mut Results,
    ) {
        for (name, what, value) in [
            ("requests", "requests of each", self.requests),
            ("proposals", "proposals of each", self.proposals),
        ] {
            let (name, what) =
                (format!("{storm}-{name}{}", suffix.name), format!("  {what} of the {of}{}", suffix.what));
            results.add(section, name, what, Data::Number(vec![value / float(count)], ""));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use support::Relays;

    /// More than the buffers of sockets hold, so that a receiver that waits blocks the relay.
    const BYTES: usize = 32 << 20;

    #[test]
    fn a_relay_holds_everything_back_and_loses_nothing() {
        const ONE_WAY: Duration = Duration::from_millis(40);
        let server = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let endpoint = format!("http://{}", server.local_addr().expect("it has an address"));
        let (_relays, relay) = Relays::before_endpoint(&endpoint, ONE_WAY);
        let echo = thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("the relay connects");
            let mut all = Vec::new();
            stream.read_to_end(&mut all).expect("all of it arrives");
            stream.write_all(&all).expect("it goes back");
        });
        let address = relay.strip_prefix("http://").expect("the relay's address has the same form");
        let mut stream = TcpStream::connect(address).expect("the relay listens");
        let sent: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
        stream.write_all(&sent).expect("the relay takes all");
        let last = Instant::now();
        stream.shutdown(Shutdown::Write).expect("one direction can be closed");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("all of it comes back");
        assert!(last.elapsed() >= 2 * ONE_WAY, "{:?}", last.elapsed());
        assert!(received == sent, "{} of {BYTES} bytes, or others", received.len());
        echo.join().expect("the server has served");
    }
}
