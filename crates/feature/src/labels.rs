use std::marker::PhantomData;

use kiln_graph::{ItemId, NodeId, SharedArray};

use crate::{Error, Result};

/// The class of each item, or none. Items are nodes, or the graphs of a set. Cloning shares the array.
///
/// Every label is negative (unlabelled) or below `n_classes`; of a mapped file this is checked where labels
/// are read.
#[derive(Debug, Clone)]
pub struct Labels<I = NodeId> {
    classes: SharedArray<i32>,
    n_classes: usize,
    items: PhantomData<I>,
}

impl<I: ItemId> Labels<I> {
    /// Labels from one class an item, indexed by the item's id; any negative number means that the item has
    /// none. Runs in constant time, as a mapped file must: [`Labels::validate`] reads all classes, and
    /// [`Labels::gather`] checks those that it meets.
    pub fn new(classes: impl Into<SharedArray<i32>>, n_classes: usize) -> Self {
        Self { classes: classes.into(), n_classes, items: PhantomData }
    }

    /// Reads all labels once.
    ///
    /// # Errors
    /// [`Error::LabelOutOfRange`] for the first label that is not below [`Labels::n_classes`].
    pub fn validate(&self) -> Result<()> {
        let is_bad = |&label: &i32| usize::try_from(label).is_ok_and(|class| class >= self.n_classes);
        match self.classes.iter().position(is_bad) {
            Some(position) => Err(self.out_of_range(position as u32)),
            None => Ok(()),
        }
    }

    fn out_of_range(&self, id: u32) -> Error {
        let label = self.classes[id as usize];
        let error = Error::LabelOutOfRange { item: I::NAME, id, label, n_classes: self.n_classes };
        error.in_file(self.classes.path())
    }

    /// Number of classes.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// Number of items, labelled or not.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// An item's class; `None` when it has none, or one that does not exist, or is not an item of these labels.
    pub fn get(&self, item: I) -> Option<u32> {
        let class = u32::try_from(*self.classes.get(item.get() as usize)?).ok()?;
        ((class as usize) < self.n_classes).then_some(class)
    }

    /// The array that the labels were made from, indexed by the item's id; negative means unlabelled.
    pub fn as_slice(&self) -> &[i32] {
        &self.classes
    }

    /// Overwrites `out` with the classes of `items`, in their order; repeated items repeat their class.
    ///
    /// The classes are never negative; they are signed because integer tensors are.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`] or [`Error::Unlabelled`] for the first item without a class, and
    /// [`Error::LabelOutOfRange`] for one with a class that does not exist. What `out` holds then is
    /// unspecified.
    pub fn gather(&self, items: &[I], out: &mut Vec<i32>) -> Result<()> {
        out.clear();
        out.reserve(items.len());
        for &item in items {
            let id = item.get();
            match self.classes.get(id as usize) {
                None => return Err(Error::NoSuchItem { item: I::NAME, id, n_labels: self.len() }),
                Some(..0) => return Err(Error::Unlabelled { item: I::NAME, id }),
                Some(&label) if label as usize >= self.n_classes => return Err(self.out_of_range(id)),
                Some(&label) => out.push(label),
            }
        }
        Ok(())
    }
}
