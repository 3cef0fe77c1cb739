//! A forecast of the time at which addresses will have run out: a straight line through the held addresses of the last
//! hour. Pure.

use std::collections::VecDeque;
use std::time::Duration;

/// Older samples do not count.
const WINDOW: Duration = Duration::from_secs(3600);
/// A sample is taken if the last one is at least so old, so that frequent passes cost no memory.
const PAUSE: Duration = Duration::from_secs(30);
/// Less time than this says nothing.
const SPAN_MIN: Duration = Duration::from_secs(600);
/// Fewer samples than this say nothing.
const SAMPLES_MIN: usize = 5;

/// The numbers of addresses at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fill {
    /// The addresses that can be given, held or not.
    pub size: u128,
    /// Those that are held.
    pub held: usize,
    /// Those that are free.
    pub free: u128,
}

/// The numbers of held addresses in the last hour. Moments are the time since one start.
#[derive(Debug, Clone, Default)]
pub struct Trend {
    samples: VecDeque<(Duration, usize)>,
    last: Fill,
}

impl Trend {
    /// Takes the numbers at a moment, which comes after those taken before. If the size changes, all earlier numbers
    /// say nothing.
    pub fn take(&mut self, at: Duration, fill: Fill) {
        if fill.size != self.last.size {
            self.samples.clear();
        }
        self.last = fill;
        while self.samples.front().is_some_and(|(then, _)| *then + WINDOW < at) {
            self.samples.pop_front();
        }
        if self.samples.back().is_none_or(|(then, _)| *then + PAUSE <= at) {
            self.samples.push_back((at, fill.held));
        }
    }

    /// The seconds until nothing will be free: 0 if nothing is free now; none if less and less is held, if about the
    /// same is held, or if too little is known.
    #[must_use]
    pub fn full_in_seconds(&self) -> Option<f64> {
        if self.last.size > 0 && self.last.free == 0 {
            return Some(0.0);
        }
        let span = self.samples.back()?.0 - self.samples.front()?.0;
        let slope = (self.samples.len() >= SAMPLES_MIN && span >= SPAN_MIN).then(|| slope(&self.samples))?;
        // Less than one address in all that time is no growth.
        (slope * span.as_secs_f64() >= 1.0).then(|| self.last.free as f64 / slope)
    }
}

/// The slope of the line of least squares, per second. There are two different moments at least.
fn slope(samples: &VecDeque<(Duration, usize)>) -> f64 {
    let count = samples.len() as f64;
    let points = samples.iter().map(|(at, held)| (at.as_secs_f64(), *held as f64));
    let (sum_x, sum_y) = points.clone().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (mean_x, mean_y) = (sum_x / count, sum_y / count);
    let (of_both, of_x) = points.fold((0.0, 0.0), |(of_both, of_x), (x, y)| {
        (of_both + (x - mean_x) * (y - mean_y), of_x + (x - mean_x) * (x - mean_x))
    });
    of_both / of_x
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn fill(size: u128, held: usize) -> Fill {
        Fill { size, held, free: size - held as u128 }
    }

    /// After passes that find so much held of a thousand addresses, one each minute.
    fn after(held: impl IntoIterator<Item = usize>) -> Option<f64> {
        let mut trend = Trend::default();
        let fills = held.into_iter().map(|held| fill(1000, held));
        (0..).zip(fills).for_each(|(minute, fill)| trend.take(MINUTE * minute, fill));
        trend.full_in_seconds()
    }

    #[track_caller]
    fn assert_about(found: Option<f64>, expected: f64) {
        let is_about = found.is_some_and(|found| (found / expected - 1.0).abs() < 1e-9);
        assert!(is_about, "{found:?} and not {expected}");
    }

    #[test]
    fn a_line_through_what_grows_says_when_it_is_full() {
        // Two each minute, and 960 are free.
        assert_about(after((0..=20).map(|minute| minute * 2)), 960.0 / 2.0 * 60.0);
        // By hand: x = 0, 5, 10, 15, 20 minutes, y = 10, 14, 10, 22, 19. Slope 26 / 50 for each minute.
        let mut trend = Trend::default();
        for (at, held) in [(0, 10), (5, 14), (10, 10), (15, 22), (20, 19)] {
            trend.take(MINUTE * at, fill(1000, held));
        }
        assert_about(trend.full_in_seconds(), 981.0 / (26.0 / 50.0) * 60.0);
    }

    #[test]
    fn what_does_not_grow_is_never_full() {
        assert_eq!(after(vec![7; 60]), None);
        assert_eq!(after((0..60).map(|minute| 500 - minute)), None);
        // Something comes and goes.
        assert_eq!(after((0..61).map(|minute| 100 + minute % 2)), None);
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(Trend::default().full_in_seconds(), None);
        assert_eq!(after(0..10), None);
        assert!(after(0..11).is_some());
        // Time enough, and too few samples.
        let mut trend = Trend::default();
        for (at, held) in [(0, 0), (20, 20), (40, 40), (59, 59)] {
            trend.take(MINUTE * at, fill(1000, held));
            assert_eq!(trend.full_in_seconds(), None);
        }
    }

    #[test]
    fn what_is_full_is_full_now_whatever_was_before() {
        assert_eq!(after([1000]), Some(0.0));
        assert_eq!(after(vec![1000; 60]), Some(0.0));
        assert_eq!(after((0..60).map(|_| 999).chain([1000])), Some(0.0));
        // A pool that gives nothing is not full.
        let mut trend = Trend::default();
        trend.take(MINUTE, Fill { size: 0, held: 0, free: 0 });
        assert_eq!(trend.full_in_seconds(), None);
    }

    #[test]
    fn only_the_last_hour_counts_and_only_since_the_size_changed() {
        // A quick start, and then an hour of rest.
        assert_eq!(after((0..10).map(|minute| minute * 50).chain(vec![500; 61])), None);
        let mut trend = Trend::default();
        (0..=30).for_each(|minute| trend.take(MINUTE * minute, fill(1000, minute as usize)));
        assert!(trend.full_in_seconds().is_some());
        trend.take(MINUTE * 31, fill(2000, 531));
        assert_eq!(trend.full_in_seconds(), None);
    }

    #[test]
    fn frequent_passes_keep_few_samples() {
        let mut trend = Trend::default();
        for second in 0..7200 {
            trend.take(Duration::from_secs(second), fill(1 << 64, second as usize));
        }
        assert!(trend.samples.len() <= 121, "{}", trend.samples.len());
        assert_about(trend.full_in_seconds(), 18_446_744_073_709_544_417.0);
    }
}
