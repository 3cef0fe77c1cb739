//! Writes the Helm chart into a folder.

use std::path::{Path, PathBuf};

use clap::Parser;
use metes_chart::Error;
use metes_chart::chart::{Images, Source, write};

/// Generates the Helm chart from manifests/.
#[derive(Debug, Parser)]
struct Args {
    /// The program kustomize.
    #[arg(long)]
    kustomize: PathBuf,
    /// The version of the chart and of metes.
    #[arg(long)]
    version: String,
    /// The image with the installer, as pods name it.
    #[arg(long)]
    install_image: String,
    /// The image with the reconciler.
    #[arg(long)]
    reconciler_image: String,
    /// The image of etcd.
    #[arg(long)]
    etcd_image: String,
    /// The folder that becomes the chart. It must not exist.
    out: PathBuf,
}

fn main() -> Result<(), Error> {
    let args = Args::parse();
    let source = Source {
        root: Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
        kustomize: args.kustomize,
        version: args.version,
        images: Images {
            install: args.install_image,
            reconciler: args.reconciler_image,
            etcd: args.etcd_image,
        },
    };
    write(&source, &args.out)
}
