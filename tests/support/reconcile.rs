//! One pass of the real reconciler.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::cluster::Cluster;
use super::kube::Reachable;
use super::outcome::Outcome;
use super::run::{Run, Running};
use super::tool::reconciler;

/// A pass that is being prepared: `cluster.reconciler(&api).args(["--dry-run"]).run()`.
#[derive(Clone, Debug)]
pub struct Reconciler {
    run: Run,
    config: PathBuf,
    kubeconfig: PathBuf,
    args: Vec<String>,
}

impl Cluster {
    /// With the host file of a node "reconciler" and as the administrator of `api`, a server or a proxy before one. No
    /// grace is longer than --grace unless a flag says so: Kubernetes knows few of the nodes in tests.
    pub fn reconciler(&self, api: &impl Reachable) -> Reconciler {
        Reconciler {
            run: Run::new(reconciler())
                .env("METES_RECONCILER_READY_GRACE", "0s")
                .env("METES_RECONCILER_UNKNOWN_NODE_GRACE", "0s"),
            config: self.node("reconciler").host_file(),
            kubeconfig: api.access().kubeconfig(&self.folder().join("kubeconfigs")),
            args: Vec::new(),
        }
    }
}

impl Reconciler {
    /// Flags and a subcommand, after `--config` and `--kubeconfig`.
    pub fn args<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Another build of it.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.run = self.run.program(program);
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.run = self.run.env(name, value);
        self
    }

    /// Another host file.
    pub fn config(self, path: impl AsRef<Path>) -> Self {
        Self { config: path.as_ref().to_owned(), ..self }
    }

    /// Another kubeconfig.
    pub fn kubeconfig(self, path: impl AsRef<Path>) -> Self {
        Self { kubeconfig: path.as_ref().to_owned(), ..self }
    }

    /// With these supplementary groups, as a container has them whose pod names an fsGroup.
    pub fn in_groups(mut self, groups: &[u32]) -> Self {
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        let program = reconciler();
        let program = program.to_str().expect("a built program has a plain path");
        self.run = Run::new("setpriv").arguments(["--groups", &groups.join(","), program]);
        self
    }

    #[track_caller]
    pub fn run(self) -> Outcome {
        self.prepared().run()
    }

    /// To be stopped, killed or waited for.
    #[track_caller]
    pub fn spawn(self) -> Running {
        self.prepared().spawn()
    }

    fn prepared(self) -> Run {
        let text = |path: &Path| path.to_str().expect("folders of tests have plain names").to_owned();
        let files =
            ["--config".to_owned(), text(&self.config), "--kubeconfig".to_owned(), text(&self.kubeconfig)];
        self.run.arguments(files).arguments(self.args)
    }
}
