pub(crate) mod task_weights;

use burn::module::Module;
use burn::store::{ModuleSnapshot, SafetensorsStore};
use burn::tensor::Device;

pub(crate) use kiln_store::sha256 as hash;

use crate::error::{Error, Result, RunError};

/// Serializes a model's parameters as a safetensors file. Equal parameters give identical bytes: tensors are ordered by
/// name, and the only metadata is the format's. The running statistics of normalisation layers are included, up to the
/// last training step.
///
/// # Errors
/// Returns [`RunError::Weights`] with the serializer's error.
pub fn weights_to_bytes<M: Module>(model: &M) -> Result<Vec<u8>> {
    // There is only one metadata entry, because several entries would be written in the random order of a hash table.
    let mut store = SafetensorsStore::from_bytes(None).clear_metadata().metadata("format", "pt");
    unshared(model)
        .save_into(&mut store)
        .map_err(|error| Error::Run(RunError::Weights { reason: error.to_string() }))?;
    store.get_bytes().map_err(|error| Error::Run(RunError::Weights { reason: error.to_string() }))
}

/// Loads the parameters of a safetensors file into the model, all of them or none. Clones of the model keep their
/// running statistics.
///
/// # Errors
/// Returns [`RunError::Weights`] if a parameter is missing, unknown, or has another shape.
pub fn load_weights<M: Module>(model: &mut M, bytes: Vec<u8>) -> Result<()> {
    let mut store = SafetensorsStore::from_bytes(Some(bytes));
    let mut filled = unshared(model);
    let loaded = filled
        .load_from(&mut store)
        .map_err(|error| Error::Run(RunError::Weights { reason: error.to_string() }))?;
    if !loaded.unused.is_empty() {
        return Err(Error::Run(RunError::Weights {
            reason: format!("the model has no parameter {}", loaded.unused.join(", ")),
        }));
    }
    *model = filled;
    Ok(())
}

/// Returns a copy of a model that shares no tensors with it.
///
/// A clone shares the running statistics, so loading into it would also change the original. Burn also defers their
/// last update until they are read, when it would overwrite the loaded values.
fn unshared<M: Module>(model: &M) -> M {
    let copy = model.valid();
    if model.devices().iter().any(Device::is_autodiff) { copy.train() } else { copy }
}
