//! The values of the chart that choose between texts.

/// A value of the chart that has a few options.
#[derive(Debug)]
pub struct Factor {
    /// Its name in values.yaml.
    pub name: &'static str,
    /// The first one is the default. Those of a boolean are `false` and `true`.
    pub options: &'static [&'static str],
}

const BOOLEAN: &[&str] = &["false", "true"];

/// All of them. `ipv6` is no value: it follows from the endpoints.
pub const FACTORS: [Factor; 10] = [
    Factor {
        name: "distribution",
        options: &[
            "kubeadm",
            "aks",
            "eks",
            "gke",
            "k3s",
            "kind",
            "microk8s",
            "minikube",
            "openshift",
            "rke2",
            "talos",
        ],
    },
    Factor { name: "hostNetwork", options: BOOLEAN },
    Factor { name: "production", options: BOOLEAN },
    Factor { name: "ownEtcd", options: BOOLEAN },
    Factor { name: "ipv6", options: BOOLEAN },
    Factor { name: "reconcilerDeployment", options: BOOLEAN },
    Factor { name: "events", options: BOOLEAN },
    Factor { name: "monitoring", options: BOOLEAN },
    Factor { name: "snapshotsCopy", options: BOOLEAN },
    Factor { name: "webhook", options: BOOLEAN },
];

/// An option of each factor, as an index into its options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choices([usize; FACTORS.len()]);

impl Choices {
    /// The index of the option that is chosen for the factor with this index.
    pub fn of(&self, factor: usize) -> usize {
        self.0[factor]
    }

    /// These choices, but another one for one factor.
    #[must_use]
    pub fn with(mut self, factor: usize, option: usize) -> Self {
        self.0[factor] = option;
        self
    }

    /// These choices, with the option of this name for the factor of this name; `None` if there is none.
    #[must_use]
    pub fn with_named(self, factor: &str, option: &str) -> Option<Self> {
        let factor = FACTORS.iter().position(|one| one.name == factor)?;
        let option = FACTORS[factor].options.iter().position(|one| *one == option)?;
        Some(self.with(factor, option))
    }

    /// The name of the option that is chosen for the factor of this name.
    pub fn named(&self, factor: &str) -> Option<&'static str> {
        let factor = FACTORS.iter().position(|one| one.name == factor)?;
        Some(FACTORS[factor].options[self.of(factor)])
    }

    /// If the boolean factor of this name is chosen.
    pub fn has(&self, factor: &str) -> bool {
        self.named(factor) == Some("true")
    }

    /// All options that are not the default, each as (factor, option).
    pub fn alternatives() -> impl Iterator<Item = (usize, usize)> {
        FACTORS
            .iter()
            .enumerate()
            .flat_map(|(factor, one)| (1..one.options.len()).map(move |option| (factor, option)))
    }
}
