//! TOML files of the node, in a folder that may have another path here.

use std::fs;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::files;

/// The folder in which a runtime looks for plugins if it is not told otherwise.
pub(super) const DEFAULT: &str = "/opt/cni/bin";

/// The configuration of a runtime. All paths are those on the node.
pub(super) struct NodeFiles<'a> {
    pub(super) config: &'a Path,
    /// The folder of `config` here, if it has another path.
    mounted_at: Option<&'a Path>,
}

impl<'a> NodeFiles<'a> {
    pub(super) fn new(config: &'a Path, mounted_at: Option<&'a Path>) -> Self {
        Self { config, mounted_at }
    }

    pub(super) fn is_there(&self, path: &Path) -> bool {
        self.path_here(path).is_ok_and(|path| path.exists())
    }

    /// The content of a file. An error does not repeat it: there may be a password of a registry.
    pub(super) fn table(&self, path: &Path) -> Result<Table, String> {
        let text = fs::read_to_string(self.path_here(path)?)
            .map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
        text.parse().map_err(|e: toml::de::Error| {
            let before = e.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(before).filter(|byte| *byte == b'\n').count();
            format!("{} is not TOML at line {line}", path.display())
        })
    }

    /// The files of a folder, in order; none if there is no such folder.
    pub(super) fn files_of(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let paths = files::list(&self.path_here(folder)?).map_err(|e| e.to_string())?;
        let paths = paths.iter().filter(|path| path.is_file());
        Ok(paths.filter_map(|path| Some(folder.join(path.file_name()?))).collect())
    }

    /// The file of that path, or those that fit a name with `*`.
    pub(super) fn files_like(&self, path: &Path) -> Result<Vec<PathBuf>, String> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let folder = path.parent().unwrap_or(Path::new("/"));
        if folder.to_string_lossy().contains('*') {
            return Err(format!("{} names folders by a pattern", path.display()));
        }
        if !name.contains('*') {
            return Ok(vec![path.to_owned()]);
        }
        let mut paths = self.files_of(folder)?;
        paths.retain(|path| path.file_name().is_some_and(|other| fits(&name, &other.to_string_lossy())));
        Ok(paths)
    }

    fn path_here(&self, path: &Path) -> Result<PathBuf, String> {
        let Some(mounted_at) = self.mounted_at else { return Ok(path.to_owned()) };
        let folder = self.config.parent().unwrap_or(Path::new("/"));
        let rest = path.strip_prefix(folder);
        rest.map(|rest| mounted_at.join(rest))
            .map_err(|_| format!("{} is outside of {}", path.display(), folder.display()))
    }
}

/// If a name is what a pattern says, in which each `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(left) = name.strip_prefix(start) else { return false };
    (0..=left.len()).any(|i| left.get(i..).is_some_and(|end| fits(rest, end)))
}

/// The texts of a list; none if it is not a list.
pub(super) fn texts(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in
            [("*.toml", "a.toml"), ("*.toml", ".toml"), ("a*b*c", "abbc"), ("*", "x"), ("a", "a")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("*.toml", "a.toml.bak"), ("a*b", "acd"), ("a", "ab"), ("*.toml", "é")] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
