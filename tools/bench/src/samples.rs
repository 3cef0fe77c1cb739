//! Many times of one kind of process, and their quantiles.

use std::time::Duration;

use support::Outcome;

/// The times of one kind of process, and how many of them failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    times: Vec<Duration>,
    pub(crate) failures: usize,
}

impl Sample {
    pub(crate) fn of(outcomes: &[Outcome]) -> Self {
        let mut sample = Self::default();
        outcomes.iter().for_each(|outcome| sample.take(outcome));
        sample
    }

    pub(crate) fn take(&mut self, outcome: &Outcome) {
        self.failures += usize::from(!outcome.succeeded());
        self.add(outcome.elapsed);
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    pub(crate) fn pool(&mut self, other: Self) {
        self.times.extend(other.times);
        self.failures += other.failures;
    }

    pub(crate) fn count(&self) -> usize {
        self.times.len()
    }

    pub(crate) fn sorted_ms(&self) -> Vec<f64> {
        let mut times = self.times.clone();
        times.sort();
        times.iter().map(|time| time.as_secs_f64() * 1000.0).collect()
    }

    /// In milliseconds; not a number without times.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        percentile(&self.sorted_ms(), percent)
    }

    pub(crate) fn percentiles<const N: usize>(&self, percents: [usize; N]) -> [f64; N] {
        let sorted = self.sorted_ms();
        percents.map(|percent| percentile(&sorted, percent))
    }
}

/// The smallest of `sorted` that is not exceeded by `percent` of them; 0 gives the least, 100 the greatest.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// The middle value, or the mean of the middle two.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// A crowd of processes at once.
#[derive(Clone, Debug)]
pub(crate) struct Storm {
    pub(crate) wall_s: f64,
    /// The mean of the two floor storms around it, for as many processes.
    pub(crate) floor_s: f64,
    pub(crate) each: Sample,
}

impl Storm {
    pub(crate) fn to_floor(&self) -> f64 {
        self.wall_s / self.floor_s
    }
}

/// Counts are far below what a double holds exactly.
pub(crate) fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

#[cfg(test)]
impl Sample {
    pub(crate) fn with_failures(self, failures: usize) -> Self {
        Self { failures, ..self }
    }
}

#[cfg(test)]
pub(crate) fn sample_of_ms(times_ms: impl IntoIterator<Item = u64>) -> Sample {
    let mut sample = Sample::default();
    times_ms.into_iter().for_each(|ms| sample.add(Duration::from_millis(ms)));
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let sample = sample_of_ms((1..=200).rev());
        assert_eq!(sample.percentiles([0, 1, 50, 95, 99, 100]), [1.0, 2.0, 100.0, 190.0, 198.0, 200.0]);
        let few = sample_of_ms([7, 5, 6]);
        assert_eq!(few.percentiles([0, 33, 34, 50, 99, 100]), [5.0, 5.0, 6.0, 6.0, 7.0, 7.0]);
        assert!(Sample::default().percentile(50).is_nan());
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn pooled_samples_are_one() {
        let mut sample = sample_of_ms([1, 2]).with_failures(1);
        sample.pool(sample_of_ms([3]).with_failures(2));
        assert_eq!((sample.count(), sample.failures, sample.percentile(100)), (3, 3, 3.0));
    }
}
