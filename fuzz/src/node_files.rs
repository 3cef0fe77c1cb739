//! What a node keeps for its next run, as a torn write or another program may have left it: a spooled DEL and the
//! high-water mark.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use metes::local::mark::MarkFile;
use metes::local::spool::Spool;
use serde_json::Value;

pub(super) fn node_files(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let (found, written) = (folder.path().join("found"), folder.path().join("written"));
    fs::create_dir_all(found.join("spool")).expect("a folder");
    put(&found.join("mark"), data);
    put(&found.join("spool/x-1.del"), data);
    if let Some(mark) = MarkFile::new(&found).read() {
        check_is_whole(data, mark.revision);
        let file = MarkFile::new(&written);
        file.raise(&mark);
        assert_eq!(file.read(), Some(mark));
    }
    let spool = Spool::new(&found);
    for kept in spool.some(16, 7) {
        let spool = Spool::new(&written);
        spool.keep(&kept.spooled).expect("a free can be kept");
        let again: Vec<_> = spool.of(&kept.spooled.owner).into_iter().map(|again| again.spooled).collect();
        assert_eq!(again, [kept.spooled]);
    }
    assert!(found.join("spool/x-1.del").exists(), "what nobody understands stays");
}

/// A file that was being overwritten says one revision at its beginning and another one at its end.
fn check_is_whole(data: &[u8], revision: i64) {
    let Ok(json) = serde_json::from_slice::<Value>(data) else { return };
    assert_eq!([json["revision"].as_i64(), json["again"].as_i64()], [Some(revision); 2], "{json}");
}

fn put(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("its mode");
}
