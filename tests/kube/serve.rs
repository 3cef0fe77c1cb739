//! The metrics of the reconciler's passes, and the passes that it makes one after the other without being asked.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Etcd, Rule, Server, World, in_parallel, serve, serve_through, start, view, wait_for};

/// The longest time that a test waits for something that should take a second or two.
const SOON: Duration = Duration::from_secs(30);
const NO_GRACE: [&str; 2] = ["--grace", "0s"];
/// The held addresses of the range that `World` gives from.
const DEFAULT_HELD: &str =
    "metes_addresses{network=\"default\",family=\"ipv4\",range=\"10.70.0.0/24\",state=\"held\"}";
/// More orphans than a pass takes for a matter of course.
const SUSPICIOUS: usize = 51;

fn events(world: &World) -> Vec<Value> {
    let list = world.api.get(&format!("/api/v1/namespaces/{}/events", world.namespace));
    list["items"].as_array().expect("a list has items").clone()
}

/// The keys of the leader.
fn leads(world: &World) -> Vec<String> {
    world.cluster.store().keys("v1/lead/")
}

fn wait_until_freed(world: &World) {
    wait_for("the orphan to go", SOON, || match world.held() {
        held if held.iter().any(|container| container.starts_with("gone")) => Err(format!("{held:?}")),
        _ => Ok(()),
    });
}

// ---- what a pass leaves

#[test]
fn a_viewer_tells_of_each_pass() {
    let world = World::new();
    world.living("alive");
    world.orphan("gone");
    let before = std::time::SystemTime::now();
    let run = || world.cluster.reconciler(&world.api).args(NO_GRACE);
    assert!(run().args(["--dry-run"]).run().succeeded());
    let none = world.viewed();
    assert!(!none.has("last_pass_success") && none.value("metes_viewer_last_read_success") == 1.0);

    assert!(run().run().succeeded());
    let good = world.viewed();
    good.assert(&[
        ("last_pass_success", 1.0),
        ("owners", 2.0),
        ("reservations", 1.0),
        ("orphans", 1.0),
        ("kept{reason=\"pod-exists\"}", 1.0),
        ("kept{reason=\"within-grace\"}", 0.0),
        ("freed{reason=\"pod-gone\"}", 1.0),
        ("freed{reason=\"pod-finished\"}", 0.0),
        ("repaired{what=\"bits_cleared\"}", 0.0),
        ("stray", 0.0),
        ("brake", 0.0),
        ("paused", 0.0),
        ("suspect", 0.0),
    ]);
    assert!(good.value("pods") >= 1.0 && good.value("last_pass_duration_seconds") > 0.0);
    let started = before.duration_since(std::time::UNIX_EPOCH).expect("it is later").as_secs_f64();
    assert!(good.value("last_pass_timestamp_seconds") >= started - 0.001);
    assert!(!good.has("leader"), "there is none to be");

    let proxy = world.proxy();
    proxy.rule(Rule::get("/api/v1/pods").status(500));
    let failed = world.cluster.reconciler(&proxy).run();
    assert_eq!(failed.status.code(), Some(1), "{failed}");
    let bad = world.viewed();
    bad.assert(&[("last_pass_success", 0.0), ("owners", 1.0), ("freed{reason=\"pod-gone\"}", 0.0)]);
    assert!(bad.value("last_pass_timestamp_seconds") > good.value("last_pass_timestamp_seconds"));

    // Not even begun is failed too.
    let none = run().kubeconfig("/nonexistent").run();
    assert_eq!(none.status.code(), Some(1), "{none}");
    world.viewed().assert(&[("last_pass_success", 0.0), ("owners", 0.0)]);
    assert!(run().run().succeeded());
    world.viewed().assert(&[("last_pass_success", 1.0)]);
    world.cluster.assert_clean();
}

#[test]
fn a_viewer_tells_of_the_brake_and_of_a_pause() {
    let world = World::new();
    in_parallel(8, 0..SUSPICIOUS, |n| world.orphan(&format!("gone-{n}")));
    let run = || world.cluster.reconciler(&world.api).args(NO_GRACE);
    let braked = run().run();
    assert_eq!(braked.status.code(), Some(3), "{braked}");
    let orphans = SUSPICIOUS as f64;
    let braked =
        [("last_pass_success", 0.0), ("brake", 1.0), ("orphans", orphans), ("reservations", orphans)];
    world.viewed().assert(&braked);

    let meta = world.cluster.store().get("v1/meta").expect("there is one");
    let mut held: Value = serde_json::from_slice(&meta).expect("it is JSON");
    held["paused"] = json!("a test");
    world.cluster.store().put("v1/meta", held.to_string());
    assert!(run().run().succeeded());
    world.viewed().assert(&[("last_pass_success", 1.0), ("paused", 1.0), ("brake", 0.0)]);

    world.cluster.store().put("v1/meta", meta);
    assert!(run().args(["--force"]).run().succeeded());
    world.viewed().assert(&[("freed{reason=\"pod-gone\"}", orphans), ("brake", 0.0)]);
    world.cluster.assert_clean();
    world.cluster.assert_nothing_held();
}

/// It belongs to the cluster of that name, whose viewer shows it.
#[test]
fn a_cluster_that_has_anothers_name_leaves_nothing() {
    let world = World::new();
    assert!(world.cluster.reconciler(&world.api).run().succeeded());
    let left = world.cluster.store().get("v1/pass/test").expect("it was left");
    let uid = world.cluster.store().get("v1/cluster/test").expect("it is known");
    world.cluster.store().put("v1/cluster/test", r#"{"v":1,"uid":"another"}"#);
    assert_eq!(world.cluster.reconciler(&world.api).run().status.code(), Some(1));
    assert_eq!(world.cluster.store().get("v1/pass/test"), Some(left));
    world.cluster.store().put("v1/cluster/test", uid);
    world.cluster.assert_clean();
}

#[test]
fn a_viewer_keeps_its_figures_while_etcd_is_away_and_says_how_old_they_are() {
    let etcd = Etcd::start();
    let world = World::on(&etcd);
    world.living("alive");
    assert!(world.cluster.reconciler(&world.api).run().succeeded());
    // The fence of the ADD ends with its lease.
    let entries = || {
        let mut entries = world.cluster.store().entries("v1/");
        entries.retain(|(key, _)| !key.starts_with("v1/fence/"));
        entries
    };
    let before = entries();
    let server = view(&world, "1s");
    server.wait_for_page("/readyz", 200);
    etcd.stop();
    let success = |expected: f64| {
        wait_for("a read", SOON * 3, || match server.metrics() {
            metrics if metrics.value("metes_viewer_last_read_success") == expected => Ok(metrics),
            _ => Err("none yet".into()),
        })
    };
    let away = success(0.0);
    away.assert(&[("owners", 1.0), ("last_pass_success", 1.0), (DEFAULT_HELD, 1.0)]);
    let read_at = away.value("metes_viewer_last_read_timestamp_seconds");
    server.assert_healthy();
    etcd.resume();
    let back = success(1.0);
    assert!(back.value("metes_viewer_last_read_timestamp_seconds") > read_at);
    server.end();
    assert!(entries() == before, "a viewer writes nothing");
    world.cluster.assert_clean();
}

// ---- passes without being asked

#[test]
fn a_server_frees_what_nobody_asked_it_to() {
    let world = World::new();
    world.living("alive");
    let server = serve_through(&world, &world.api, "1s", &[]);
    let address = world.orphan("gone");
    wait_until_freed(&world);
    let freed = wait_for("the metrics of it", SOON, || {
        let metrics = server.metrics();
        let freed = metrics.value("freed_total{reason=\"pod-gone\"}");
        if freed > 0.0 { Ok(metrics) } else { Err("nothing freed".into()) }
    });
    freed.assert(&[
        ("freed_total{reason=\"pod-gone\"}", 1.0),
        ("freed_total{reason=\"unlabelled\"}", 0.0),
        ("passes_total{outcome=\"failure\"}", 0.0),
        ("passes_total{outcome=\"brake\"}", 0.0),
        ("leader", 1.0),
    ]);
    assert_eq!(server.get("/healthz").expect("it answers"), (200, "ok\n".to_owned()));
    assert_eq!(leads(&world), ["v1/lead/test"]);

    let outcome = server.end();
    assert!(outcome.stderr.contains("pass done") && outcome.stderr.contains("pod="), "{outcome}");
    assert!(outcome.stderr.contains("gone"), "{address}: {outcome}");
    assert!(leads(&world).is_empty());
    world.cluster.assert_clean();
}

#[test]
fn a_server_answers_few_things_and_does_not_wait_for_anybody() {
    let world = World::new();
    let server = serve(&world, "1m");
    let ask = |request: &str| server.ask(request).expect("it answers");
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: m\r\n\r\n", "404"),
        ("GET /metrics/ HTTP/1.1\r\nHost: m\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nHost: m\r\nContent-Length: 0\r\n\r\n", "405"),
        ("DELETE /healthz HTTP/1.0\r\n\r\n", "405"),
        ("GET /healthz?verbose HTTP/1.0\r\n\r\n", "200"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = ask(request);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request}: {answer}");
    }
    assert!(ask("POST /metrics HTTP/1.1\r\nHost: m\r\n\r\n").to_lowercase().contains("\r\nallow: get\r\n"));
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: m\r\n\r\n").to_lowercase();
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");

    // More than it takes at once, none of which ever says anything whole.
    let mut silent: Vec<_> = (0..40).map(|_| server.connect().expect("it is accepted")).collect();
    silent.iter_mut().for_each(|stream| stream.write_all(b"GET /metrics HT").expect("it is taken"));
    let last = silent.pop().expect("there are some");
    server.wait_for_page("/healthz", 200);
    let mut end = Vec::new();
    (&last).read_to_end(&mut end).expect("it is closed in time");
    server.end();
    world.cluster.assert_clean();
}

#[test]
fn one_server_leads_and_another_takes_over_when_it_dies() {
    let every = Duration::from_secs(2);
    let world = World::new();
    let mut first = serve(&world, "2s");
    first.wait_for_lead(SOON);
    let second = serve(&world, "2s");
    wait_for("a few passes", SOON, || {
        let passes = first.passes("success");
        if passes >= 4.0 { Ok(()) } else { Err(format!("{passes}")) }
    });
    assert!(first.is_leader() && !second.is_leader());
    assert_eq!(second.passes("success"), 0.0);
    assert_eq!(second.passes("failure"), 0.0);
    assert_eq!(second.get("/readyz").expect("it answers").0, 200);

    first.running.kill();
    let died = Instant::now();
    // The time that docs/reconciler.md promises, and the pauses of a busy machine.
    second.wait_for_lead(every * 2 + Duration::from_secs(4));
    assert!(died.elapsed() >= every / 2, "the lead was another's");
    world.orphan("gone");
    wait_until_freed(&world);
    drop(first);
    let outcome = second.end();
    assert!(outcome.stderr.contains("standing by"), "{outcome}");
    world.cluster.assert_clean();
}

#[test]
fn a_long_pass_keeps_the_lead() {
    let world = World::new();
    let proxy = world.proxy();
    proxy.rule(Rule::get("/api/v1/pods").hang());
    // Four times as long as the lead would last.
    let leader = serve_through(&world, &proxy, "2s", &["--timeout", "16s"]);
    proxy.wait_for("GET", "/api/v1/pods");
    let follower = serve(&world, "2s");
    wait_for("the pass to fail", SOON, || {
        if leader.passes("failure") > 0.0 { Ok(()) } else { Err("under way".into()) }
    });
    let outcome = follower.end();
    assert!(outcome.stderr.contains("standing by") && !outcome.stderr.contains("leading"), "{outcome}");
    leader.end();
    world.cluster.assert_clean();
}

#[test]
fn a_server_that_is_asked_to_end_hands_over_at_once() {
    let world = World::new();
    // The lease of the lead lives for two minutes.
    let first = serve(&world, "1m");
    first.wait_for_lead(SOON);
    let second = serve(&world, "1m");
    wait_for("the other to stand by", SOON, || match second.get("/metrics") {
        Ok((200, body)) if body.contains("metes_reconciler_leader 0") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(first.end().elapsed > Duration::ZERO);
    second.wait_for_lead(Duration::from_secs(5));
    wait_for("its pass", SOON, || if second.passes("success") == 1.0 { Ok(()) } else { Err("none".into()) });
    second.end();
    world.cluster.assert_clean();
}

#[test]
fn a_server_ends_though_the_api_hangs() {
    let world = World::new();
    let proxy = world.proxy();
    proxy.rule(Rule::get("/api/v1/pods").hang());
    let server = serve_through(&world, &proxy, "1s", &[]);
    proxy.wait_for("GET", "/api/v1/pods");
    let asked = Instant::now();
    server.end();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(leads(&world).is_empty());
    world.cluster.assert_clean();
}

#[test]
fn readiness_goes_with_etcd_and_comes_back() {
    let etcd = Etcd::start();
    let world = World::on(&etcd);
    let leader = serve_through(&world, &world.api, "1s", &["--timeout", "2s"]);
    leader.wait_for_lead(SOON);
    let follower = serve_through(&world, &world.api, "1s", &["--timeout", "2s"]);
    etcd.stop();
    for server in [&leader, &follower] {
        wait_for("/readyz to tell of etcd", SOON, || match server.get("/readyz") {
            Ok((503, why)) if why.contains("no pass has finished") && why.contains("etcd") => Ok(()),
            other => Err(format!("{other:?}")),
        });
        server.assert_healthy();
    }
    assert!(leader.passes("failure") >= 1.0);
    etcd.resume();
    leader.wait_for_page("/readyz", 200);
    follower.wait_for_page("/readyz", 200);
    wait_for("one leader", SOON, || {
        let leaders = [&leader, &follower].map(Server::is_leader);
        if leaders[0] != leaders[1] { Ok(()) } else { Err(format!("{leaders:?}")) }
    });
    leader.end();
    follower.end();
    world.cluster.assert_clean();
}

#[test]
fn readiness_goes_with_the_api_and_comes_back() {
    let world = World::new();
    let proxy = world.proxy();
    let server = serve_through(&world, &proxy, "1s", &["--timeout", "2s"]);
    server.wait_for_lead(SOON);
    let follower = serve_through(&world, &world.api, "1s", &["--timeout", "2s"]);
    proxy.rule(Rule::get("/api/v1/pods").status(500));
    world.orphan("gone");
    let why = server.wait_for_page("/readyz", 503);
    assert!(why.contains("cannot list pods"), "{why}");
    server.assert_healthy();
    assert!(server.is_leader());
    world.viewed().assert(&[("last_pass_success", 0.0)]);
    assert_eq!(follower.get("/readyz").expect("it answers").0, 200);
    assert_eq!(world.held(), ["gone"]);
    proxy.clear();
    server.wait_for_page("/readyz", 200);
    wait_until_freed(&world);
    follower.end();
    let outcome = server.end();
    assert!(outcome.stderr.contains("pass failed"), "{outcome}");
    world.cluster.assert_clean();
}

/// It looked at everything, and a person must decide: neither a restart nor another replica would change that.
#[test]
fn a_server_that_is_braked_is_well() {
    let world = World::new();
    in_parallel(8, 0..SUSPICIOUS, |n| world.orphan(&format!("gone-{n}")));
    let begun = Instant::now();
    let server = serve_through(&world, &world.api, "1s", &["--timeout", "8s"]);
    // Longer than without a pass that counts: three times --every, and one time --timeout.
    wait_for("passes that are braked", SOON, || match server.passes("brake") {
        count if count >= 3.0 && begun.elapsed() > Duration::from_secs(12) => Ok(()),
        count => Err(format!("{count}")),
    });
    for page in ["/healthz", "/readyz"] {
        assert_eq!(server.get(page).expect("it answers"), (200, "ok\n".to_owned()), "{page}");
    }
    world.viewed().assert(&[("brake", 1.0), ("last_pass_success", 0.0)]);
    assert_eq!(server.passes("success") + server.passes("failure"), 0.0);
    server.end();
    assert_eq!(world.held().len(), SUSPICIOUS);
    world.cluster.assert_clean();
}

#[test]
fn who_leads_no_more_still_tells_what_it_has_done() {
    let world = World::new();
    let server = serve(&world, "1s");
    wait_for("a pass", SOON, || if server.passes("success") > 0.0 { Ok(()) } else { Err("none".into()) });
    assert!(server.is_leader());
    // Another one was faster when the claim had ended.
    world.cluster.store().put_leased("v1/lead/test", r#"{"v":1,"holder":"another"}"#, 3600);
    wait_for("the other one's lead", SOON, || match server.get("/metrics") {
        Ok((200, body)) if body.contains("metes_reconciler_leader 0") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(server.passes("success") > 0.0, "what was counted stays");
    server.end();
    // A lead of another one is left to it.
    assert_eq!(leads(&world), ["v1/lead/test"]);
    world.cluster.store().delete("v1/lead/test");
    world.cluster.assert_clean();
}

/// Endpoints and the paths of certificates change while it runs.
#[test]
fn a_server_reads_its_host_file_for_each_pass() {
    let world = World::new();
    let file = world.cluster.node("moving").host_file();
    let good = fs::read(&file).expect("a host file can be read");
    let reconciler = world.cluster.reconciler(&world.api).config(&file).args(["--timeout", "4s"]);
    let server = start(reconciler, "1s");
    let passes = |at_least: f64| {
        wait_for("passes", SOON, || match server.passes("success") {
            count if count >= at_least => Ok(()),
            count => Err(format!("{count}")),
        });
    };
    passes(1.0);
    let mut elsewhere: Value = serde_json::from_slice(&good).expect("a host file is JSON");
    elsewhere["etcd"]["endpoints"] = json!(["http://127.0.0.1:1"]);
    replace(&file, elsewhere.to_string().as_bytes());
    wait_for("/readyz to tell of the endpoint", SOON, || match server.get("/readyz") {
        Ok((503, why)) if why.contains("127.0.0.1:1") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    server.assert_healthy();
    replace(&file, &good);
    server.wait_for_page("/readyz", 200);
    passes(server.passes("success") + 1.0);

    // With files that cannot be used a pass cannot even begin; those that are mounted may be others after a restart.
    replace(&file, b"{]");
    let why = server.wait_for_page("/healthz", 503);
    assert!(why.contains("no pass can begin") && why.contains("host file"), "{why}");
    replace(&file, &good);
    server.wait_for_page("/healthz", 200);
    world.orphan("gone");
    wait_until_freed(&world);
    server.end();
    assert!(leads(&world).is_empty());
    world.cluster.assert_clean();
}

/// At once, as a kubelet does with its mounts.
fn replace(file: &Path, content: &[u8]) {
    let new = file.with_extension("new");
    fs::write(&new, content).expect("a file can be written");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("its mode can be set");
    fs::rename(&new, file).expect("a file can be renamed");
}

#[test]
fn a_dry_run_that_stays_writes_nothing_either() {
    let world = World::new();
    world.orphan("gone");
    let before = world.cluster.store().entries("");
    let server = serve_through(&world, &world.api, "1s", &["--dry-run"]);
    wait_for("two passes", SOON, || if server.passes("success") >= 2.0 { Ok(()) } else { Err("few".into()) });
    server.metrics().assert(&[("freed_total{reason=\"pod-gone\"}", 0.0)]);
    server.end();
    assert_eq!(world.cluster.store().entries(""), before);
    world.cluster.assert_clean();
}

#[test]
fn wrong_usage_is_told_at_once() {
    let world = World::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let taken = taken.local_addr().expect("it has an address").to_string();
    for (args, code, word) in [
        (vec!["--every", "1m"], 2, "--listen"),
        (vec!["--listen", ":0", "--every", "10ms"], 2, "1s"),
        (vec!["--listen", "localhost"], 2, "PORT"),
        (vec!["--listen", &taken], 1, "listen"),
    ] {
        let outcome = world.cluster.reconciler(&world.api).args(&args).run();
        assert_eq!(outcome.status.code(), Some(code), "{outcome}");
        assert!(outcome.stderr.contains(word), "{outcome}");
    }
    let outcome = world.cluster.reconciler(&world.api).env("METES_RECONCILER_EVERY", "1m").run();
    assert_eq!(outcome.status.code(), Some(2), "{outcome}");
    assert!(leads(&world).is_empty());
    world.cluster.assert_clean();
}

// ---- events

#[test]
fn events_tell_of_freed_pods_where_they_are_asked_for() {
    let world = World::new();
    let run = || world.cluster.reconciler(&world.api).args(NO_GRACE);
    world.orphan("quiet");
    assert!(run().run().succeeded());
    assert!(events(&world).is_empty());

    let address = world.orphan("told");
    // A pod of no namespace has nobody to tell.
    world.node.add("bare").config(&World::config()).run().address();
    let args = ["--events", "--unlabelled-after", "0s"];
    assert!(run().args(args).args(["--dry-run"]).run().succeeded());
    assert!(events(&world).is_empty());
    let outcome = run().args(args).run();
    assert!(outcome.succeeded() && !outcome.stderr.contains("WARN"), "{outcome}");
    assert!(world.held().is_empty());

    let events = events(&world);
    assert_eq!(events.len(), 1, "{events:#?}");
    let event = &events[0];
    assert_eq!(event["reason"], "AddressesFreed");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["reportingComponent"], "metes-reconciler");
    let pod = &event["involvedObject"];
    assert_eq!(pod["kind"], "Pod");
    assert_eq!(pod["namespace"], world.namespace.as_str());
    assert_eq!(pod["name"], "told");
    assert!(pod["uid"].as_str().is_some_and(|uid| uid.ends_with("000000000001")), "{pod}");
    let message = event["message"].as_str().expect("a message is text");
    for word in [address.as_str(), "network default", "told", world.node.name(), "pod-gone"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    // The interface of events that other tools read shows the same one.
    let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", world.namespace);
    assert_eq!(world.api.get(&path)["items"][0]["note"], message);
    world.cluster.assert_clean();
}

#[test]
fn events_that_are_refused_or_lost_fail_no_pass() {
    let world = World::new();
    let events = format!("/api/v1/namespaces/{}/events", world.namespace);
    for rule in [Rule::of("POST", &events).status(403), Rule::of("POST", &events).hang()] {
        let proxy = world.proxy();
        proxy.rule(rule);
        world.orphan("one");
        world.orphan("two");
        let outcome =
            world.cluster.reconciler(&proxy).args(NO_GRACE).env("METES_RECONCILER_EVENTS", "true").run();
        assert!(outcome.succeeded(), "{outcome}");
        assert_eq!(outcome.stderr.matches("WARN").count(), 1, "{outcome}");
        assert_eq!(proxy.asked_for("POST", &events).len(), 2);
        assert!(world.held().is_empty());
    }
    world.cluster.assert_clean();
}

#[test]
fn events_of_one_pass_are_bounded() {
    let world = World::new();
    in_parallel(8, 0..110, |n| world.orphan(&format!("gone-{n}")));
    let outcome = world.cluster.reconciler(&world.api).args(NO_GRACE).args(["--force", "--events"]).run();
    assert!(outcome.succeeded() && outcome.stderr.contains("wanted=110"), "{outcome}");
    assert_eq!(events(&world).len(), 100);
    world.cluster.assert_clean();
    world.cluster.assert_nothing_held();
}
