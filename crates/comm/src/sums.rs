use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use crate::Result;

/// What can be summed over ranks.
pub(crate) trait Number: Copy + Debug + Send + Sync + 'static {
    /// For messages.
    const NAME: &'static str;

    /// The sum of both; of counts, without what passes 2^64.
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

/// One rank's buffers for sums over ranks, kept from one sum to the next.
///
/// A sum takes two exchanges: all values, of which each rank sums one share over all ranks, in the order
/// of the ranks; then the shares. The work of a rank does not grow with their number.
#[derive(Debug)]
pub(crate) struct Sums<T> {
    /// This rank's values. Nobody else holds them when a sum is over: each rank lets go of them before it
    /// gives its share.
    pub(crate) values: Arc<Vec<T>>,
    /// The sums of this rank's share. Nobody else holds them when they are written the next time: each
    /// rank lets go of them before it gives its next values.
    pub(crate) share: Arc<Vec<T>>,
}

impl<T> Default for Sums<T> {
    fn default() -> Self {
        Self { values: Arc::default(), share: Arc::default() }
    }
}

impl<T: Number> Sums<T> {
    /// Replaces `buf` by its sum over the ranks; on an error leaves it as it is. `exchange` gives every
    /// rank what all have brought.
    pub(crate) fn all_reduce(
        &mut self,
        member: usize,
        n_ranks: usize,
        buf: &mut [T],
        exchange: impl Fn(Arc<Vec<T>>) -> Result<Vec<Arc<Vec<T>>>>,
    ) -> Result<()> {
        // After an error somebody may hold on to them; then, and only then, this makes new ones.
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

/// The part of `n_values` that one of the ranks sums. Parts are in the order of the ranks, differ in length
/// by 1 at most, and may be empty.
pub(crate) fn share(n_values: usize, member: usize, n_ranks: usize) -> Range<usize> {
    let (each, rest) = (n_values / n_ranks, n_values % n_ranks);
    let start = member * each + member.min(rest);
    start..start + each + usize::from(member < rest)
}
