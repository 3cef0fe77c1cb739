//! What kustomize makes of `manifests/` after an operator's edits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use crate::Error;
use crate::choices::Choices;

/// What a rendered text has in place of values that an operator writes.
pub mod marks {
    /// The image with the installer.
    pub const INSTALL: &str = "mark-install:mark";
    /// The image with the reconciler.
    pub const RECONCILER: &str = "mark-reconciler:mark";
    /// The image of etcd.
    pub const ETCD: &str = "mark-etcd:mark";
    /// The namespace `metes-system`.
    pub const SYSTEM_NAMESPACE: &str = "mark-namespace-of-etcd";
    /// The namespace `metes`.
    pub const NAMESPACE: &str = "mark-namespace-of-pods";
}

/// An object is known by its kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// For example `DaemonSet`.
    pub kind: String,
    /// A mark; empty if the kind has none.
    pub namespace: String,
    /// A mark, if the object is a namespace.
    pub name: String,
}

/// The text of each object.
pub type Objects = BTreeMap<ObjectId, String>;

/// Renders each choice once.
#[derive(Debug)]
pub struct Renderer {
    manifests: PathBuf,
    kustomize: PathBuf,
    rendered: BTreeMap<Choices, Rc<Objects>>,
}

impl Renderer {
    /// With the folder `manifests` and the program kustomize.
    pub fn new(manifests: PathBuf, kustomize: PathBuf) -> Self {
        Self { manifests, kustomize, rendered: BTreeMap::new() }
    }

    /// The objects of these choices.
    ///
    /// # Errors
    /// If a file of manifests/ lacks the text that an operator is told to edit, or if kustomize fails.
    pub fn objects(&mut self, choices: Choices) -> Result<Rc<Objects>, Error> {
        if let Some(known) = self.rendered.get(&choices) {
            return Ok(Rc::clone(known));
        }
        let edited = Edited::new(&self.manifests)?;
        let target = edited.choose(choices)?;
        let objects = Rc::new(split(&build(&self.kustomize, &target)?)?);
        self.rendered.insert(choices, Rc::clone(&objects));
        Ok(objects)
    }

    /// The objects of these choices, if they have been rendered.
    pub fn known(&self, choices: Choices) -> Option<&Objects> {
        self.rendered.get(&choices).map(Rc::as_ref)
    }

    /// All that has been rendered.
    pub fn rendered(&self) -> impl Iterator<Item = (&Choices, &Rc<Objects>)> {
        self.rendered.iter()
    }
}

/// A copy of manifests/ that is edited as docs/install.md says.
struct Edited {
    folder: tempfile::TempDir,
}

impl Edited {
    fn new(manifests: &Path) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        copy(manifests, folder.path())?;
        Ok(Self { folder })
    }

    /// Makes the edits, and gives the folder that is to be applied.
    fn choose(&self, choices: Choices) -> Result<PathBuf, Error> {
        self.mark()?;
        let base = if choices.has("ownEtcd") { "byo-etcd" } else { "base" };
        let kustomization = format!("{base}/kustomization.yaml");
        for component in ["production", "ipv6", "events"] {
            if choices.has(component) {
                self.edit(&kustomization, "  - ../site\n", &format!("  - ../site\n  - ../{component}\n"))?;
            }
        }
        for (name, resource) in
            [("monitoring", "monitoring"), ("snapshotsCopy", "etcd-snapshots-copy"), ("webhook", "webhook")]
        {
            if choices.has(name) {
                let with = format!("  - ../namespaces\n  - ../{resource}\n");
                self.edit(&kustomization, "  - ../namespaces\n", &with)?;
            }
        }
        if choices.has("reconcilerDeployment") {
            self.edit(&kustomization, "  - ../reconciler\n", "  - ../reconciler-deployment\n")?;
        }
        if choices.has("hostNetwork") {
            self.edit("site/kustomization.yaml", "  # - ../host-network\n", "  - ../host-network\n")?;
        }
        let distribution = choices.named("distribution").unwrap_or_default();
        let component = format!("overlays/{distribution}/component");
        let target = self.folder.path().join("chart");
        fs::create_dir(&target)?;
        let mut text = format!("resources:\n  - ../{base}\n");
        if self.folder.path().join(&component).exists() {
            text += &format!("components:\n  - ../{component}\n");
        }
        fs::write(target.join("kustomization.yaml"), text)?;
        Ok(target)
    }

    /// Writes the marks where an operator writes values.
    fn mark(&self) -> Result<(), Error> {
        let images = fs::read_to_string(self.path("images/kustomization.yaml"))?;
        let (head, _) = images.split_once("images:\n").ok_or("images/kustomization.yaml has no images")?;
        let mut text = format!("{head}images:\n");
        for (name, mark) in [
            ("metes-install", marks::INSTALL),
            ("metes-reconciler", marks::RECONCILER),
            ("quay.io/coreos/etcd", marks::ETCD),
        ] {
            let (new_name, tag) = mark.split_once(':').unwrap_or((mark, ""));
            text += &format!("  - {{name: {name}, newName: {new_name}, newTag: {tag}}}\n");
        }
        fs::write(self.path("images/kustomization.yaml"), text)?;
        self.edit("site/kustomization.yaml", "  # - ../rename\n", "  - ../rename\n")?;
        let rename = "rename/kustomization.yaml";
        self.edit(rename, " net-system}\n", &format!(" {}}}\n", marks::SYSTEM_NAMESPACE))?;
        self.edit(rename, " net}\n", &format!(" {}}}\n", marks::NAMESPACE))?;
        self.edit(rename, " net/", &format!(" {}/", marks::NAMESPACE))
    }

    fn edit(&self, path: &str, from: &str, to: &str) -> Result<(), Error> {
        let text = fs::read_to_string(self.path(path))?;
        if !text.contains(from) {
            return Err(format!("manifests/{path} has no text {from:?} to edit").into());
        }
        Ok(fs::write(self.path(path), text.replace(from, to))?)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn build(kustomize: &Path, folder: &Path) -> Result<String, Error> {
    let output = Command::new(kustomize).arg("build").arg(folder).output()?;
    if !output.status.success() {
        return Err(format!("kustomize build: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// kustomize writes `kind` and what is in `metadata` with fixed indentation.
fn split(text: &str) -> Result<Objects, Error> {
    let mut objects = Objects::new();
    for document in text.split("\n---\n") {
        let of = |key: &str, section: &str| {
            let start = if section.is_empty() { 0 } else { document.find(section)? + section.len() };
            let rest =
                document[start..].lines().take_while(|line| section.is_empty() || line.starts_with(' '));
            rest.filter_map(|line| line.strip_prefix(key)).map(str::to_owned).next()
        };
        let id = ObjectId {
            kind: of("kind: ", "").ok_or("an object has no kind")?,
            namespace: of("  namespace: ", "\nmetadata:\n").unwrap_or_default(),
            name: of("  name: ", "\nmetadata:\n").ok_or("an object has no name")?,
        };
        let text = format!("{}\n", document.trim_end());
        if objects.insert(id.clone(), text).is_some() {
            return Err(format!("{id:?} is there twice").into());
        }
    }
    Ok(objects)
}
