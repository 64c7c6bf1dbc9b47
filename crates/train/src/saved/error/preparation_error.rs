/// A difference between the preparation of the data and that of the training data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreparationError {
    /// The data was prepared with another step than the training data, which cannot be undone.
    #[error(
        "the data was {step}, but the model's training data was not, or in another order: pass the data as it was loaded"
    )]
    OtherPreparation {
        /// The first step that differs, as text for the message.
        step: &'static str,
    },
    /// The preparation of the training data is unknown, because the model was trained on partitions of an older version
    /// of kiln.
    #[error(
        "the model was trained on partitions that do not record how their data was prepared: predict on these partitions, or \
         train again on partitions of this version of kiln"
    )]
    UnknownPreparation,
    /// The preparation of the data is unknown, because an older version of kiln wrote its partitions.
    #[error(
        "the partitions do not record how their data was prepared: partition the data set again with this version of kiln"
    )]
    UnrecordedPreparation,
}
