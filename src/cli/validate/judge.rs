//! What is wrong in files, and where. Pure.

use std::cell::OnceCell;

use super::texts::{Locator, Nad, Part, Subject, TakenApart, take_apart};
use crate::cli::places::TextPlace;
use crate::cli::pool::text::{self, PoolTextFault};
use crate::cni::Json;
use crate::config::HostFile;
use crate::config::validate::{
    Issue, IssueId, NetworkText, NetworkUse, compare, judge_host_file, judge_network,
};

/// One thing that is wrong, and where.
#[derive(Debug)]
pub(super) struct ValidateFinding {
    pub(super) file: String,
    /// Which document of the file, from 1 on.
    pub(super) document: usize,
    /// The definition, the pool or the network; none for what has no name.
    pub(super) object: Option<String>,
    pub(super) place: Option<TextPlace>,
    pub(super) issue: Issue,
}

/// What was judged.
#[derive(Debug, Default)]
pub(super) struct ValidateCounts {
    pub(super) files: usize,
    pub(super) networks: usize,
    pub(super) host_files: usize,
    pub(super) pools: usize,
}

/// All that was found.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) findings: Vec<ValidateFinding>,
    pub(super) counts: ValidateCounts,
    pub(super) unreadable: Vec<String>,
}

/// What is found while files are read.
pub(super) struct Judgement {
    host: Option<HostFile>,
    judged: Judged,
    /// What networks and pools give addresses of, and where they say so.
    uses: Vec<(NetworkUse, FoundAt)>,
}

/// Where something stands.
#[derive(Debug, Clone)]
struct FoundAt {
    file: String,
    document: usize,
    object: Option<String>,
    place: Option<TextPlace>,
}

impl FoundAt {
    fn finding(self, issue: Issue) -> ValidateFinding {
        let Self { file, document, object, place } = self;
        ValidateFinding { file, document: document + 1, object, place, issue }
    }
}

/// One file.
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
        FoundAt { file: self.name.to_owned(), document, object, place }
    }
}

impl Judgement {
    /// Networks are judged for nodes with this host file.
    pub(super) fn new(host: Option<HostFile>) -> Self {
        Self { host, judged: Judged::default(), uses: Vec::new() }
    }

    /// Something that cannot be read.
    pub(super) fn unreadable(&mut self, why: String) {
        self.judged.unreadable.push(why);
    }

    /// Judges the text of a file.
    pub(super) fn file(&mut self, name: &str, text: &str) {
        let file = File { name, text, locator: OnceCell::new() };
        let TakenApart { parts, unreadable } = take_apart(text);
        self.judged.counts.files += 1;
        self.judged.unreadable.extend(unreadable.map(|why| format!("cannot read {name}: {why}")));
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
            }
        }
        self.pools(&file, &pools);
    }

    fn nad(&mut self, file: &File<'_>, document: usize, nad: &Nad) {
        self.judged.counts.networks += 1;
        let label = nad.label();
        let Some(config) = &nad.config else {
            let issue = Issue::new(
                IssueId::NoConfiguration,
                &nad.key,
                "it has no `spec.config`: the nodes have its configuration in a file",
                "validate that file",
            );
            let place = file.locator().key(document, &nad.key);
            self.judged.findings.push(file.found(document, Some(label), place).finding(issue));
            return;
        };
        let text = NetworkText { label: &label, name: &nad.name, resource: &nad.resource, config };
        let (issues, uses) = judge_network(text, self.host.as_ref());
        let found = |key: &str, at| {
            let place = file.locator().inside(document, &nad.key, config, (key, at));
            file.found(document, Some(label.clone()), place)
        };
        self.judged
            .findings
            .extend(issues.into_iter().map(|issue| found(&issue.key, issue.at).finding(issue)));
        self.uses.extend(uses.into_iter().map(|one| {
            let at = found(&one.key, None);
            (one, at)
        }));
    }

    /// A configuration in a file of its own; `without` is what was put around it.
    fn network(&mut self, file: &File<'_>, document: usize, config: &str, without: &str) {
        self.judged.counts.networks += 1;
        let text = NetworkText { label: file.name, name: "", resource: "", config };
        let (issues, uses) = judge_network(text, self.host.as_ref());
        let is_of_ipam = !without.is_empty();
        let found = |key: &str, at: Option<(usize, usize)>| {
            let key = key.strip_prefix(without).map_or(key, |key| key.trim_start_matches('.'));
            let place = at.map(|(line, column)| TextPlace { line, column });
            file.found(document, None, place.or_else(|| file.locator().key(document, key)))
        };
        // A section alone has no plugin that could have capabilities.
        let issues = issues.into_iter().filter(|issue| !(is_of_ipam && issue.id == IssueId::NoIpsCapability));
        self.judged.findings.extend(issues.map(|issue| found(&issue.key, issue.at).finding(issue)));
        self.uses.extend(uses.into_iter().map(|one| {
            let at = found(&one.key, None);
            (one, at)
        }));
    }

    fn host_file(&mut self, file: &File<'_>, document: usize) {
        self.judged.counts.host_files += 1;
        for issue in judge_host_file(file.text.as_bytes()) {
            let place = issue.at.map(|(line, column)| TextPlace { line, column });
            let place = place.or_else(|| file.locator().key(document, &issue.key));
            self.judged.findings.push(file.found(document, None, place).finding(issue));
        }
    }

    fn pools(&mut self, file: &File<'_>, documents: &[usize]) {
        for (document, read) in text::documents(file.text, Some(documents)) {
            self.judged.counts.pools += 1;
            match read {
                Ok(pool) => {
                    let label = format!("pool {}", pool.pool);
                    let ranges = pool.all_ranges().unwrap_or_default();
                    let key = "ranges".to_owned();
                    let at = file.found(document, Some(label.clone()), file.locator().key(document, &key));
                    self.uses.push((NetworkUse { label, key, link: None, ranges }, at));
                }
                Err(PoolTextFault { what, place }) => {
                    let issue = Issue::new(IssueId::Pool, "", what, "correct it: docs/pools.md has the keys");
                    self.judged.findings.push(file.found(document, None, place).finding(issue));
                }
            }
        }
    }

    /// All that was found, also between networks.
    pub(super) fn done(mut self) -> Judged {
        let (uses, places): (Vec<NetworkUse>, Vec<FoundAt>) = self.uses.into_iter().unzip();
        let compared = compare(&uses).into_iter();
        self.judged.findings.extend(compared.map(|(at, issue)| places[at].clone().finding(issue)));
        let ValidateCounts { networks, host_files, pools, .. } = self.judged.counts;
        if networks + host_files + pools == 0
            && self.judged.unreadable.is_empty()
            && self.judged.findings.is_empty()
        {
            self.judged.unreadable.push(
                "there is nothing to validate: expected NetworkAttachmentDefinitions, CNI configurations, `ipam` \
                 sections of type metes, host files or pools"
                    .to_owned(),
            );
        }
        let place = |one: &ValidateFinding| (one.document, one.place, one.issue.id);
        // Of one file they stand together, and files in the order in which they were given.
        let mut order: Vec<String> = Vec::new();
        for finding in &self.judged.findings {
            if !order.contains(&finding.file) {
                order.push(finding.file.clone());
            }
        }
        self.judged.findings.sort_by_key(|one| (order.iter().position(|file| *file == one.file), place(one)));
        self.judged
    }
}
