use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::Result;

/// A number type that can be summed over ranks.
pub(crate) trait Number: Copy + Debug + Send + Sync + 'static {
    /// The name of the type in messages.
    const NAME: &'static str;

    /// Returns the sum of two numbers; sums of integers wrap.
    fn plus(self, other: Self) -> Self;
}

impl Number for f32 {
    const NAME: &'static str = "f32";

    fn plus(self, other: Self) -> Self {
        self + other
    }
}

impl Number for u64 {
    const NAME: &'static str = "u64";

    fn plus(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
}

/// One rank's reusable buffers for sums over ranks.
///
/// A sum is a reduce-scatter followed by an all-gather. First the ranks exchange all values, and each rank sums its
/// share over all ranks in rank order. Then they exchange the shares. The work per rank does not grow with the number
/// of ranks.
#[derive(Debug)]
pub(crate) struct Sums<T> {
    /// This rank's values. Other ranks drop their references before they contribute their share, so the buffer is
    /// unshared when a sum ends.
    pub(crate) values: Arc<Vec<T>>,
    /// The sums of this rank's share. Other ranks drop their references before they contribute their next values, so
    /// the buffer is unshared when it is written again.
    pub(crate) share: Arc<Vec<T>>,
}

impl<T> Default for Sums<T> {
    fn default() -> Self {
        Self { values: Arc::default(), share: Arc::default() }
    }
}

impl<T: Number> Sums<T> {
    /// Replaces each value of `buf` by its sum over the ranks. After an error, `buf` is unchanged. `exchange` sends a
    /// buffer to all ranks and returns the buffers of all ranks, in rank order.
    pub(crate) fn all_reduce(
        &mut self,
        member: usize,
        n_ranks: usize,
        buf: &mut [T],
        exchange: impl Fn(Arc<Vec<T>>) -> Result<Vec<Arc<Vec<T>>>>,
    ) -> Result<()> {
        // After an error, another rank may still hold a reference to the values. Only then does `make_mut` copy them.
        let values = Arc::make_mut(&mut self.values);
        values.clear();
        values.extend_from_slice(buf);
        let all_values = exchange(Arc::clone(&self.values))?;

        let range = share(buf.len(), member, n_ranks);
        let sums = Arc::make_mut(&mut self.share);
        sums.clear();
        sums.extend_from_slice(&all_values[0][range.clone()]);
        for values in &all_values[1..] {
            for (sum, value) in sums.iter_mut().zip(&values[range.clone()]) {
                *sum = sum.plus(*value);
            }
        }
        drop(all_values);

        let all_sums = exchange(Arc::clone(&self.share))?;
        for (member, sums) in all_sums.iter().enumerate() {
            let range = share(buf.len(), member, n_ranks);
            buf[range].copy_from_slice(sums);
        }
        Ok(())
    }
}

/// Returns the range of the `n_values` values that the rank `member` sums. The ranges of the ranks are in rank order,
/// differ in length by at most 1, and may be empty.
pub(crate) fn share(n_values: usize, member: usize, n_ranks: usize) -> Range<usize> {
    let each = n_values / n_ranks;
    let rest = n_values % n_ranks;
    let start = member * each + member.min(rest);
    start..start + each + usize::from(member < rest)
}
