//! The rules that a reader cannot see at a glance: the imports of each module, the modules that stay pure, one type for
//! each name, and nothing unfinished.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) mod sources;

use self::sources::{Crate, files, rust_files};

/// The modules that judge, and those that read the records of others.
const PURE_IN_RECONCILER: [&str; 13] = [
    "adopt/demand.rs",
    "exposition.rs",
    "forecast.rs",
    "holder.rs",
    "import/facts.rs",
    "import/gather.rs",
    "import/gathered.rs",
    "import/nads.rs",
    "import/pools.rs",
    "range_metrics.rs",
    "verdict.rs",
    "webhook/review.rs",
    "world.rs",
];

#[test]
fn pure_modules_do_no_io_and_know_no_time() {
    let src = support::root().join("src");
    let mut pure: Vec<PathBuf> =
        ["pool", "config", "cni"].iter().flat_map(|dir| rust_files(&src.join(dir))).collect();
    pure.extend(
        [
            "keys",
            "txn",
            "snapshot",
            "builder",
            "change",
            "effects",
            "fence",
            "ask",
            "known_pool",
            "pools",
            "resolved",
            "source",
            "allot",
            "free",
            "pool_change",
            "cause",
            "certificate",
        ]
        .iter()
        .map(|m| src.join(format!("store/{m}.rs"))),
    );
    let reconciler = support::root().join("reconciler/src");
    pure.extend(PURE_IN_RECONCILER.iter().map(|file| reconciler.join(file)));
    let impure = [
        "async ",
        ".await",
        "tokio",
        "etcd_client",
        "tonic",
        "std::fs",
        "std::env",
        "std::net::Tcp",
        "std::process",
        "Instant",
        "SystemTime",
        "tracing",
        "getrandom",
        "rustix",
        "println!",
        "crate::random",
    ];
    for path in pure {
        let (text, _) = sources::production(&fs::read_to_string(&path).expect("a source file"));
        for word in impure {
            assert!(!text.contains(word), "{} contains {word:?}", path.display());
        }
    }
}

/// The modules below all floors: every module may import them, and they import none that stands on a floor.
const GROUND: [&str; 4] = ["failpoints", "limits", "named", "random"];

/// The floors that ARCHITECTURE.md draws, from the top down: each module with those that it may import.
fn floors() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(support::root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, drawing) = text.split_once("\n### Floors\n").expect("it draws the floors");
    let drawing = drawing.split("```").nth(1).expect("in a block of its own");
    let row = |line: &str| {
        let (module, below) = line.split_once("->").expect("each row has an arrow");
        (module.trim().to_owned(), below.split_whitespace().map(str::to_owned).collect())
    };
    drawing.trim().lines().map(row).collect()
}

#[test]
fn imports_go_down_the_floors() {
    let floors = floors();
    for (at, (module, below)) in floors.iter().enumerate() {
        for other in below {
            let stands_below = floors[at + 1..].iter().any(|(lower, _)| lower == other);
            assert!(stands_below, "ARCHITECTURE.md: {module} imports {other}, which is not below it");
        }
    }
    let may_import: BTreeMap<String, Vec<String>> = floors.into_iter().collect();
    let check = |module: &str, file: &Path, imported: &str| {
        let Some(below) = may_import.get(module) else {
            panic!("ARCHITECTURE.md draws no floor for {}", file.display());
        };
        let is_drawn =
            imported == module || GROUND.contains(&imported) || below.iter().any(|b| b == imported);
        assert!(is_drawn, "{} imports {imported}, which ARCHITECTURE.md does not draw", file.display());
    };
    let metes = Crate::read(&support::root().join("src"));
    let tops: BTreeSet<String> = metes.modules.keys().filter_map(|name| name.first().cloned()).collect();
    let is_top = |name: &&String| tops.contains(*name);
    for (name, module) in metes.modules.iter().filter(|(name, _)| !name.is_empty()) {
        let imports = metes.imports(name, &["metes"]);
        let imported = imports.iter().filter_map(|path| path.iter().find(|word| *word != "metes"));
        for imported in imported.filter(is_top) {
            match GROUND.contains(&name[0].as_str()) {
                true => assert!(GROUND.contains(&imported.as_str()), "{} imports {imported}", name[0]),
                false => check(&name[0], &module.file, imported),
            }
        }
    }
    for program in ["reconciler", "installer"] {
        let of_program = Crate::read(&support::root().join(program).join("src"));
        for (name, module) in &of_program.modules {
            for path in of_program.imports(name, &["metes"]).iter().filter(|path| path[0] == "metes") {
                path.get(1)
                    .filter(is_top)
                    .into_iter()
                    .for_each(|imported| check(program, &module.file, imported));
            }
        }
    }
}

/// Every crate of the repository, tests aside: a folder of sources each.
const CRATES: [&str; 8] = [
    "src",
    "reconciler/src",
    "installer/src",
    "sim/src",
    "fuzz/src",
    "tools/bench/src",
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
const LONG_LINES_LEFT: [&str; 2] = ["src/config/network/tests.rs", "src/config/settings/tests.rs"];

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

/// The folders that must have source files, at least.
const FOLDERS: [&str; 7] = ["src", "reconciler", "installer", "sim", "fuzz", "tests", "tools"];

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
