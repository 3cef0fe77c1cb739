//! kubectl, and the manifests that it is given.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use super::outcome::Outcome;
use super::process::temporary;
use super::run::Run;
use super::tool::{root, tool};

/// kubectl with one kubeconfig: as the administrator or as somebody else.
#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub fn new(kubeconfig: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: kubeconfig.into() }
    }

    #[track_caller]
    pub fn run<S: AsRef<str>>(&self, arguments: impl IntoIterator<Item = S>, stdin: &str) -> Outcome {
        Run::new(tool("kubectl"))
            .env("KUBECONFIG", &self.kubeconfig)
            // The folder for its cache of the server's API.
            .env("HOME", self.kubeconfig.parent().expect("a file is in a folder"))
            .arguments(arguments)
            .stdin(stdin)
            .run()
    }

    /// Applies manifests as the documentation says, but with the server as a strict judge: an unknown or doubled field
    /// is an error, and so is a warning. The objects, as the server answered them.
    #[track_caller]
    pub fn apply(&self, yaml: &str) -> Vec<Value> {
        let arguments = ["apply", "--server-side", "--validate=strict", "-o", "json", "-f", "-"];
        let outcome = self.run(arguments, yaml);
        assert!(outcome.succeeded() && outcome.stderr.is_empty(), "{outcome}\n{yaml}");
        let answer = outcome.json();
        match answer["items"].as_array() {
            Some(items) if answer["kind"] == "List" => items.clone(),
            _ => vec![answer],
        }
    }
}

/// A copy of manifests/, for a test to edit as an operator would.
#[derive(Debug)]
pub struct Manifests {
    folder: TempDir,
}

impl Manifests {
    pub fn copy() -> Self {
        let folder = temporary();
        copy_all(&root().join("manifests"), folder.path());
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a text that must be there.
    #[track_caller]
    pub fn edit(&self, file: &str, old: &str, new: &str) {
        let text = fs::read_to_string(self.path(file)).expect("a file of manifests/ is text");
        assert!(text.contains(old), "{file} has no {old:?}");
        fs::write(self.path(file), text.replace(old, new)).expect("a copy can be written");
    }

    /// Every file, by its path below manifests/.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        collect(self.folder.path(), &mut files);
        let below = |path: PathBuf| {
            let path = path.strip_prefix(self.folder.path()).expect("it was found there").to_owned();
            path.into_os_string().into_string().expect("names of manifests/ are text")
        };
        let mut files: Vec<String> = files.into_iter().map(below).collect();
        files.sort();
        files
    }

    /// The objects of a folder. A component is no whole: it is put on the folder "reconciler".
    #[track_caller]
    pub fn kustomize(&self, folder: &str) -> String {
        let text = fs::read_to_string(self.path(folder).join("kustomization.yaml")).expect("it can be read");
        if text.contains("\nkind: Component\n") { self.with_component(folder) } else { self.build(folder) }
    }

    fn with_component(&self, component: &str) -> String {
        let whole = format!("with-{}", component.replace('/', "-"));
        fs::create_dir_all(self.path(&whole)).expect("a folder can be made");
        let text = format!("resources: [../reconciler]\ncomponents: [../{component}]\n");
        fs::write(self.path(&whole).join("kustomization.yaml"), text).expect("a file can be written");
        let built = self.build(&whole);
        fs::remove_dir_all(self.path(&whole)).expect("an own folder can be removed");
        built
    }

    fn build(&self, folder: &str) -> String {
        let outcome = Run::new(tool("kubectl"))
            .env("HOME", self.folder.path())
            .arguments(["kustomize".into(), self.path(folder).display().to_string()])
            .run();
        assert!(outcome.succeeded() && outcome.stderr.is_empty(), "{outcome}");
        outcome.stdout
    }
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder can be read").flatten() {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir(&copy).expect("a folder can be made");
            copy_all(&path, &copy);
        } else {
            fs::copy(&path, &copy).expect("a file can be copied");
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder can be read").flatten() {
        let path = entry.path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
