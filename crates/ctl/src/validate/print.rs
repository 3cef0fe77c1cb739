//! Prints the findings: for people, for programs, and as SARIF, which code hosts show beside the lines. Pure.

use serde_json::{Value, json};

use super::judge::{FoundAt, Judged, ValidateCounts, ValidateFinding};
use crate::table::{many, printable};
use metes_config::validate::{IssueId, Severity};

pub(super) fn text(judged: &Judged) -> String {
    judged.findings.iter().map(finding_text).collect()
}

/// One line with the numbers of the files, of the things in them, and of the findings.
pub(super) fn summary(judged: &Judged) -> String {
    let ValidateCounts { files, networks, ignored, host_files, pools } = judged.counts;
    let ignored = if ignored == 0 { String::new() } else { format!(" ({ignored} without metes)") };
    let of = |severity| judged.findings.iter().filter(|one| one.issue.id.severity() == severity).count();
    format!(
        "{}: {}{ignored}, {}, {}; {}, {}, {}",
        many(files, "file"),
        many(networks, "network"),
        many(host_files, "host file"),
        many(pools, "pool"),
        many(of(Severity::Error), "error"),
        many(of(Severity::Warning), "warning"),
        many(of(Severity::Note), "note"),
    )
}

fn finding_text(finding: &ValidateFinding) -> String {
    let ValidateFinding { at: FoundAt { file, document, object, place }, issue } = finding;
    let place = match place {
        Some(place) => format!("{}:{}", place.line, place.column),
        None => format!("document {document}"),
    };
    let object = object.as_ref().map(|object| format!(" ({object})")).unwrap_or_default();
    let lines = [
        format!("{file}:{place}: {} {}{object}", issue.id.severity(), issue.id),
        format!("  {}", issue.what),
        format!("  to do: {}", issue.remedy),
    ];
    lines.iter().map(|line| format!("{}\n", printable(line))).collect()
}

pub(super) fn answer(judged: &Judged) -> Value {
    let ValidateCounts { files, networks, ignored, host_files, pools } = judged.counts;
    let finding = |one: &ValidateFinding| {
        json!({
            "id": one.issue.id.name(),
            "severity": one.issue.id.severity().name(),
            "code": one.issue.code,
            "file": one.at.file,
            "document": one.at.document,
            "object": one.at.object,
            "line": one.at.place.map(|place| place.line),
            "column": one.at.place.map(|place| place.column),
            "key": Some(&one.issue.key).filter(|key| !key.is_empty()),
            "what": one.issue.what,
            "remedy": one.issue.remedy,
        })
    };
    json!({
        "findings": judged.findings.iter().map(finding).collect::<Vec<_>>(),
        "counts": {"files": files, "networks": networks, "ignored": ignored, "host_files": host_files, "pools": pools},
        "unreadable": judged.unreadable,
    })
}

/// The log of one run, in version 2.1.0.
pub(super) fn sarif(judged: &Judged) -> Value {
    let rule = |id: IssueId| {
        json!({
            "id": id.name(),
            "shortDescription": {"text": id.meaning()},
            "defaultConfiguration": {"level": id.severity().name()},
        })
    };
    let result = |one: &ValidateFinding| {
        let mut physical = json!({"artifactLocation": {"uri": one.at.file}});
        if let Some(place) = one.at.place {
            physical["region"] = json!({"startLine": place.line, "startColumn": place.column});
        }
        let mut location = json!({"physicalLocation": physical});
        if let Some(object) = &one.at.object {
            location["logicalLocations"] = json!([{"fullyQualifiedName": object}]);
        }
        json!({
            "ruleId": one.issue.id.name(),
            "level": one.issue.id.severity().name(),
            "message": {"text": format!("{}; to do: {}", one.issue.what, one.issue.remedy)},
            "locations": [location],
        })
    };
    let notification = |why: &String| json!({"level": "error", "message": {"text": why}});
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "metes validate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": IssueId::ALL.map(rule),
            }},
            "invocations": [{
                "executionSuccessful": judged.unreadable.is_empty(),
                "toolExecutionNotifications": judged.unreadable.iter().map(notification).collect::<Vec<_>>(),
            }],
            "results": judged.findings.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}
