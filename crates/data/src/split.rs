mod notes;

use std::ops::Range;

use kiln_feature::Labels;
use kiln_graph::{ItemId, NodeId, SharedArray};

use crate::Result;
use crate::draws::Draws;
use crate::error::require;

/// The labelled items for training, validation and test. The items are nodes ([`NodeId`]) or the graphs of a
/// [`GraphDataset`](crate::GraphDataset) ([`GraphId`](kiln_graph::GraphId)). In built-in and synthetic data sets, no
/// item is in two parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split<I: ItemId = NodeId> {
    /// The items that the model is trained on.
    pub train: SharedArray<I>,
    /// The items whose metrics select the best epoch and the hyperparameters.
    pub val: SharedArray<I>,
    /// The items that the final model is evaluated on.
    pub test: SharedArray<I>,
}

impl<I: ItemId> Split<I> {
    /// Returns a random split of the items `0..n_items`: nodes, or the graphs of a set. The first part gets the share
    /// `shares[0]` of the items and the second `shares[1]`, both rounded; the third gets the rest. Each part is in
    /// ascending order. `docs/rng.md` specifies the random numbers and has an example.
    ///
    /// ```
    /// use kiln_data::Split;
    /// use kiln_graph::GraphId;
    ///
    /// let split = Split::<GraphId>::random(188, [0.8, 0.1], 7)?;
    /// assert_eq!(split.parts().map(|(_, items)| items.len()), [150, 19, 19]);
    /// # Ok::<(), kiln_data::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if a share or the sum of both is not in `0..=1`, or
    /// if there are 2^32 items or more.
    pub fn random(n_items: usize, shares: [f64; 2], seed: u64) -> Result<Self> {
        // Decimal fractions are not exact in binary: the sum of two that add up to 1 may round to slightly more.
        const TOLERANCE: f64 = 1e-9;
        require(n_items <= u32::MAX as usize, "n_items", "at most 2^32 - 1", n_items)?;
        for share in shares {
            require((0.0..=1.0).contains(&share), "a share of the split", "0 to 1", share)?;
        }
        let sum = shares[0] + shares[1];
        require(sum <= 1.0 + TOLERANCE, "the sum of the shares", "at most 1", sum)?;
        let [n_train, n_val] = shares.map(|share| (n_items as f64 * share).round() as usize);
        Ok(Self::draw(&mut Draws::new(seed), n_items, n_train, (n_train + n_val).min(n_items)))
    }

    /// Draws a random split of the items `0..n_items`. The items are shuffled; the first `train_end` are the training
    /// split, those from `train_end` to `val_end` the validation split, and the rest the test split. Each part is then
    /// sorted in ascending order.
    fn draw(draws: &mut Draws, n_items: usize, train_end: usize, val_end: usize) -> Self {
        let mut items: Vec<I> = (0..n_items as u32).map(I::new).collect();
        draws.shuffle(&mut items);
        let part = |range: Range<usize>| {
            let mut part = items[range].to_vec();
            part.sort_unstable();
            SharedArray::from(part)
        };
        Self { train: part(0..train_end), val: part(train_end..val_end), test: part(val_end..n_items) }
    }

    /// Returns the cross-validation split that leaves out the folds with the indices `left_out`. The fold of the first
    /// index is the test split, and the fold of the second index, if any, is the validation split. All folds that are
    /// not left out form the training split.
    ///
    /// # Panics
    /// Panics if `left_out` is empty or contains an index that is not below `folds.len()`.
    pub fn leave_out(folds: &[Vec<I>], left_out: &[usize]) -> Self {
        let rest = folds.iter().enumerate().filter(|(fold, _)| !left_out.contains(fold));
        let train: Vec<I> = rest.flat_map(|(_, items)| items.iter().copied()).collect();
        let val = left_out.get(1).map_or_else(Vec::new, |&fold| folds[fold].clone());
        Self { train: train.into(), val: val.into(), test: folds[left_out[0]].clone().into() }
    }

    /// Splits the labelled items into `n_folds` stratified folds for cross-validation. Any two folds differ by at most
    /// one in their number of items of each class, and in their total number of items. Every labelled item is in
    /// exactly one fold, and items without a class are in no fold. Each fold is in ascending order.
    ///
    /// The items of each class, in ascending order, are shuffled as by [`Split::random`], one class after another
    /// from one stream of random numbers, and dealt to the folds in turn; each class continues at the fold after the
    /// last item of the previous class. `docs/rng.md` specifies the random numbers and has an example.
    ///
    /// # Errors
    /// Returns [`Error::BadParameter`](crate::Error::BadParameter) if there are fewer than 2 folds or more folds than
    /// labelled items, and [`Error::Feature`](crate::Error::Feature) if a label is out of range.
    pub fn folds(labels: &Labels<I>, n_folds: usize, seed: u64) -> Result<Vec<Vec<I>>> {
        labels.validate()?;
        require(n_folds >= 2, "n_folds", "at least 2", n_folds)?;
        let mut by_class = vec![Vec::new(); labels.n_classes()];
        for item in (0..labels.len() as u32).map(I::new) {
            if let Some(class) = labels.get(item) {
                by_class[class as usize].push(item);
            }
        }
        let n_labelled: usize = by_class.iter().map(Vec::len).sum();
        require(n_folds <= n_labelled, "n_folds", "at most one per labelled item", n_folds)?;
        let mut draws = Draws::new(seed);
        by_class.iter_mut().for_each(|items| draws.shuffle(items));
        let mut folds = vec![Vec::with_capacity(n_labelled.div_ceil(n_folds)); n_folds];
        for (position, item) in by_class.into_iter().flatten().enumerate() {
            folds[position % n_folds].push(item);
        }
        folds.iter_mut().for_each(|fold| fold.sort_unstable());
        Ok(folds)
    }

    /// Returns the three parts with their names: `train`, `val` and `test`.
    pub fn parts(&self) -> [(&'static str, &SharedArray<I>); 3] {
        [("train", &self.train), ("val", &self.val), ("test", &self.test)]
    }
}

impl Split {
    /// Draws a random split of the nodes: 60 % training, 20 % validation and 20 % test.
    pub(crate) fn draw_of_nodes(draws: &mut Draws, n_nodes: usize) -> Self {
        Self::draw(draws, n_nodes, n_nodes * 6 / 10, n_nodes * 8 / 10)
    }

    /// Returns the split of the nodes of a type in node ids of the graph. `first` is the first node of the type.
    pub(crate) fn shifted(self, first: u32) -> Self {
        let shift = |nodes: SharedArray<NodeId>| match first {
            0 => nodes,
            _ => nodes.iter().map(|node| NodeId(first + node.0)).collect(),
        };
        Self { train: shift(self.train), val: shift(self.val), test: shift(self.test) }
    }
}

impl<I: ItemId> Default for Split<I> {
    /// Returns a split with three empty parts.
    fn default() -> Self {
        Self { train: SharedArray::default(), val: SharedArray::default(), test: SharedArray::default() }
    }
}
