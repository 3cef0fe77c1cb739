//! `metes map`: pictures of ranges, in letters, for programs, and as a page that a real browser shows.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use support::{Cluster, Node, Outcome, Run, network, tool};

/// A picture of one colour would have no more than these: background, text and its edges.
const COLOURS_MIN: usize = 30;

fn storage() -> Value {
    network(json!({"range": "10.0.0.0/24", "exclude": ["10.0.0.64/26"], "network_name": "storage"}))
}

/// Two pods hold .1 and .2, .9 is set aside.
fn node(cluster: &Cluster) -> Node {
    let node = cluster.node("a");
    for (container, namespace) in [("c1", "team-a"), ("c2", "<b>bold</b>")] {
        node.add(container).pod(namespace, "web-0", container).config(&storage()).run().address();
    }
    assert!(node.cli(["hold", "10.0.0.9", "--network", "storage", "--note", "printer & co"]).succeeded());
    node
}

fn clean_up(cluster: &Cluster, node: &Node) {
    for container in ["c1", "c2"] {
        node.del(container).config(&storage()).run().silent();
    }
    assert!(node.cli(["hold", "--remove", "10.0.0.9", "--network", "storage"]).succeeded());
    cluster.assert_whole();
}

#[track_caller]
fn shown(outcome: Outcome) -> String {
    assert!(outcome.succeeded(), "{outcome}");
    outcome.stdout
}

#[test]
fn a_network_a_pool_and_a_prefix_are_drawn() {
    let cluster = Cluster::new();
    let node = node(&cluster);
    let text = shown(node.cli(["map", "storage"]));
    let expected = "\
10.0.0.0/24 of network storage
190 addresses: 3 held, 1 of them set aside, 0 cooling, 187 free (1.6 % taken)
a cell is 1 address, a row 64 addresses
10.0.0.0     ##......=";
    assert!(text.starts_with(expected), "{text}");
    let rows: Vec<&str> = text.lines().skip(3).take(4).collect();
    assert_eq!([rows[1], rows[3].trim_end_matches('.')], ["10.0.0.64", "10.0.0.192  "], "{text}");
    assert!(text.ends_with("\n. free   = set aside   # held\n"), "{text}");
    let by = shown(node.cli(["map", "storage", "--by", "namespace"]));
    assert!(by.contains("  BA......="), "{by}");

    let json = node.cli(["map", "10.0.0.0/28", "-o", "json"]).ok();
    let cell = |range: &str| {
        json!({
            "range": range, "size": "1", "held": 1, "set_aside": 0, "cooling": 0, "free": "0", "most": null,
        })
    };
    let mut aside = cell("10.0.0.9");
    aside["set_aside"] = json!(1);
    let expected = json!({"by": "fill", "maps": [{
        "network": "storage", "range": "10.0.0.0/28", "size": "15", "held": 3, "set_aside": 1, "cooling": 0,
        "free": "12", "cell_addresses": "1", "cells": [cell("10.0.0.1"), cell("10.0.0.2"), aside],
    }]});
    assert_eq!(json, expected);

    let file = cluster.folder().join("pool.yaml");
    let pool = "pool: storage\nnetwork: other\nranges: [{range: 10.1.0.0/20}, {range: 10.2.0.0/28}]\n";
    fs::write(&file, pool).expect("a file can be written");
    let file = file.to_str().expect("a plain path");
    assert!(node.cli(["pool", "apply", "--yes", "-f", file]).succeeded());
    let network = node.cli(["map", "storage"]);
    assert!(network.stderr.contains("--as pool") && network.stdout.contains("10.0.0.0/24"), "{network}");
    let pool = shown(node.cli(["map", "storage", "--as", "pool"]));
    assert!(pool.contains("10.1.0.0/20 of network other\n4094 addresses: 0 held"), "{pool}");
    assert!(pool.contains("a cell is 2 addresses, a row 128 addresses"), "{pool}");
    assert!(pool.contains("10.2.0.0/28 of network other\n14 addresses"), "{pool}");

    for (what, hint) in [("storag", "did you mean \"storage\"?"), ("10.9.0.0/24", "nothing is held")] {
        let outcome = node.cli(["map", what]);
        assert!(outcome.status.code() == Some(1) && outcome.stdout.is_empty(), "{outcome}");
        assert!(outcome.stderr.contains(hint), "{outcome}");
    }
    clean_up(&cluster, &node);
}

/// A browser that has seen nothing before. It talks to nobody.
fn browser(folder: &Path, arguments: &[&str], page: &Path) -> Outcome {
    let profile = tempfile::tempdir_in(folder).expect("a folder");
    let quiet = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ];
    let outcome = Run::new(tool("chromium"))
        .env("HOME", profile.path())
        .arguments(quiet)
        .arguments([format!("--user-data-dir={}", profile.path().display())])
        .arguments(arguments)
        .arguments([format!("file://{}", page.display())])
        .run();
    assert!(outcome.succeeded(), "{outcome}");
    outcome
}

/// The number of colours of a PNG: the browser reads it, too.
fn colours(folder: &Path, png: &[u8]) -> usize {
    let counter = folder.join("count.html");
    let page = format!(
        "<body><script>const image = new Image(); image.onload = () => {{\
         const canvas = document.createElement('canvas');\
         canvas.width = image.width; canvas.height = image.height;\
         const context = canvas.getContext('2d'); context.drawImage(image, 0, 0);\
         const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);\
         document.body.textContent = 'colours: ' + new Set(pixels).size + ' in all'; }};\
         image.src = 'data:image/png;base64,{}';</script></body>",
        STANDARD.encode(png)
    );
    fs::write(&counter, page).expect("a page can be written");
    let told = browser(folder, &["--virtual-time-budget=10000", "--dump-dom"], &counter);
    let count =
        told.stdout.split_once("colours: ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    count.unwrap_or_else(|| panic!("no count: {told}"))
}

#[test]
fn a_browser_shows_the_page_with_its_tooltips() {
    let cluster = Cluster::new();
    let node = node(&cluster);
    let folder = cluster.folder();
    for format in ["html", "svg"] {
        let page = folder.join(format!("map.{format}"));
        fs::write(&page, shown(node.cli(["map", "storage", "--by", "namespace", "-o", format])))
            .expect("written");
        let png = folder.join(format!("{format}.png"));
        let screenshot = format!("--screenshot={}", png.display());
        browser(folder, &[&screenshot, "--window-size=1000,800"], &page);
        let png = fs::read(&png).expect("there is a screenshot");
        let count = colours(folder, &png);
        assert!(count >= COLOURS_MIN, "{format}: {count} colours");
        let dom = browser(folder, &["--dump-dom"], &page).stdout;
        for words in [
            "metes map: storage by namespace",
            "10.0.0.0/24 of network storage",
            "190 addresses: 3 held, 1 of them set aside",
            "<title>10.0.0.1: team-a/web-0, on a, since 20",
            // Texts that others have stored are no markup.
            "<title>10.0.0.2: &lt;b&gt;bold&lt;/b&gt;/web-0, on a",
            "<title>10.0.0.9: set aside: printer &amp; co",
            "<title>10.0.0.64: in no range</title>",
            "<title>10.0.0.3: 1 free</title>",
            "&lt;b&gt;bold&lt;/b&gt; (1)",
        ] {
            assert!(dom.contains(words), "{format} lacks {words:?}: {dom}");
        }
    }
    clean_up(&cluster, &node);
}
