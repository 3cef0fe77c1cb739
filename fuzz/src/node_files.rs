//! The files that a node keeps for its next run, a spooled DEL, the high-water mark and the hints of a scope, as a torn
//! write or another program may have left them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use metes_core::keys::{HintName, Scope, digest_hex};
use metes_node::mark::MarkFile;
use metes_node::node::Identity;
use metes_node::scope_hints::ScopeHintFiles;
use metes_node::spool::Spool;

pub(super) fn node_files(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    let (found, signed, written) = (place("found"), place("signed"), place("written"));
    fs::create_dir_all(found.join("spool")).expect("a folder");
    fs::create_dir_all(&signed).expect("a folder");
    // A file that names neither a machine nor a cluster is of a node that has none.
    let identity = Identity::of("n1".parse().expect("a name"));
    put(&found.join("mark"), data);
    put(&signed.join("mark"), &[digest_hex(data).as_bytes(), b"\n", data].concat());
    put(&found.join("spool/x-1.del"), data);
    let name = HintName::from(&Scope::stored("-").expect("a scope"));
    let hints = format!("scopes/{}", name.file());
    for folder in [&found, &signed] {
        fs::create_dir_all(folder.join("scopes")).expect("a folder");
        fs::copy(folder.join("mark"), folder.join(&hints)).expect("a file");
    }
    if ScopeHintFiles::new(&found, &identity).read(&name).is_some() {
        check_is_whole(data);
    }
    if let Some(hints) = ScopeHintFiles::new(&signed, &identity).read(&name) {
        let files = ScopeHintFiles::new(&written, &identity);
        files.keep(&name, &hints);
        // A file that would be too large is not kept.
        if let Some(again) = files.read(&name) {
            assert_eq!(format!("{again:?}"), format!("{hints:?}"));
        }
    }
    if MarkFile::new(&found, &identity, &[]).read().is_some() {
        check_is_whole(data);
    }
    if let Some(mark) = MarkFile::new(&signed, &identity, &[]).read() {
        let file = MarkFile::new(&written, &identity, &[]);
        file.make(mark.seen.clone());
        file.raise(mark.seen.clone(), |hints| *hints = mark.hints.clone());
        assert_eq!(file.read(), Some(mark));
    }
    let spool = Spool::new(&found, &identity);
    for kept in spool.some(16, 7) {
        assert_eq!((kept.spooled.machine.as_str(), &kept.spooled.owner.cluster), ("", &None));
        let spool = Spool::new(&written, &identity);
        spool.keep(&kept.spooled).expect("a free can be kept");
        let again: Vec<_> = spool.of(&kept.spooled.owner).into_iter().map(|again| again.spooled).collect();
        assert_eq!(again, [kept.spooled]);
    }
    let aside = fs::read_dir(found.join("spool/others")).into_iter().flatten().flatten();
    let mut places = aside.map(|folder| folder.path()).chain([found.join("spool")]);
    assert!(places.any(|folder| folder.join("x-1.del").exists()), "what nobody understands stays");
}

/// If a file was torn while it was overwritten, its digest does not fit the rest.
fn check_is_whole(data: &[u8]) {
    let text = std::str::from_utf8(data).expect("a mark is text");
    let (digest, content) =
        text.trim_end_matches(' ').split_once('\n').expect("a digest has a line of its own");
    assert_eq!(digest, digest_hex(content.as_bytes()));
}

fn put(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its mode");
}
