//! Finds faults in files, with their places. Pure.

use std::cell::OnceCell;

use super::texts::{Locator, Part, Subject, TakenApart, take_apart};
use crate::places::TextPlace;
use crate::pool::text::{self, PoolTextFault};
use metes_config::Source;
use metes_config::allowed::Need;
use metes_config::cni::Json;
use metes_config::nad::Nad;
use metes_config::validate::{
    Issue, IssueId, JudgedNetwork, NetworkText, NetworkUse, Severity, compare, judge_host_file, judge_nad,
    judge_network, random_names,
};
use metes_config::workload::Workload;

/// One thing that is wrong, and where.
#[derive(Debug)]
pub(super) struct ValidateFinding {
    pub(super) at: FoundAt,
    pub(super) issue: Issue,
}

/// Where something stands.
#[derive(Debug, Clone)]
pub(super) struct FoundAt {
    pub(super) file: String,
    /// The number of the document in the file, from 1 on.
    pub(super) document: usize,
    /// The definition, the pool or the network; none for what has no name.
    pub(super) object: Option<String>,
    pub(super) place: Option<TextPlace>,
}

/// The judged text.
#[derive(Debug, Default)]
pub(super) struct ValidateCounts {
    pub(super) files: usize,
    pub(super) networks: usize,
    /// Networks that do not use metes.
    pub(super) ignored: usize,
    pub(super) host_files: usize,
    pub(super) pools: usize,
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) findings: Vec<ValidateFinding>,
    pub(super) counts: ValidateCounts,
    pub(super) unreadable: Vec<String>,
    /// What the networks need in `allowed`.
    pub(super) needs: Vec<Need>,
}

/// The findings so far, while files are read.
pub(super) struct Judgement {
    source: Source,
    judged: Judged,
    /// The files, as they were given.
    files: Vec<String>,
    /// The ranges of networks and pools, each with its place in a file.
    uses: Vec<(NetworkUse, FoundAt)>,
    /// The objects whose pods have random names.
    workloads: Vec<(Workload, FoundAt)>,
}

struct File<'t> {
    name: &'t str,
    text: &'t str,
    locator: OnceCell<Locator<'t>>,
}

impl<'t> File<'t> {
    fn locator(&self) -> &Locator<'t> {
        self.locator.get_or_init(|| Locator::new(self.text))
    }

    fn found(&self, document: usize, object: Option<String>, place: Option<TextPlace>) -> FoundAt {
        FoundAt { file: self.name.to_owned(), document: document + 1, object, place }
    }
}

impl Judgement {
    /// Networks are judged for nodes with this source of settings.
    pub(super) fn new(source: Source) -> Self {
        Self { source, judged: Judged::default(), files: Vec::new(), uses: Vec::new(), workloads: Vec::new() }
    }

    /// Something that cannot be read.
    pub(super) fn unreadable(&mut self, why: String) {
        self.judged.unreadable.push(why);
    }

    pub(super) fn file(&mut self, name: &str, text: &str) {
        let file = File { name, text, locator: OnceCell::new() };
        let TakenApart { parts, unreadable } = take_apart(text);
        self.files.push(name.to_owned());
        self.judged.counts.files += 1;
        self.judged.unreadable.extend(unreadable.map(|why| format!("cannot read {name}: {why}")));
        if text.trim_ascii().is_empty() {
            // Often the output of a command that has failed.
            self.judged.unreadable.push(format!("there is nothing to validate in {name}: it is empty"));
        }
        let pools: Vec<usize> =
            parts.iter().filter(|part| part.is_pool()).map(|part| part.document).collect();
        for Part { document, subject } in parts {
            match subject {
                Subject::Nad(nad) => self.nad(&file, document, &nad),
                Subject::Network(config) => self.network(&file, document, &config, ""),
                Subject::Ipam(ipam) => {
                    let config = format!(r#"{{"cniVersion":"1.0.0","name":"ipam","ipam":{ipam}}}"#);
                    // If it is not JSON, the place of the mistake is in the section.
                    let is_json = Json::parse(ipam.as_bytes()).is_ok();
                    let (config, around) = if is_json { (&config, "ipam") } else { (&ipam, "") };
                    self.network(&file, document, config, around);
                }
                Subject::HostFile => self.host_file(&file, document),
                Subject::Pool => {}
                Subject::Workload(workload) => {
                    let place = file.locator().key(document, &workload.key);
                    let at = file.found(document, Some(workload.label.clone()), place);
                    self.workloads.push((workload, at));
                }
            }
        }
        self.pools(&file, &pools);
    }

    fn nad(&mut self, file: &File<'_>, document: usize, nad: &Nad) {
        let label = nad.label();
        let mut judged = judge_nad(nad, &self.source);
        if let Some(config) = &nad.config {
            let of_nad = file.locator().key(document, &nad.key);
            for issue in &mut judged.issues {
                // Where lines of the file are not lines of the configuration, only the latter can be told.
                if let Some((line, column)) = issue.at
                    && file.locator().inside(document, &nad.key, config, (&issue.key, issue.at)) == of_nad
                {
                    issue.what =
                        format!("{} at line {line} column {column} of the configuration", issue.what);
                }
            }
        }
        self.judged_network(judged, |key, at| {
            let place = match &nad.config {
                Some(config) => file.locator().inside(document, &nad.key, config, (key, at)),
                None => file.locator().key(document, &nad.key),
            };
            file.found(document, Some(label.clone()), place)
        });
    }

    /// A configuration in a file of its own; `without` is what was put around it.
    fn network(&mut self, file: &File<'_>, document: usize, config: &str, without: &str) {
        let text = NetworkText { label: file.name, namespace: "", name: "", resource: "", config };
        let mut judged = judge_network(text, &self.source);
        let is_of_ipam = !without.is_empty();
        // A section alone has no plugin that could have capabilities.
        judged.issues.retain(|issue| !(is_of_ipam && issue.id == IssueId::NoIpsCapability));
        self.judged_network(judged, |key, at| {
            let key = key.strip_prefix(without).map_or(key, |key| key.trim_start_matches('.'));
            let place = at.map(TextPlace::from).or_else(|| file.locator().key(document, key));
            file.found(document, None, place)
        });
    }

    /// Adds the issues of a network, and its ranges. `found` gives the place of a key in the file, or of a line and a
    /// column.
    fn judged_network(
        &mut self,
        JudgedNetwork { issues, uses, needs, is_of_another }: JudgedNetwork,
        found: impl Fn(&str, Option<(usize, usize)>) -> FoundAt,
    ) {
        let counts = &mut self.judged.counts;
        *(if is_of_another { &mut counts.ignored } else { &mut counts.networks }) += 1;
        for issue in issues {
            self.find(found(&issue.key, issue.at), issue);
        }
        self.judged.needs.extend(needs);
        for one in uses {
            let at = found(&one.key, None);
            self.uses.push((one, at));
        }
    }

    fn find(&mut self, at: FoundAt, issue: Issue) {
        self.judged.findings.push(ValidateFinding { at, issue });
    }

    fn host_file(&mut self, file: &File<'_>, document: usize) {
        self.judged.counts.host_files += 1;
        for issue in judge_host_file(file.text.as_bytes()) {
            let place = issue.at.map(TextPlace::from);
            let place = place.or_else(|| file.locator().key(document, &issue.key));
            self.find(file.found(document, None, place), issue);
        }
    }

    fn pools(&mut self, file: &File<'_>, documents: &[usize]) {
        for (document, read) in text::documents(file.text, Some(documents)) {
            self.judged.counts.pools += 1;
            match read {
                Ok(pool) => {
                    let label = format!("pool {}", pool.pool);
                    for (key, what) in pool.needless_excludes() {
                        let place = file.locator().key(document, &key);
                        let at = file.found(document, Some(label.clone()), place);
                        self.find(at, Issue::exclude_outside(&key, what));
                    }
                    let ranges = pool.all_ranges().unwrap_or_default();
                    let key = "ranges".to_owned();
                    let at = file.found(document, Some(label.clone()), file.locator().key(document, &key));
                    let network_key = "network";
                    let (link, unnamed_vlan, is_sticky) = (None, None, false);
                    let of_pool =
                        NetworkUse { label, key, link, unnamed_vlan, ranges, network_key, is_sticky };
                    self.uses.push((of_pool, at));
                }
                Err(PoolTextFault { what, place }) => {
                    let issue = Issue::new(IssueId::Pool, "", what, "correct it: docs/pools.md has the keys");
                    self.find(file.found(document, None, place), issue);
                }
            }
        }
    }

    /// All that was found, also between networks.
    pub(super) fn done(mut self) -> Judged {
        let (uses, places): (Vec<NetworkUse>, Vec<FoundAt>) =
            std::mem::take(&mut self.uses).into_iter().unzip();
        for (at, issue) in compare(&uses) {
            self.find(places[at].clone(), issue);
        }
        let (workloads, places): (Vec<Workload>, Vec<FoundAt>) =
            std::mem::take(&mut self.workloads).into_iter().unzip();
        for (at, issue) in random_names(&workloads, &uses) {
            self.find(places[at].clone(), issue);
        }
        let ValidateCounts { networks, host_files, pools, .. } = self.judged.counts;
        if networks + host_files + pools == 0
            && self.judged.unreadable.is_empty()
            && self.judged.findings.iter().all(|one| one.issue.id.severity() == Severity::Note)
        {
            self.judged.unreadable.push(format!(
                "there is nothing to validate in {}: expected NetworkAttachmentDefinitions, CNI configurations, `ipam` \
                 sections of type metes, host files or pools",
                self.files.join(", ")
            ));
        }
        let Self { mut judged, files, .. } = self;
        let place = |one: &ValidateFinding| (one.at.document, one.at.place, one.issue.id);
        // Of one file they stand together, and files in the order in which they were given.
        judged.findings.sort_by_key(|one| (files.iter().position(|file| *file == one.at.file), place(one)));
        judged
    }
}
