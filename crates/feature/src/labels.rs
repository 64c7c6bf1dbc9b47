use std::marker::PhantomData;

use kiln_graph::{ItemId, NodeId, SharedArray};

use crate::{Error, Result, TargetsError};

/// The class labels of nodes, or of the graphs of a set. Clones share the array.
///
/// A label is a class below `n_classes`, or negative for an unlabelled item. Labels of a mapped file are checked when
/// they are read.
#[derive(Debug, Clone)]
pub struct Labels<I = NodeId> {
    classes: SharedArray<i32>,
    n_classes: usize,
    items: PhantomData<I>,
}

impl<I: ItemId> Labels<I> {
    /// Creates labels from one class per item, indexed by the item's id; any negative number means unlabelled.
    ///
    /// Runs in constant time, so that mapped files need not be read: [`Labels::validate`] checks all classes, and
    /// [`Labels::gather`] checks the classes that it reads.
    pub fn new(classes: impl Into<SharedArray<i32>>, n_classes: usize) -> Self {
        Self { classes: classes.into(), n_classes, items: PhantomData }
    }

    /// Reads and checks all labels.
    ///
    /// # Errors
    /// Returns [`TargetsError::LabelOutOfRange`] for the first label that is not below [`Labels::n_classes`].
    pub fn validate(&self) -> Result<()> {
        match self
            .classes
            .iter()
            .position(|&label: &i32| usize::try_from(label).is_ok_and(|class| class >= self.n_classes))
        {
            Some(position) => Err(self.out_of_range(position as u32)),
            None => Ok(()),
        }
    }

    fn out_of_range(&self, id: u32) -> Error {
        let label = self.classes[id as usize];
        let error = Error::Targets(TargetsError::LabelOutOfRange {
            item: I::NAME,
            id,
            label,
            n_classes: self.n_classes,
        });
        error.in_file(self.classes.path())
    }

    /// Returns the number of classes.
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// Returns the number of items, labelled or not.
    pub fn len(&self) -> usize {
        self.classes.len()
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// Returns an item's class, or `None` if the item is unlabelled, its class does not exist or its id is out of
    /// range.
    pub fn get(&self, item: I) -> Option<u32> {
        let class = u32::try_from(*self.classes.get(item.get() as usize)?).ok()?;
        ((class as usize) < self.n_classes).then_some(class)
    }

    /// Returns the labels of all items, indexed by the item's id; negative means unlabelled.
    pub fn as_slice(&self) -> &[i32] {
        &self.classes
    }

    /// Overwrites `out` with the classes of `items`, in their order. Items may repeat.
    ///
    /// The classes are never negative; they have a signed type, because integer tensors are signed.
    ///
    /// # Errors
    /// Returns [`TargetsError::NoSuchItem`], [`TargetsError::Unlabelled`] or [`TargetsError::LabelOutOfRange`] for the
    /// first item whose id is out of range, that has no class, or whose class does not exist. The content of `out` is then
    /// unspecified.
    pub fn gather(&self, items: &[I], out: &mut Vec<i32>) -> Result<()> {
        out.clear();
        out.reserve(items.len());
        for &item in items {
            let id = item.get();
            match self.classes.get(id as usize) {
                None => {
                    return Err(TargetsError::NoSuchItem { item: I::NAME, id, n_labels: self.len() }.into());
                }
                Some(..0) => return Err(TargetsError::Unlabelled { item: I::NAME, id }.into()),
                Some(&label) if label as usize >= self.n_classes => return Err(self.out_of_range(id)),
                Some(&label) => out.push(label),
            }
        }
        Ok(())
    }
}
