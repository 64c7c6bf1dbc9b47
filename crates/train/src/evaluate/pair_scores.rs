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

/// Scores pairs of rows in the host's memory or in a mapped file, without dropout. `srcs` and `dsts` are the numbers of
/// the rows. The decoder must be on `device`, without autodiff. Pairs that are scored at once are no stage of their own: it
/// would hide the caller's, and state no progress before its end.
///
/// # Panics
/// Panics if the numbers of sources and destinations differ.
pub(crate) fn pair_scores(
    decoder: &LinkDecoder,
    rows: &DenseFeatures,
    srcs: &[NodeId],
    dsts: &[NodeId],
    device: &Device,
) -> Result<Vec<f32>> {
    assert_eq!(srcs.len(), dsts.len(), "expected one destination per source");
    let ctx = ForwardContext { key: RngKey::new(0), mode: Mode::Eval };
    let mut scores = Vec::with_capacity(srcs.len());
    let n_pairs = srcs.len();
    let progress = (PAIRS_AT_ONCE < n_pairs)
        .then(|| Progress::start("scoring links", ProgressUnit::Links, n_pairs as u64));
    for (srcs, dsts) in srcs.chunks(PAIRS_AT_ONCE).zip(dsts.chunks(PAIRS_AT_ONCE)) {
        // Without dropout, the pairs need no ids of their own.
        let ids = TensorData::new(vec![0_u32; srcs.len()], [srcs.len()]);
        let ids = Tensor::<1, Int>::from_data(ids, (device, DType::U32));
        let srcs = gather_features(rows, srcs, device)?;
        let dsts = gather_features(rows, dsts, device)?;
        scores.extend(to_vec_f32(decoder.scores(srcs, dsts, &ids, &ctx)));
        if let Some(progress) = &progress {
            progress.set_done(scores.len() as u64);
        }
    }
    Ok(scores)
}
