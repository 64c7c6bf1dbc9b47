//! Files with the weights of a model and of the embeddings of its task.

use std::collections::HashMap;
use std::sync::Arc;

use burn::module::Module;
use bytemuck::{cast_slice, pod_collect_to_vec};
use kiln_store::Hasher;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};

use crate::error::{Error, Result, RunError};
use crate::step::embedding::NodeEmbedding;
use crate::step::embedding::node_keys::NodeKeys;
use crate::step::weights::{load_weights, weights_to_bytes};

/// Serializes the parameters of a model, like [`weights_to_bytes`], and of tables. Table `k` has further tensors in the
/// file: `embeddings.k.weight`, `[n_nodes, dim]`; `embeddings.k.is_learned`, `[n_nodes]` of bytes, which is 1 for each row
/// that was in a step; and, if the nodes have names, `embeddings.k.keys`, `[n_nodes, 16]` of bytes.
pub(crate) fn to_bytes<M: Module>(model: &M, tables: &[Arc<NodeEmbedding>]) -> Result<Vec<u8>> {
    let of_model = weights_to_bytes(model)?;
    if tables.is_empty() {
        return Ok(of_model);
    }
    let of_model = SafeTensors::deserialize(&of_model).map_err(|error| invalid(&error))?;
    let learned: Vec<_> = tables.iter().map(|table| table.learned()).collect();
    let mut tensors = of_model.tensors();
    if let Some((name, _)) = tensors.iter().find(|(name, _)| name.starts_with(PREFIX)) {
        let reason = format!("the parameter `{name}` of the model has the name of an embedding: rename it");
        return Err(Error::Run(RunError::Weights { reason }));
    }
    for (position, (table, (values, is_learned))) in tables.iter().zip(&learned).enumerate() {
        let [weight, flags, keys] = names(position);
        let mut add = |name: String, dtype, shape: &[usize], bytes| {
            let view = TensorView::new(dtype, shape.to_vec(), bytes).map_err(|error| invalid(&error))?;
            tensors.push((name, view));
            Ok::<_, Error>(())
        };
        let n_nodes = table.n_nodes();
        add(weight, Dtype::F32, &[n_nodes, table.dim()], cast_slice(values))?;
        add(flags, Dtype::U8, &[n_nodes], is_learned)?;
        if let Some(of_nodes) = table.keys() {
            add(keys, Dtype::U8, &[n_nodes, NodeKeys::N_BYTES], of_nodes.as_bytes())?;
        }
    }
    pack(tensors)
}

/// Loads the file of [`to_bytes`] into a model and tables, all of them or none.
///
/// # Errors
/// Returns [`RunError::Weights`] if a parameter or a table is missing, unknown, or has another shape, or if a table is
/// for other nodes.
pub(crate) fn load<M: Module>(
    model: &mut M,
    tables: &mut [Arc<NodeEmbedding>],
    bytes: Vec<u8>,
) -> Result<()> {
    let shapes: Vec<_> = tables.iter().map(|table| [table.n_nodes(), table.dim()]).collect();
    let read = read(model, &shapes, bytes)?;
    // Files of nodes without names have no keys.
    let mut pairs = tables.iter().zip(&read);
    if let Some(position) =
        pairs.position(|(table, read)| table.keys().zip(read.keys()).is_some_and(|(one, other)| one != other))
    {
        let [_, _, keys] = names(position);
        return Err(Error::Run(RunError::Weights {
            reason: format!("`{keys}` are the keys of other nodes"),
        }));
    }
    for (table, read) in tables.iter_mut().zip(read) {
        Arc::make_mut(table).set_learned(read);
    }
    Ok(())
}

/// Loads the parameters of a model from the file of [`to_bytes`], and returns the tables in it, which have the shapes
/// `[n_nodes, dim]`.
///
/// # Errors
/// Returns [`RunError::Weights`] if a parameter or a table is missing, unknown, or has another shape. The model is then
/// unchanged.
pub(crate) fn read<M: Module>(
    model: &mut M,
    shapes: &[[usize; 2]],
    bytes: Vec<u8>,
) -> Result<Vec<NodeEmbedding>> {
    if shapes.is_empty() {
        load_weights(model, bytes)?;
        return Ok(Vec::new());
    }
    let file = SafeTensors::deserialize(&bytes).map_err(|error| invalid(&error))?;
    let tables = shapes
        .iter()
        .enumerate()
        .map(|(position, &[n_nodes, dim]): (usize, &[usize; 2])| {
            let [weight, flags, keys] = names(position);
            let rows = tensor(&file, &weight, Dtype::F32, &[n_nodes, dim])?;
            let is_learned = tensor(&file, &flags, Dtype::U8, &[n_nodes])?;
            let keys = match file.tensor(&keys) {
                Ok(_) => {
                    let bytes = tensor(&file, &keys, Dtype::U8, &[n_nodes, NodeKeys::N_BYTES])?;
                    Some(NodeKeys::from_bytes(bytes))
                }
                Err(_) => None,
            };
            Ok(NodeEmbedding::of_rows(dim, pod_collect_to_vec(rows), is_learned, keys))
        })
        .collect::<Result<_>>()?;
    let of_tables: Vec<String> = (0..shapes.len()).flat_map(names).collect();
    let of_model = file.tensors().into_iter().filter(|(name, _)| !of_tables.contains(name)).collect();
    load_weights(model, pack(of_model)?)?;
    Ok(tables)
}

/// Returns the hash of a model and of tables, by which ranks compare them.
pub(crate) fn hash_of<M: Module>(model: &M, tables: &[Arc<NodeEmbedding>]) -> Result<String> {
    let mut hasher = Hasher::default();
    hasher.update(weights_to_bytes(model)?);
    for table in tables {
        let (values, is_learned) = table.learned();
        hasher.update(cast_slice::<f32, u8>(values));
        hasher.update(is_learned);
    }
    Ok(hasher.finish())
}

/// Serializes the moments and the number of steps of tables, in the byte order of the machine's checkpoints: little-endian.
pub(crate) fn moments_to_bytes(tables: &[Arc<NodeEmbedding>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for table in tables {
        let (n_steps, moments) = table.moments();
        bytes.extend((n_steps as u64).to_le_bytes());
        moments.iter().for_each(|values| bytes.extend_from_slice(cast_slice(values)));
    }
    bytes
}

/// Loads the output of [`moments_to_bytes`].
///
/// # Errors
/// Returns [`RunError::Weights`] if the moments are those of other tables.
pub(crate) fn load_moments(tables: &mut [Arc<NodeEmbedding>], mut bytes: &[u8]) -> Result<()> {
    let other =
        || Error::Run(RunError::Weights { reason: "the moments are those of other embeddings".to_owned() });
    for table in tables {
        let n_bytes = 4 * table.n_nodes() * table.dim();
        let (n_steps, rest) = bytes.split_first_chunk::<8>().ok_or_else(other)?;
        let (means, rest) = rest.split_at_checked(n_bytes).ok_or_else(other)?;
        let (mean_squares, rest) = rest.split_at_checked(n_bytes).ok_or_else(other)?;
        let n_steps = usize::try_from(u64::from_le_bytes(*n_steps)).map_err(|_| other())?;
        if !Arc::make_mut(table).set_moments(n_steps, [means, mean_squares].map(pod_collect_to_vec)) {
            return Err(other());
        }
        bytes = rest;
    }
    if bytes.is_empty() { Ok(()) } else { Err(other()) }
}

/// The start of the names of all tensors of tables.
const PREFIX: &str = "embeddings.";

/// Returns the names of the tensors of a table.
pub(crate) fn names(position: usize) -> [String; 3] {
    ["weight", "is_learned", "keys"].map(|name| format!("{PREFIX}{position}.{name}"))
}

/// Returns the bytes of a tensor of this type and shape.
fn tensor<'a>(file: &SafeTensors<'a>, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&'a [u8]> {
    let found = file.tensor(name).map_err(|error| invalid(&error))?;
    if (found.dtype(), found.shape()) == (dtype, shape) {
        return Ok(found.data());
    }
    let got_type = found.dtype();
    let got = found.shape();
    let reason =
        format!("`{name}` is {got_type:?} of the shape {got:?}, expected {dtype:?} of the shape {shape:?}");
    Err(Error::Run(RunError::Weights { reason }))
}

pub(crate) fn pack(tensors: Vec<(String, TensorView<'_>)>) -> Result<Vec<u8>> {
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize(tensors, Some(metadata)).map_err(|error| invalid(&error))
}

fn invalid(error: &safetensors::SafeTensorError) -> Error {
    Error::Run(RunError::Weights { reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use kiln_graph::NodeId;
    use kiln_nn::{Mlp, MlpConfig, Normalization};
    use kiln_sample::RngKey;

    use super::*;
    use crate::step::embedding::SparseAdamConfig;
    use crate::step::embedding::row_gradients::RowGradients;

    fn model(seed: u64) -> Mlp {
        let config = MlpConfig { d_in: 2, hidden: 3, d_out: 2, n_layers: 1, norm: Normalization::None };
        config.init(RngKey::new(seed), &Device::flex()).unwrap()
    }

    /// Two tables, the first of which has been trained for two steps.
    fn tables() -> Vec<Arc<NodeEmbedding>> {
        let mut tables = tables_of([3, 4]);
        for value in [1.0, -0.5] {
            let gradients = RowGradients::new(vec![NodeId(1)], vec![value, 2.0]).unwrap();
            Arc::make_mut(&mut tables[0]).step(&gradients, &SparseAdamConfig::default(), 0.1).unwrap();
        }
        tables
    }

    fn tables_of(n_nodes: [usize; 2]) -> Vec<Arc<NodeEmbedding>> {
        n_nodes.map(|n_nodes| Arc::new(NodeEmbedding::new(n_nodes, 2, RngKey::new(7)).unwrap())).to_vec()
    }

    fn state(tables: &[Arc<NodeEmbedding>]) -> String {
        tables
            .iter()
            .map(|table: &Arc<NodeEmbedding>| format!("{:?} {:?}", table.learned(), table.moments()))
            .collect()
    }

    #[test]
    fn weights_and_moments_are_loaded_as_they_were() {
        let written = tables();
        let bytes = to_bytes(&model(1), &tables()).unwrap();
        let mut read = tables_of([3, 4]);
        let mut other = model(2);
        load(&mut other, &mut read, bytes.clone()).unwrap();
        load_moments(&mut read, &moments_to_bytes(&written)).unwrap();
        assert_eq!(state(&read), state(&written));
        assert_eq!(to_bytes(&other, &read).unwrap(), bytes);
        assert_eq!(hash_of(&other, &read).unwrap(), hash_of(&model(1), &written).unwrap());
        assert_ne!(hash_of(&other, &tables_of([3, 4])).unwrap(), hash_of(&other, &read).unwrap());
        // A model without tables has the file that it has alone.
        assert_eq!(to_bytes(&other, &[]).unwrap(), weights_to_bytes(&other).unwrap());
    }

    #[test]
    fn weights_of_other_tables_change_nothing() {
        let bytes = to_bytes(&model(1), &tables()).unwrap();
        let reason = |mut tables: Vec<Arc<NodeEmbedding>>, bytes: &[u8]| {
            let before = state(&tables);
            let mut other = model(2);
            let error = load(&mut other, &mut tables, bytes.to_vec()).unwrap_err();
            assert_eq!(state(&tables), before);
            assert_eq!(weights_to_bytes(&other).unwrap(), weights_to_bytes(&model(2)).unwrap());
            error.to_string()
        };
        let error = reason(tables_of([3, 5]), &bytes);
        assert!(
            error.contains(
                "`embeddings.1.weight` is F32 of the shape [4, 2], expected F32 of the shape [5, 2]"
            ),
            "{error}"
        );
        let error = reason([tables(), tables()].concat(), &bytes);
        assert!(error.contains("embeddings.2.weight"), "{error}");
        let error = reason(tables_of([3, 4])[..1].to_vec(), &bytes);
        assert!(error.contains("embeddings.1"), "{error}");
        let error = reason(tables(), &weights_to_bytes(&model(1)).unwrap());
        assert!(error.contains("embeddings.0.weight"), "{error}");
        reason(tables(), &bytes[..bytes.len() - 1]);
    }

    #[test]
    fn the_damaged_tensor_is_named() {
        let bytes = to_bytes(&model(1), &tables()).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let mut tensors = file.tensors();
        let flags = [1.0_f32.to_le_bytes(); 1].concat();
        for (name, tensor) in &mut tensors {
            if name == "embeddings.1.is_learned" {
                *tensor = TensorView::new(Dtype::F32, vec![1], &flags).unwrap();
            }
        }
        let error = load(&mut model(2), &mut tables(), pack(tensors).unwrap()).unwrap_err().to_string();
        let expected = "`embeddings.1.is_learned` is F32 of the shape [1], expected U8 of the shape [4]";
        assert!(error.contains(expected), "{error}");
    }

    /// A model whose parameter has the name of a table.
    #[derive(burn::module::Module, Debug)]
    struct Named {
        embeddings: Vec<Mlp>,
    }

    #[test]
    fn a_parameter_with_the_name_of_a_table_is_an_error() {
        let model = Named { embeddings: vec![model(1)] };
        assert!(to_bytes(&model, &[]).is_ok());
        let error = to_bytes(&model, &tables()).unwrap_err().to_string();
        assert!(error.contains("has the name of an embedding: rename it"), "{error}");
    }

    #[test]
    fn keys_are_written_and_compared() {
        let of_names = |names: &[&str]| {
            let keys = NodeKeys::of_names(names.len(), |node| names[node]);
            let mut tables = tables();
            let table = NodeEmbedding::clone(&tables[0]).with_keys(keys);
            tables[0] = Arc::new(table.unwrap());
            tables
        };
        let named = of_names(&["anna", "ben", "carla"]);
        let bytes = to_bytes(&model(1), &named).unwrap();
        let read = read(&mut model(2), &[[3, 2], [4, 2]], bytes.clone()).unwrap();
        assert_eq!(read[0].keys(), named[0].keys());
        assert_eq!(read[1].keys(), None);
        assert_eq!(read[0].learned(), named[0].learned());
        let mut other = of_names(&["anna", "ben", "dora"]);
        let error = load(&mut model(2), &mut other, bytes.clone()).unwrap_err().to_string();
        assert!(error.contains("`embeddings.0.keys` are the keys of other nodes"), "{error}");
        // Files of nodes without names are those of any nodes.
        load(&mut model(2), &mut tables(), bytes).unwrap();
        let error = NodeEmbedding::clone(&tables()[1]).with_keys(named[0].keys().unwrap().clone());
        assert!(error.unwrap_err().to_string().contains("3 keys for an embedding of 4 rows"));
    }

    #[test]
    fn moments_of_other_tables_are_errors() {
        let bytes = moments_to_bytes(&tables());
        for (mut tables, bytes) in [
            (tables_of([3, 5]), &bytes[..]),
            (tables_of([3, 3]), &bytes),
            (tables(), &bytes[..bytes.len() - 1]),
            (tables(), &[]),
            (Vec::new(), &bytes),
        ] {
            assert!(matches!(load_moments(&mut tables, bytes), Err(Error::Run(RunError::Weights { .. }))));
        }
    }
}
