use super::NumberStats;

/// The count, the mean, the sum of squared differences from the mean (Welford 1962) and the bounds of numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    n: f64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Moments {
    pub(crate) const EMPTY: Self =
        Self { n: 0.0, mean: 0.0, squares: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY };

    pub(crate) fn add(&mut self, value: f64) {
        self.n += 1.0;
        let difference = value - self.mean;
        self.mean += difference / self.n;
        self.squares += difference * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns true if a number does not extend the bounds.
    pub(crate) fn contains(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// Returns the statistics; `None` without numbers.
    pub(crate) fn stats(&self) -> Option<NumberStats> {
        let Self { n, mean, squares, min, max } = *self;
        (n > 0.0).then(|| NumberStats { min, max, mean, std: (squares / n).sqrt() })
    }
}
