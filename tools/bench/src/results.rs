//! The measured values, by section and name.

use crate::options::Section;
use crate::samples::{Sample, Storm, median};

/// Rows in the order in which they were measured. A name stands for one row of a section: marks and readers of
/// the JSON find it by that.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) section: Section,
    pub(crate) name: String,
    /// The text for people.
    pub(crate) what: String,
    pub(crate) data: Data,
}

#[derive(Debug)]
pub(crate) enum Data {
    /// Single processes (or requests), and the row of this section whose median is their measure.
    Times(Sample, Option<String>),
    /// The same storm in each run.
    Storm(Vec<Storm>),
    /// The same number in each run; none where this machine lacks what the measurement needs.
    Number(Vec<f64>, &'static str),
}

impl Results {
    pub(crate) fn add(
        &mut self,
        section: Section,
        name: impl Into<String>,
        what: impl Into<String>,
        data: Data,
    ) {
        let name = name.into();
        assert!(self.row(section, &name).is_none(), "{section:?} has a row {name} already");
        self.rows.push(Row { section, name, what: what.into(), data });
    }

    /// Single processes, and the name of the row that is their measure.
    pub(crate) fn add_times(
        &mut self,
        section: Section,
        name: impl Into<String>,
        what: impl Into<String>,
        sample: Sample,
        base: &str,
    ) {
        self.add(section, name, what, Data::Times(sample, Some(base.to_owned())));
    }

    pub(crate) fn sample(&self, section: Section, name: &str) -> Option<&Sample> {
        match &self.row(section, name)?.data {
            Data::Times(sample, _) => Some(sample),
            _ => None,
        }
    }

    pub(crate) fn storm(&self, section: Section, name: &str) -> Option<&Storm> {
        match &self.row(section, name)?.data {
            Data::Storm(storms) => storms.first(),
            _ => None,
        }
    }

    pub(crate) fn number(&self, section: Section, name: &str) -> Option<f64> {
        match &self.row(section, name)?.data {
            Data::Number(values, _) if !values.is_empty() => Some(median(values.iter().copied())),
            _ => None,
        }
    }

    /// A value over all rows of a section; none if the section was not measured.
    pub(crate) fn failures(&self, section: Section) -> Option<usize> {
        let mut rows = self.rows.iter().filter(|row| row.section == section).peekable();
        rows.peek()?;
        Some(rows.map(|row| row.data.failures()).sum())
    }

    /// All runs as one: times together, storms and numbers side by side.
    pub(crate) fn pool(runs: Vec<Self>) -> Self {
        let mut pooled = Self::default();
        for row in runs.into_iter().flat_map(|run| run.rows) {
            let same = |old: &&mut Row| old.section == row.section && old.name == row.name;
            match pooled.rows.iter_mut().find(same) {
                Some(old) => old.data.pool(row.data),
                None => pooled.rows.push(row),
            }
        }
        pooled
    }

    fn row(&self, section: Section, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.section == section && row.name == name)
    }
}

/// The end of the names and texts of some rows, which tells them from those of another setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suffix {
    pub(crate) name: String,
    pub(crate) what: String,
}

impl Data {
    pub(crate) fn failures(&self) -> usize {
        match self {
            Data::Times(sample, _) => sample.failures,
            Data::Storm(storms) => storms.iter().map(|storm| storm.each.failures).sum(),
            Data::Number(..) => 0,
        }
    }

    /// The times of all processes of the row.
    pub(crate) fn times(&self) -> Option<Sample> {
        match self {
            Data::Times(sample, _) => Some(sample.clone()),
            Data::Storm(storms) => {
                let mut all = Sample::default();
                storms.iter().for_each(|storm| all.pool(storm.each.clone()));
                Some(all)
            }
            Data::Number(..) => None,
        }
    }

    fn pool(&mut self, other: Self) {
        match (self, other) {
            (Data::Times(mine, _), Data::Times(other, _)) => mine.pool(other),
            (Data::Storm(mine), Data::Storm(other)) => mine.extend(other),
            (Data::Number(mine, _), Data::Number(other, _)) => mine.extend(other),
            (mine, other) => panic!("one row is of one kind: {mine:?}, {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::sample_of_ms;

    fn run(ms: u64, bytes: &[f64]) -> Results {
        let mut results = Results::default();
        results.add(Section::Single, "add", "ADD", Data::Times(sample_of_ms([ms]), None));
        let each = sample_of_ms([ms]).with_failures(1);
        let storm = Storm { wall_s: 2.0, floor_s: 1.0, each };
        results.add(Section::Storms, "add", "ADDs", Data::Storm(vec![storm]));
        results.add(Section::Size, "bytes", "bytes", Data::Number(bytes.to_vec(), "B"));
        results
    }

    #[test]
    fn runs_are_pooled_row_by_row() {
        let pooled = Results::pool(vec![run(1, &[10.0]), run(3, &[]), run(2, &[30.0])]);
        assert_eq!(pooled.rows.len(), 3);
        assert_eq!(pooled.sample(Section::Single, "add").map(|sample| sample.percentile(50)), Some(2.0));
        assert_eq!(pooled.number(Section::Size, "bytes"), Some(20.0));
        assert_eq!(pooled.failures(Section::Storms), Some(3));
        assert_eq!(pooled.failures(Section::Tls), None);
        assert_eq!(pooled.rows[1].data.times().map(|times| times.count()), Some(3));
    }
}
