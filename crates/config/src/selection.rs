//! The networks that a pod asks for, as Multus reads its annotation. Pure.

use serde::Deserialize;

/// A network that a pod asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// As `namespace/name`.
    pub network: String,
    /// The name of the interface, if the pod asked for one.
    pub interface: Option<String>,
}

/// The full name of a network, for a name that is used in a namespace.
#[must_use]
pub fn full_name(namespace: &str, network: &str) -> String {
    if network.contains('/') { network.to_owned() } else { format!("{namespace}/{network}") }
}

/// The networks in the annotation by which a pod asks for them: JSON, or names separated by commas.
#[must_use]
pub fn selections(namespace: &str, text: &str) -> Vec<Selection> {
    #[derive(Deserialize)]
    struct Element {
        name: String,
        namespace: Option<String>,
        interface: Option<String>,
    }
    let named = |interface: Option<&str>| interface.filter(|name| !name.is_empty()).map(str::to_owned);
    if let Ok(elements) = serde_json::from_str::<Vec<Element>>(text) {
        let selection = |one: Element| Selection {
            network: full_name(one.namespace.as_deref().unwrap_or(namespace), &one.name),
            interface: named(one.interface.as_deref()),
        };
        return elements.into_iter().map(selection).collect();
    }
    let selection = |part: &str| {
        let (name, interface) =
            part.split_once('@').map_or((part, None), |(name, interface)| (name, Some(interface)));
        let network = full_name(namespace, name.trim());
        (!name.trim().is_empty()).then(|| Selection { network, interface: named(interface.map(str::trim)) })
    };
    text.split(',').filter_map(selection).collect()
}
