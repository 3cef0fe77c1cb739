//! The folder that is the chart.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::render::Renderer;
use crate::template::templates;

/// The files that are written by hand, but for Chart.yaml and values.yaml.
const BY_HAND: [&str; 4] =
    ["values.schema.json", "README.md", "templates/_helpers.tpl", "templates/NOTES.txt"];

/// What a chart is made of.
#[derive(Debug, Clone)]
pub struct Source {
    /// The root of the sources.
    pub root: PathBuf,
    /// The program kustomize.
    pub kustomize: PathBuf,
    /// The version of the chart and of metes.
    pub version: String,
    /// The images as pods name them.
    pub images: Images,
}

/// The images of a release.
#[derive(Debug, Clone)]
pub struct Images {
    /// The one with the installer and the plugin.
    pub install: String,
    /// The one with the reconciler.
    pub reconciler: String,
    /// The one of etcd.
    pub etcd: String,
}

/// Writes the chart into a folder, which must not exist.
///
/// # Errors
/// If it exists, or if the manifests cannot be rendered.
pub fn write(source: &Source, out: &Path) -> Result<(), Error> {
    fs::create_dir_all(out.parent().unwrap_or(Path::new(".")))?;
    fs::create_dir(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let manifests = source.root.join("manifests");
    let by_hand = |name: &str| fs::read_to_string(source.root.join("tools/chart/chart").join(name));
    put(out, "Chart.yaml", &by_hand("Chart.yaml")?.replace("0.0.0", &source.version))?;
    let Images { install, reconciler, etcd } = &source.images;
    let images = format!(
        "\n# The images of this release.\nimages:\n  install: {install}\n  reconciler: {reconciler}\n  etcd: {etcd}\n"
    );
    put(out, "values.yaml", &(by_hand("values.yaml")? + &images))?;
    for name in BY_HAND {
        put(out, name, &by_hand(name)?)?;
    }
    for (name, base) in [("metes.conf", "base"), ("own-etcd.conf", "byo-etcd")] {
        let text = fs::read_to_string(manifests.join(base).join("metes.conf"))?;
        put(out, &format!("files/{name}"), &text)?;
    }
    let mut renderer = Renderer::new(manifests, source.kustomize.clone());
    for (name, text) in templates(&mut renderer)? {
        put(out, &format!("templates/{name}"), &text)?;
    }
    Ok(())
}

fn put(folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(path, text)?)
}
