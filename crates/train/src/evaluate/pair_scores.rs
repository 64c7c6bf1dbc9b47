use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use kiln_feature::DenseFeatures;
use kiln_graph::NodeId;
use kiln_kernels::{gather_features, to_vec_f32};
use kiln_nn::{ForwardContext, LinkDecoder, Mode};
use kiln_sample::RngKey;
use kiln_store::progress::{Progress, ProgressUnit};

use crate::error::Result;

/// The maximum number of pairs that are scored at once.
const PAIRS_AT_ONCE: usize = 1 << 16;

/// Computes the outputs of pairs of rows in the host's memory or in a mapped file, without dropout: a score per pair, or the
/// outputs of a decoder of edges, `[n_pairs, n_outputs]`, row-major. `srcs` and `dsts` are the numbers of the rows, and `edges` the
/// features of the pairs, `[n_pairs, d_edge]`, on `device`. The decoder must be on `device`, without autodiff. Pairs that are
/// scored at once are no stage of their own: it would hide the caller's, and state no progress before its end.
///
/// # Panics
/// Panics if the numbers of sources and destinations differ.
pub(crate) fn pair_outputs(
    decoder: &LinkDecoder,
    rows: &DenseFeatures,
    srcs: &[NodeId],
    dsts: &[NodeId],
    edges: Option<&Tensor<2>>,
    device: &Device,
) -> Result<Vec<f32>> {
    assert_eq!(srcs.len(), dsts.len(), "expected one destination per source");
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
    let mut outputs = Vec::with_capacity(srcs.len());
    let mut n_done = 0;
    let n_pairs = srcs.len();
    let progress = (PAIRS_AT_ONCE < n_pairs)
        .then(|| Progress::start("scoring links", ProgressUnit::Links, n_pairs as u64));
    for (srcs, dsts) in srcs.chunks(PAIRS_AT_ONCE).zip(dsts.chunks(PAIRS_AT_ONCE)) {
        // Without dropout, the pairs need no ids of their own.
        let n_at_once = srcs.len();
        let ids = TensorData::new(vec![0_u32; n_at_once], [n_at_once]);
        let ids = Tensor::<1, Int>::from_data(ids, (device, DType::U32));
        let srcs = gather_features(rows, srcs, device)?;
        let dsts = gather_features(rows, dsts, device)?;
        match decoder.edge_dims() {
            None => outputs.extend(to_vec_f32(decoder.scores(srcs, dsts, &ids, &ctx))),
            Some(_) => {
                let edges = edges.map(|edges| edges.clone().narrow(0, n_done, n_at_once));
                outputs.extend(to_vec_f32(decoder.outputs(srcs, dsts, edges, &ids, &ctx)));
            }
        }
        n_done += n_at_once;
        if let Some(progress) = &progress {
            progress.set_done(n_done as u64);
        }
    }
    Ok(outputs)
}
