//! Files of a node that other programs read at any moment: each appears whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The beginning of names that are being written: a killed installer leaves them behind.
const UNFINISHED: &str = ".metes-install-";

/// Replaces `path` by a rename, with `content`: a reader finds the old file or the new one.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), Failure> {
    replace_if(path, content, mode, |_| Ok(()))
}

/// The same, if `judge` accepts the new file, which it finds under another name in the same folder.
pub(crate) fn replace_if<T>(
    path: &Path,
    content: &[u8],
    mode: u32,
    judge: impl FnOnce(&Path) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let folder = folder_of(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!("{UNFINISHED}{name}"));
    remove_if_there(&new)?;
    write_new(&new, content, mode).map_err(Failure::on("write", path))?;
    let judged = match judge(&new) {
        Ok(judged) => judged,
        Err(refused) => {
            remove_if_there(&new)?;
            return Err(refused);
        }
    };
    fs::rename(&new, path).map_err(Failure::on("write", path))?;
    sync(folder)?;
    Ok(judged)
}

/// Creates a file that must not exist. Its content and mode are on disk when this returns.
pub(crate) fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    // The mode is set afterwards, because the container's umask would change it.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

/// Makes a folder that only its owner may enter.
pub(crate) fn make_private_folder(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o700)))
        .map_err(Failure::on("make", path))
}

/// Writes the folder to disk, so that what was renamed or removed in it stays so.
pub(crate) fn sync(folder: &Path) -> Result<(), Failure> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Failure::on("sync", folder))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(Failure::on("read", path))
}

/// The content of a file, or none if there is no such file.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::on("read", path)(e)),
    }
}

pub(crate) fn remove_if_there(path: &Path) -> Result<(), Failure> {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let removed = if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Failure::on("remove", path)(e)),
        _ => Ok(()),
    }
}

/// A program cannot copy files out of an image that has no shell, but for itself.
pub(crate) fn copy_this_program(to: &Path) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::on("find", Path::new("this program")))?;
    replace(to, &read(&program)?, 0o755)
}

/// The paths in a folder, in order; none if there is no such folder.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Failure::on("list", folder))?,
    };
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(Failure::on("list", folder))?;
    paths.sort();
    Ok(paths)
}

/// The path beside a file or folder, whose name is that name, a dot and the ending.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_beside_has_the_whole_name() {
        for (path, expected) in [("/etcd/data", "/etcd/data.crl"), ("/etcd/v3.6/", "/etcd/v3.6.crl")] {
            assert_eq!(beside(Path::new(path), "crl"), Path::new(expected));
        }
    }
}
