//! Decoders and losses of link prediction, compared with their formulas in f64, and with differences.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use kiln_graph::{Block, BlockParts, EdgeId, LocalId, NodeId};
use kiln_kernels::testing::{check_close, check_gradient, device, ramp, values};
use kiln_kernels::{DeviceBlock, is_cpu};
use kiln_nn::{
    BlockModel, Error, ForwardContext, GcnConfig, GinConfig, LinkDecoder, LinkDecoderConfig, LinkLoss,
    LinkModelConfig, LinkPairs, LossError, LossSum, Mode, ModelConfig, SageConfig,
};
use kiln_sample::RngKey;

use super::common::{ctx, parameters};

/// The tolerance for f32 sums of a dozen terms of about 1, with exponentials.
const TOLERANCE: f32 = 2e-6;

/// The step of central differences in f64, whose error is of second order in it.
const STEP: f64 = 1e-5;

const LOSSES: [LinkLoss; 2] = [LinkLoss::BinaryCrossEntropy, LinkLoss::BayesianPersonalizedRanking];

const MLP: LinkDecoderConfig = LinkDecoderConfig::Mlp { hidden: 6, n_layers: 3, dropout: 0.5 };

/// Scores of three links with two negatives each: a tie, large ones of both orders, and ordinary ones.
const SCORES: [f32; 9] = [0.5, 0.5, -1.0, 30.0, -40.0, 2.0, -20.0, 1.5, 25.0];

fn decoder(config: LinkDecoderConfig, width: usize, device: &Device) -> LinkDecoder {
    config.init(width, RngKey::new(5), device).unwrap()
}

/// Returns log(1 + exp(x)) without overflow.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Returns the formula of a loss, and its weight, for two negatives per link.
fn formula(loss: LinkLoss, scores: &[f64]) -> (f64, f64) {
    let links = scores.chunks_exact(3);
    match loss {
        LinkLoss::BinaryCrossEntropy => {
            let of_link = |s: &[f64]| softplus(-s[0]) + softplus(s[1]) + softplus(s[2]);
            (links.map(of_link).sum(), scores.len() as f64)
        }
        LinkLoss::BayesianPersonalizedRanking => {
            let of_link = |s: &[f64]| softplus(s[1] - s[0]) + softplus(s[2] - s[0]);
            (links.map(of_link).sum(), (scores.len() / 3 * 2) as f64)
        }
    }
}

#[test]
fn losses_and_gradients_equal_their_formulas() {
    let exact = SCORES.map(f64::from);
    for loss in LOSSES {
        let scores = TensorData::new(SCORES.to_vec(), [3, 3]);
        let scores = Tensor::<2>::from_data(scores, &device().autodiff()).require_grad();
        let LossSum { sum, weight } = loss.sum(scores.clone());
        let gradients = sum.backward();
        let slope = |at: usize| {
            let [above, below] = [STEP, -STEP].map(|step| {
                let mut moved = exact;
                moved[at] += step;
                formula(loss, &moved).0
            });
            ((above - below) / (2.0 * STEP)) as f32
        };
        let (expected, expected_weight) = formula(loss, &exact);
        let (got, expected) = (values(sum)[0], expected as f32);
        assert!((got - expected).abs() <= TOLERANCE * expected, "{loss:?}: {got}, expected {expected}");
        assert_eq!(weight, expected_weight, "{loss:?}");
        let slopes: Vec<f32> = (0..SCORES.len()).map(slope).collect();
        check_close(&values(scores.grad(&gradients).unwrap()), &slopes, 1e-4);
    }
}

#[test]
fn losses_reject_links_without_negatives() {
    for loss in LOSSES {
        assert!(matches!(loss.check(0), Err(Error::Loss(LossError::NoNegatives))));
        loss.check(1).unwrap();
    }
}

#[test]
fn dot_product_and_distmult_equal_their_formulas() {
    let device = device();
    let (src, dst) = (ramp::<2>([5, 7], &device), ramp::<2>([5, 7], &device) * 0.5 - 0.1);
    let weights: Vec<f32> = (0..7).map(|column| 0.25 * column as f32 - 0.5).collect();
    let dot = decoder(LinkDecoderConfig::Dot, 7, &device);
    let mut dist_mult = decoder(LinkDecoderConfig::DistMult, 7, &device);
    let score = |decoder: &LinkDecoder, src: &Tensor<2>, dst: &Tensor<2>| {
        values(decoder.score_pairs(
            Tensor::cat(vec![src.clone(), dst.clone()], 0),
            &five(&device),
            &ctx(Mode::Train),
        ))
    };
    let (a, b) = (values(src.clone()), values(dst.clone()));
    let expected = |weight: &dyn Fn(usize) -> f32| -> Vec<f32> {
        let of_pair = |pair: usize| (0..7).map(|c| a[7 * pair + c] * b[7 * pair + c] * weight(c)).sum();
        (0..5).map(of_pair).collect()
    };
    check_close(&score(&dot, &src, &dst), &expected(&|_| 1.0), TOLERANCE);
    check_close(&score(&dist_mult, &src, &dst), &expected(&|_| 1.0), TOLERANCE);
    let relation = TensorData::new(weights.clone(), [7, 1]);
    dist_mult.relation = Some(Param::from_tensor(Tensor::from_data(relation, &device)));
    check_close(&score(&dist_mult, &src, &dst), &expected(&|column| weights[column]), TOLERANCE);
}

/// Returns the pairs of row `i` and row `5 + i` of ten rows.
fn five(device: &Device) -> LinkPairs {
    LinkPairs::upload(&[0, 1, 2, 3, 4], &[5, 6, 7, 8, 9], (0..5).collect(), 10, device)
}

#[test]
fn mlp_equals_its_formula_without_dropout_in_predictions() {
    let device = device();
    let mlp = decoder(MLP, 4, &device);
    let rows: Tensor<2> = ramp([10, 4], &device);
    let got = values(mlp.score_pairs(rows.clone(), &five(&device), &ctx(Mode::Eval)));
    let rows = values(rows);
    let layers: Vec<[Vec<f32>; 2]> =
        mlp.linears.iter().map(|linear| [values(linear.weight.val()), values(linear.bias.val())]).collect();
    assert_eq!(layers.iter().map(|[_, bias]| bias.len()).collect::<Vec<_>>(), [6, 6, 1]);
    for pair in 0..5 {
        let mut x: Vec<f32> = (0..4).map(|c| rows[4 * pair + c] * rows[4 * (pair + 5) + c]).collect();
        for (i, [weight, bias]) in layers.iter().enumerate() {
            let cell = |column: usize| {
                let products = x.iter().enumerate().map(|(k, value)| value * weight[k * bias.len() + column]);
                let sum = products.sum::<f32>() + bias[column];
                if i == 2 { sum } else { sum.max(0.0) }
            };
            x = (0..bias.len()).map(cell).collect();
        }
        check_close(&got[pair..=pair], &x, TOLERANCE);
    }
}

#[test]
fn scores_of_all_pairs_equal_those_of_each_pair() {
    let device = device();
    let (src, dst) = (ramp::<2>([3, 4], &device), ramp::<2>([5, 4], &device) * 0.5 + 0.25);
    let rows = Tensor::cat(vec![src.clone(), dst.clone()], 0);
    let (srcs, dsts): (Vec<u32>, Vec<u32>) = (0..15).map(|pair| (pair / 5, 3 + pair % 5)).unzip();
    let pairs = LinkPairs::upload(&srcs, &dsts, vec![0; 15], 8, &device);
    for config in [LinkDecoderConfig::Dot, LinkDecoderConfig::DistMult, MLP] {
        let mut decoder = decoder(config, 4, &device);
        decoder.relation = decoder.relation.map(|_| Param::from_tensor(ramp::<2>([4, 1], &device)));
        let expected = values(decoder.score_pairs(rows.clone(), &pairs, &ctx(Mode::Eval)));
        let all = decoder.score_all(src.clone(), dst.clone());
        assert_eq!(all.dims(), [3, 5]);
        check_close(&values(all), &expected, TOLERANCE);
    }
}

/// A perceptron scores so many pairs in parts.
#[test]
fn scores_of_many_pairs_by_a_perceptron_equal_those_of_each_pair() {
    let device = device();
    let (src, dst) = (ramp::<2>([3, 4], &device), ramp::<2>([40_000, 4], &device) * 0.5);
    let mlp = decoder(MLP, 4, &device);
    let all = values(mlp.score_all(src.clone(), dst.clone()));
    assert_eq!(all.len(), 120_000);
    for (source, dsts) in [(0, 0..5), (1, 39_990..40_000), (2, 20_000..20_003)] {
        let rows = Tensor::cat(vec![src.clone(), dst.clone().narrow(0, dsts.start, dsts.len())], 0);
        let (srcs, ends): (Vec<u32>, Vec<u32>) =
            (0..dsts.len() as u32).map(|pair| (source, 3 + pair)).unzip();
        let pairs = LinkPairs::upload(&srcs, &ends, vec![0; dsts.len()], 3 + dsts.len(), &device);
        let expected = values(mlp.score_pairs(rows, &pairs, &ctx(Mode::Eval)));
        let first = 40_000 * source as usize;
        check_close(&all[first + dsts.start..first + dsts.end], &expected, TOLERANCE);
    }
}

#[test]
fn scores_do_not_depend_on_the_direction_of_a_pair() {
    let device = device();
    let rows: Tensor<2> = ramp([10, 4], &device);
    let reversed = LinkPairs::upload(&[5, 6, 7, 8, 9], &[0, 1, 2, 3, 4], (0..5).collect(), 10, &device);
    for config in [LinkDecoderConfig::Dot, LinkDecoderConfig::DistMult, MLP] {
        let decoder = decoder(config, 4, &device);
        let score = |pairs: &LinkPairs| values(decoder.score_pairs(rows.clone(), pairs, &ctx(Mode::Train)));
        assert_eq!(score(&five(&device)), score(&reversed), "{config:?}");
    }
}

#[test]
fn dropout_of_a_pair_depends_on_its_id_and_not_on_its_place() {
    let device = device();
    let mlp = decoder(MLP, 4, &device);
    let rows: Tensor<2> = ramp([10, 4], &device);
    let score = |srcs: &[u32], ids: Vec<u32>, mode| {
        let dsts: Vec<u32> = srcs.iter().map(|src| src + 5).collect();
        let pairs = LinkPairs::upload(srcs, &dsts, ids, 10, &device);
        values(mlp.score_pairs(rows.clone(), &pairs, &ctx(mode)))
    };
    let all = score(&[0, 1, 2, 3, 4], vec![70, 71, 72, 73, 74], Mode::Train);
    let some = score(&[3, 1], vec![73, 71], Mode::Train);
    check_close(&some, &[all[3], all[1]], TOLERANCE);
    assert_ne!(all, score(&[0, 1, 2, 3, 4], (0..5).collect(), Mode::Train), "the masks depend on the ids");
    assert_ne!(all, score(&[0, 1, 2, 3, 4], vec![70, 71, 72, 73, 74], Mode::Eval));
}

#[test]
fn gradients_of_repeated_rows_equal_differences() {
    let device = device();
    let pairs = LinkPairs::upload(&[0, 0, 2, 1, 0], &[1, 2, 2, 0, 1], (0..5).collect(), 3, &device);
    for config in [LinkDecoderConfig::Dot, LinkDecoderConfig::DistMult] {
        let decoder = decoder(config, 4, &device.clone().autodiff());
        let score = |rows: Tensor<2>| decoder.score_pairs(rows, &pairs, &ctx(Mode::Eval)).reshape([5, 1]);
        check_gradient(ramp([3, 4], &device), score);
    }
}

/// Pairs are scored in parts of 65,536.
#[test]
fn scores_and_gradients_of_many_pairs_are_those_of_each_pair() {
    let device = device();
    let (n_rows, n_pairs) = (50_usize, 70_000_u32);
    let srcs: Vec<u32> = (0..n_pairs).map(|pair| pair % 50).collect();
    let dsts: Vec<u32> = (0..n_pairs).map(|pair| (pair * 7 + 3) % 50).collect();
    let pairs = LinkPairs::upload(&srcs, &dsts, (0..n_pairs).collect(), n_rows, &device);
    assert_eq!(pairs.len(), 70_000);
    let rows = ramp::<2>([n_rows, 4], &device).autodiff().require_grad();
    let dot = decoder(LinkDecoderConfig::Dot, 4, &device.clone().autodiff());
    let scores = dot.score_pairs(rows.clone(), &pairs, &ctx(Mode::Train));
    let host = values(rows.clone());
    let row = |row: u32| &host[4 * row as usize..4 * row as usize + 4];
    let (mut expected, mut gradient) = (Vec::new(), vec![0.0_f64; 4 * n_rows]);
    for (&src, &dst) in srcs.iter().zip(&dsts) {
        expected.push(row(src).iter().zip(row(dst)).map(|(a, b)| a * b).sum::<f32>());
        for column in 0..4 {
            gradient[4 * src as usize + column] += f64::from(row(dst)[column]);
            gradient[4 * dst as usize + column] += f64::from(row(src)[column]);
        }
    }
    check_close(&values(scores.clone()), &expected, TOLERANCE);
    let got = values(rows.grad(&scores.sum().backward()).unwrap());
    for (got, expected) in got.iter().zip(gradient) {
        // A sum of 2,800 terms in f32. Without the second part of the pairs, it would differ by 6 %.
        assert!((f64::from(*got) - expected).abs() < 0.3, "{got} and {expected}");
    }
}

/// Many pairs share each row, so the order of the additions shows in the bits.
#[test]
fn gradients_are_bit_identical_for_any_number_of_threads() {
    let device = device();
    let n_rows = 300_u32;
    // Another device does not use the threads.
    let n_pairs = if is_cpu(&device) { 30_000_u32 } else { 3000 };
    let draw = |pair: u32, factor: u32| pair.wrapping_mul(factor) % n_rows;
    let srcs: Vec<u32> = (0..n_pairs).map(|pair| draw(pair, 2_654_435_769)).collect();
    let dsts: Vec<u32> = (0..n_pairs).map(|pair| draw(pair, 2_246_822_519)).collect();
    let run = |config: LinkDecoderConfig| {
        let decoder = decoder(config, 32, &device.clone().autodiff());
        let rows = ramp::<2>([n_rows as usize, 32], &device).autodiff().require_grad();
        let pairs = LinkPairs::upload(&srcs, &dsts, (0..n_pairs).collect(), n_rows as usize, &device);
        let scores =
            decoder.score_pairs(rows.clone(), &pairs, &ctx(Mode::Train)).reshape([n_pairs as usize / 3, 3]);
        let LossSum { sum, .. } = LinkLoss::default().sum(scores);
        let gradients = sum.backward();
        let of_relation = decoder.relation.iter().flat_map(|p| p.val().grad(&gradients)).flat_map(values);
        let bits = values(rows.grad(&gradients).unwrap()).into_iter().chain(of_relation).map(f32::to_bits);
        bits.collect::<Vec<u32>>()
    };
    for config in [LinkDecoderConfig::Dot, LinkDecoderConfig::DistMult, MLP] {
        let [one, four] = [1, 4].map(|n_threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            pool.install(|| run(config))
        });
        assert!(one == four, "{config:?}: the gradients of one and of four threads differ");
    }
}

fn block() -> Block {
    Block::new(BlockParts {
        srcs: (0..4).map(NodeId).collect(),
        indptr: vec![0, 2, 3, 4],
        indices: [2, 1, 3, 0].map(LocalId).to_vec(),
        edge_ids: (0..4).map(EdgeId).collect(),
        ..BlockParts::default()
    })
}

#[test]
fn link_model_scores_the_rows_of_its_encoder() {
    let device = device();
    let encoder = SageConfig::new(5, 8).layers(1);
    let config = LinkModelConfig { encoder: encoder.clone(), decoder: MLP };
    let model = config.init(RngKey::new(3), &device).unwrap();
    let alone = encoder.init(RngKey::new(3), &device).unwrap();
    let of_encoder: Vec<_> = parameters(&model)
        .into_iter()
        .filter_map(|(name, values)| Some((name.strip_prefix("encoder.")?.to_owned(), values)))
        .collect();
    assert_eq!(of_encoder, parameters(&alone), "the decoder should not change the encoder's initial weights");
    let blocks = [DeviceBlock::new(block(), &device)];
    let x: Tensor<2> = ramp([4, 5], &device);
    let pairs = LinkPairs::upload(&[0, 2], &[1, 2], vec![0, 1], 3, &device);
    let ctx = ForwardContext { key: RngKey::new(9), mode: Mode::Eval };
    let rows = alone.forward(&blocks, x.clone(), &ctx);
    let expected = values(model.decoder.score_pairs(rows, &pairs, &ctx));
    assert_eq!(values(model.forward(&blocks, x, &pairs, &ctx)), expected);
}

#[test]
fn kinds_differ_by_encoder_and_configurations_are_read_back() {
    assert_eq!(LinkModelConfig::<SageConfig>::KIND, "link-sage");
    assert_eq!(LinkModelConfig::<GcnConfig>::KIND, "link-gcn");
    assert_eq!(LinkModelConfig::<GinConfig>::KIND, "link-gin");
    for decoder in [LinkDecoderConfig::Dot, LinkDecoderConfig::DistMult, MLP] {
        let config = LinkModelConfig { decoder, ..LinkModelConfig::<SageConfig>::for_dims(3, 4) };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<LinkModelConfig<SageConfig>>(&text).unwrap(), config, "{text}");
        assert_eq!((config.n_layers(), config.d_in(), config.d_out()), (3, Some(3), None));
    }
}

#[test]
fn rejects_invalid_decoders() {
    let device = device();
    let init =
        |decoder| LinkModelConfig { encoder: SageConfig::new(3, 4), decoder }.init(RngKey::new(0), &device);
    for (hidden, n_layers, dropout) in [(0, 2, 0.0), (4, 0, 0.0), (4, 2, 1.0)] {
        init(LinkDecoderConfig::Mlp { hidden, n_layers, dropout }).unwrap_err();
    }
    init(LinkDecoderConfig::Mlp { hidden: 4, n_layers: 1, dropout: 0.0 }).unwrap();
}

#[test]
fn edge_decoder_equals_its_formula_in_outputs_and_gradients() {
    let device = device();
    let (width, d_edge, n_outputs) = (4, 3, 2);
    let config = LinkDecoderConfig::Edge { hidden: 6, n_layers: 2, dropout: 0.5, d_edge, n_outputs };
    let decoder = decoder(config, width, &device);
    assert_eq!(
        decoder.linears.iter().map(|linear| linear.weight.dims()).collect::<Vec<_>>(),
        [[11, 6], [6, 2]]
    );
    let rows = ramp::<2>([10, width], &device);
    let edges = ramp::<2>([5, d_edge], &device) * 0.25 - 0.2;
    let outputs = |rows: Tensor<2>, edges: Tensor<2>| {
        let edges = if rows.device().is_autodiff() { edges.autodiff() } else { edges };
        decoder.outputs_of_pairs(rows, &five(&device), Some(&edges), &ctx(Mode::Eval))
    };
    let got = outputs(rows.clone(), edges.clone());
    assert_eq!(got.dims(), [5, n_outputs]);
    let (x, e) = (values(rows.clone()), values(edges.clone()));
    let mut expected = Vec::new();
    for pair in 0..5 {
        let row = |node: usize| x[width * node..width * (node + 1)].to_vec();
        let mut input = [row(pair), row(5 + pair), e[d_edge * pair..d_edge * (pair + 1)].to_vec()].concat();
        for (layer, linear) in decoder.linears.iter().enumerate() {
            let [d_in, d_out] = linear.weight.dims();
            let (weight, bias) = (values(linear.weight.val()), values(linear.bias.val()));
            let sum = |out: usize| -> f32 {
                bias[out] + (0..d_in).map(|i| input[i] * weight[i * d_out + out]).sum::<f32>()
            };
            let last = layer + 1 == decoder.linears.len();
            input = (0..d_out).map(|out| if last { sum(out) } else { sum(out).max(0.0) }).collect();
        }
        expected.extend(input);
    }
    check_close(&values(got), &expected, 1e-5);
    // The outputs depend on the direction of an edge.
    let reversed = LinkPairs::upload(&[5, 6, 7, 8, 9], &[0, 1, 2, 3, 4], (0..5).collect(), 10, &device);
    let reversed = decoder.outputs_of_pairs(rows.clone(), &reversed, Some(&edges), &ctx(Mode::Eval));
    assert!(values(reversed) != expected);
    check_gradient(rows, |rows| outputs(rows, edges.clone()));
}

#[test]
fn edge_decoders_reject_sizes_of_zero() {
    let device = device();
    let of = |n_outputs, hidden| LinkDecoderConfig::Edge {
        hidden,
        n_layers: 2,
        dropout: 0.0,
        d_edge: 0,
        n_outputs,
    };
    assert!(of(0, 4).init(4, RngKey::new(0), &device).is_err());
    assert!(of(2, 0).init(4, RngKey::new(0), &device).is_err());
    let decoder = decoder(of(2, 4), 4, &device);
    assert_eq!(decoder.edge_dims().map(|dims| dims.n_outputs), Some(2));
}

#[test]
#[should_panic(expected = "a decoder of edges scores no pairs")]
fn edge_decoders_score_no_pairs() {
    let device = device();
    let config = LinkDecoderConfig::Edge { hidden: 4, n_layers: 1, dropout: 0.0, d_edge: 0, n_outputs: 1 };
    decoder(config, 4, &device).score_all(ramp([2, 4], &device), ramp([3, 4], &device));
}
