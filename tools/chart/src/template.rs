//! Templates of all objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;
use crate::choices::Choices;
use crate::merge::{Variants, merge};
use crate::render::{ObjectId, Renderer, marks};

/// Stands for the host file.
const HOST_FILE: &str = "mark-host-file";

/// The template of each object, by the name of its file.
///
/// # Errors
/// If an object cannot be rendered.
pub fn templates(renderer: &mut Renderer) -> Result<BTreeMap<String, String>, Error> {
    render_pairs(renderer)?;
    let ids: BTreeSet<ObjectId> =
        renderer.rendered().flat_map(|(_, objects)| objects.keys().cloned()).collect();
    let mut templates = BTreeMap::new();
    for id in ids {
        let text = with_expressions(&id, &escaped(&merge(&variants(renderer, &id)?)));
        templates.insert(file_name(&id), text);
    }
    Ok(templates)
}

/// Two choices at a time: an object of one choice may differ by another one. Distributions that differ in nothing from
/// the usual one are left out.
fn render_pairs(renderer: &mut Renderer) -> Result<(), Error> {
    let usual = renderer.objects(Choices::default())?;
    let mut singles = Vec::new();
    for (factor, option) in Choices::alternatives() {
        if renderer.objects(Choices::default().with(factor, option))? != usual {
            singles.push((factor, option));
        }
    }
    for (at, (factor, option)) in singles.iter().enumerate() {
        let one = Choices::default().with(*factor, *option);
        for (other, its_option) in singles[at + 1..].iter().filter(|(other, _)| other != factor) {
            renderer.objects(one.with(*other, *its_option))?;
        }
    }
    Ok(())
}

/// The texts of an object under all combinations of the options that make a difference to it.
fn variants(renderer: &mut Renderer, id: &ObjectId) -> Result<Variants, Error> {
    let differing: Vec<(usize, usize)> = Choices::alternatives()
        .filter(|(factor, option)| {
            let is_chosen = |choices: &Choices| choices.of(*factor) == *option;
            renderer.rendered().filter(|(choices, _)| is_chosen(choices)).any(|(choices, objects)| {
                let without = renderer.known(choices.with(*factor, 0));
                without.is_some_and(|without| without.get(id) != objects.get(id))
            })
        })
        .collect();
    let mut combinations = vec![Choices::default()];
    for (factor, option) in differing {
        let with: Vec<Choices> = combinations
            .iter()
            .filter(|choices| choices.of(factor) == 0)
            .map(|choices| choices.with(factor, option))
            .collect();
        combinations.extend(with);
    }
    combinations
        .into_iter()
        .map(|choices| {
            let objects = renderer.objects(choices)?;
            Ok((choices, objects.get(id).map(|text| prepared(id, text))))
        })
        .collect()
}

/// The text with what only a chart has, or has in another way.
fn prepared(id: &ObjectId, text: &str) -> String {
    match (id.kind.as_str(), id.name.as_str()) {
        ("ConfigMap", "metes-config") => without_host_file(text),
        // The keys of the authorities are in it: helm uninstall leaves it.
        ("Namespace", _) => {
            let keep = "    helm.sh/resource-policy: keep\n";
            if text.contains("\n  annotations:\n") {
                text.replace("\n  annotations:\n", &format!("\n  annotations:\n{keep}"))
            } else {
                text.replace("\nmetadata:\n", &format!("\nmetadata:\n  annotations:\n{keep}"))
            }
        }
        _ => text.to_owned(),
    }
}

/// `{{` of rules and dashboards is theirs; that of conditions begins a line with `{{- `.
fn escaped(template: &str) -> String {
    template
        .lines()
        .map(|line| match line.strip_prefix("{{- ") {
            Some(_) => format!("{line}\n"),
            None => format!("{}\n", line.replace("{{", "{{ \"{{\" }}")),
        })
        .collect()
}

fn with_expressions(id: &ObjectId, template: &str) -> String {
    let mut text = template.to_owned();
    for (mark, value) in [
        (marks::INSTALL, "images.install"),
        (marks::RECONCILER, "images.reconciler"),
        (marks::ETCD, "images.etcd"),
        (marks::SYSTEM_NAMESPACE, "systemNamespace"),
        (marks::NAMESPACE, "namespace"),
    ] {
        text = text.replace(mark, &format!("{{{{ .Values.{value} }}}}"));
    }
    text = with_pull_secrets(&text);
    match (id.kind.as_str(), id.name.as_str()) {
        ("ConfigMap", "metes-config") => {
            text.replace(&format!("    {HOST_FILE}\n"), "{{ include \"metes.conf\" . | indent 4 }}\n")
        }
        // A Job cannot be changed, and each release has its own.
        ("Job", _) => text.replace(
            &format!("\n  name: {}\n", id.name),
            &format!("\n  name: {}-{{{{ .Release.Revision }}}}\n", id.name),
        ),
        ("Namespace", _) => format!("{{{{- include \"metes.namespaces\" . }}}}\n{text}"),
        _ => text,
    }
}

/// Of every pod. The order of keys does not count.
fn with_pull_secrets(template: &str) -> String {
    template
        .lines()
        .map(|line| {
            let indent = line.len() - line.trim_start().len();
            if line.trim_start() != "containers:" {
                return format!("{line}\n");
            }
            let spaces = &line[..indent];
            format!(
                "{{{{- with .Values.imagePullSecrets }}}}\n{spaces}imagePullSecrets:\n\
                 {{{{- toYaml . | nindent {indent} }}}}\n{{{{- end }}}}\n{line}\n"
            )
        })
        .collect()
}

/// The host file is written from the values.
fn without_host_file(text: &str) -> String {
    let mut without = String::new();
    let mut inside = false;
    for line in text.lines() {
        inside = inside && line.starts_with("    ");
        if inside {
            continue;
        }
        without += &format!("{line}\n");
        if line == "  metes.conf: |" {
            inside = true;
            without += &format!("    {HOST_FILE}\n");
        }
    }
    without
}

fn file_name(id: &ObjectId) -> String {
    let place = match id.namespace.as_str() {
        marks::SYSTEM_NAMESPACE => "metes-system/",
        marks::NAMESPACE => "metes/",
        _ => "",
    };
    let name = match id.name.as_str() {
        marks::SYSTEM_NAMESPACE => "metes-system",
        marks::NAMESPACE => "metes",
        name => name,
    };
    format!("{place}{}-{name}.yaml", id.kind.to_lowercase()).replace(':', "-")
}
