//! What a reader cannot see at a glance: who imports whom, which modules stay pure, that no name stands for two types,
//! and that nothing unfinished is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

pub(crate) mod sources;

use crate::read;

use self::sources::{Crate, files, rust_files};

/// What judges, and what makes sense of what others wrote.
const PURE_IN_RECONCILER: [&str; 13] = [
    "adopt/demand.rs",
    "../../crates/serve/src/exposition.rs",
    "holder.rs",
    "import/facts.rs",
    "import/gather.rs",
    "import/gathered.rs",
    "import/nads.rs",
    "import/pools.rs",
    "metrics.rs",
    "range_metrics.rs",
    "verdict.rs",
    "webhook/review.rs",
    "world.rs",
];

#[test]
fn pure_modules_of_the_reconciler_do_no_io_and_know_no_time() {
    let impure = [
        "async ",
        ".await",
        "tokio",
        "std::fs",
        "std::env",
        "std::net::Tcp",
        "std::process",
        "Instant",
        "SystemTime",
        "tracing",
        "println!",
        "metes_engine::random",
    ];
    let reconciler = support::root().join("reconciler/src");
    for path in PURE_IN_RECONCILER.map(|file| reconciler.join(file)) {
        let (text, _) = sources::production(&fs::read_to_string(&path).expect("a source file"));
        for word in impure {
            assert!(!text.contains(word), "{} contains {word:?}", path.display());
        }
    }
}

/// The names behind `[dependencies]` in a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1).expect("it has dependencies");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let name = |line: &str| line.split(['.', ' ']).next().unwrap_or_default().to_owned();
    lines.map(name).filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())).collect()
}

/// clippy.toml in each pure crate keeps out what std offers.
#[test]
fn pure_crates_depend_on_nothing_that_does_io() {
    let lock = read("Cargo.lock");
    // Of each locked package, the packages that it depends on.
    let packages: BTreeMap<&str, Vec<&str>> = lock
        .split("[[package]]\n")
        .filter_map(|package| {
            let name = package.strip_prefix("name = \"")?.split('"').next()?;
            let listed = package.split_once("dependencies = [").map_or("", |(_, list)| list);
            let names =
                listed.lines().filter_map(|line| line.trim().strip_prefix('"')?.split(['"', ' ']).next());
            Some((name, names.collect()))
        })
        .collect();
    for pure in ["core", "config"] {
        let mut found = BTreeSet::new();
        let mut next: Vec<String> =
            dependencies(&read(format!("crates/{pure}/Cargo.toml"))).into_iter().collect();
        while let Some(name) = next.pop() {
            // The lock also has what their tests need.
            if !name.starts_with("metes-") {
                next.extend(
                    packages
                        .get(&*name)
                        .into_iter()
                        .flatten()
                        .map(|name| (*name).to_owned())
                        .filter(|name| !found.contains(name)),
                );
            }
            found.insert(name);
        }
        for impure in ["tokio", "etcd-client", "tonic", "rustls", "rustix", "tracing"] {
            assert!(!found.contains(impure), "crates/{pure} depends on {impure}: {found:?}");
        }
        assert!(support::root().join(format!("crates/{pure}/clippy.toml")).exists());
    }
}

/// The drawing of ARCHITECTURE.md, from the top down: each crate with those of the same workspace that it uses.
#[test]
fn crates_depend_on_each_other_as_drawn() {
    let text = read("ARCHITECTURE.md");
    let (_, drawing) = text.split_once("\n### Crates\n").expect("it draws the crates");
    let drawing = drawing.split("```").nth(1).expect("in a block of its own");
    let mut above = BTreeSet::new();
    for line in drawing.trim().lines() {
        let (name, below) = line.split_once("->").expect("each row has an arrow");
        let name = name.trim();
        let manifest = match name {
            "metes" => "Cargo.toml".to_owned(),
            "reconciler" | "installer" => format!("{name}/Cargo.toml"),
            _ => format!("crates/{name}/Cargo.toml"),
        };
        let used = dependencies(&read(&manifest));
        let used: BTreeSet<&str> = used.iter().filter_map(|name| name.strip_prefix("metes-")).collect();
        assert_eq!(used, below.split_whitespace().collect(), "{name}");
        above.insert(name.to_owned());
        assert!(used.iter().all(|used| !above.contains(*used)), "{name} uses a crate that is drawn above it");
    }
    for entry in fs::read_dir(support::root().join("crates")).expect("the crates").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(above.contains(&name), "ARCHITECTURE.md does not draw crates/{name}");
    }
}

/// Every crate of the repository, tests aside: a folder of sources each.
const CRATES: [&str; 17] = [
    "crates/audit/src",
    "crates/config/src",
    "crates/core/src",
    "crates/ctl/src",
    "crates/engine/src",
    "crates/etcd/src",
    "crates/node/src",
    "crates/serve/src",
    "src",
    "reconciler/src",
    "installer/src",
    "sim/src",
    "fuzz/src",
    "tools/bench/src",
    "tools/chart/src",
    "tools/load",
    "tools/soak",
];

#[test]
fn no_files_import_each_other_in_a_circle() {
    for folder in CRATES {
        let circles = Crate::read(&support::root().join(folder)).on_circles();
        assert!(circles.is_empty(), "{folder}: these import each other: {circles:?}");
    }
}

#[test]
fn no_name_stands_for_two_types_of_a_crate() {
    for folder in CRATES {
        let mut types = Crate::read(&support::root().join(folder)).types();
        assert!(!types.is_empty(), "no types in {folder}");
        types.retain(|_, count| *count > 1);
        assert!(types.is_empty(), "{folder}: each of these names stands for several types: {types:?}");
    }
}

const COLUMNS_MAX: usize = 120;

/// Tables of JSON documents, each in a line.
const LONG_LINES_LEFT: [&str; 2] =
    ["crates/config/src/network/tests.rs", "crates/config/src/settings/tests.rs"];

#[test]
fn lines_fit_into_120_columns() {
    let mut long = Vec::new();
    for file in files(support::root()) {
        let name = file.strip_prefix(support::root()).expect("it is in there").to_string_lossy().into_owned();
        let is_text = match file.extension().and_then(|extension| extension.to_str()) {
            Some(extension) => ["rs", "md", "toml", "sh", "yaml"].contains(&extension),
            None => name.starts_with("hack/"),
        };
        if !is_text || LONG_LINES_LEFT.iter().any(|left| name.starts_with(left)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a text");
        // Markdown cannot break the row of a table.
        let is_row = |line: &str| name.ends_with(".md") && line.trim_start().starts_with('|');
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > COLUMNS_MAX && !is_row(line) {
                long.push(format!("{name}:{}", number + 1));
            }
        }
    }
    assert!(long.is_empty(), "lines of more than {COLUMNS_MAX} columns: {long:#?}");
}

/// Where there are source files, at least.
const FOLDERS: [&str; 8] = ["src", "crates", "reconciler", "installer", "sim", "fuzz", "tests", "tools"];

#[test]
fn nothing_unfinished_is_left() {
    let marks = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["#[", "ignore"].concat(),
        ["should_", "panic"].concat(),
    ];
    let files = rust_files(support::root());
    for folder in FOLDERS {
        let folder = support::root().join(folder);
        assert!(files.iter().any(|path| path.starts_with(&folder)), "nothing of {}", folder.display());
    }
    for path in files {
        let text = fs::read_to_string(&path).expect("a source file");
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} contains {mark}", path.display());
        }
    }
}
