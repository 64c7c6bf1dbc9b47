use burn::module::Module;
use burn::store::{ModuleSnapshot, SafetensorsStore};
use burn::tensor::Device;

pub(crate) use kiln_store::sha256 as hash;

use crate::error::{Error, Result};

/// A model's parameters as the bytes of a safetensors file, the same bytes for the same parameters:
/// tensors in the order of their names, and no metadata but the format's. The running statistics of
/// normalised layers are among them, the last training step included.
///
/// # Errors
/// [`Error::Weights`] with what the store said.
pub fn weights_to_bytes<M: Module>(model: &M) -> Result<Vec<u8>> {
    // One entry only: the file lists metadata in the order of a hash table.
    let mut store = SafetensorsStore::from_bytes(None).clear_metadata().metadata("format", "pt");
    unshared(model).save_into(&mut store).map_err(|error| Error::Weights { reason: error.to_string() })?;
    store.get_bytes().map_err(|error| Error::Weights { reason: error.to_string() })
}

/// Puts the parameters of a safetensors file's bytes into the model, all of them or none. Running
/// statistics are then this model's alone: clones that were made of it before keep theirs.
///
/// # Errors
/// [`Error::Weights`] when a parameter is missing, is one too many, or has another shape.
pub fn load_weights<M: Module>(model: &mut M, bytes: Vec<u8>) -> Result<()> {
    let mut store = SafetensorsStore::from_bytes(Some(bytes));
    let mut filled = unshared(model);
    let loaded =
        filled.load_from(&mut store).map_err(|error| Error::Weights { reason: error.to_string() })?;
    if !loaded.unused.is_empty() {
        return Err(Error::Weights { reason: format!("the model has no {}", loaded.unused.join(", ")) });
    }
    *model = filled;
    Ok(())
}

/// A copy of a model that shares nothing with it.
///
/// A clone shares the running statistics, so that what is loaded into it would be in both; and Burn holds
/// their last update back until it is asked for it, when it would overwrite what was loaded.
fn unshared<M: Module>(model: &M) -> M {
    let copy = model.valid();
    if model.devices().iter().any(Device::is_autodiff) { copy.train() } else { copy }
}
