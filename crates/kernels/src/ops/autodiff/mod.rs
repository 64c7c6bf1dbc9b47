//! The ops on Burn's autodiff backend, for any inner backend that has the ops and their adjoints.

mod activation;
mod attention;
mod batch_norm;
mod cross_entropy;
mod edge_rows;
mod features;
mod product;
mod relation_groups;

use std::fmt;
use std::sync::Arc;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, TensorMetadata};
use kiln_graph::TypeGroup;
use kiln_sample::RngKey;

use crate::device::block::Adjacency;
use crate::ops::aggregation::{Form, Input, Saved, Traced, Weights};
use crate::ops::attention::Attention;
use crate::ops::autodiff::activation::{EluOp, ReluDropout};
use crate::ops::autodiff::cross_entropy::CrossEntropyOp;
use crate::ops::backend::{BlockAdjoints, BlockOps};
use crate::ops::batch_norm::{NormalizationInput, NormalizationSettings, Normalized};
use crate::ops::edge_rows::Messages;
use crate::ops::keep::Keep;
use crate::ops::range_sums::Ranges;

impl<B: BlockOps + BlockAdjoints, C: CheckpointStrategy> BlockOps for Autodiff<B, C> {
    fn attention_scores(
        block: Adjacency<Self>,
        src: FloatTensor<Self>,
        dst: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        slope: f32,
    ) -> FloatTensor<Self> {
        let (src, src_node) = src.into_parts();
        let (dst, dst_node) = dst.into_parts();
        let (weights, weights_node) = weights.into_parts();
        let inputs = Attention { block: inner(block), src, dst, weights, slope };
        attention::scores::<B, C>(inputs, [src_node, dst_node, weights_node])
    }

    fn edge_softmax(block: Adjacency<Self>, scores: FloatTensor<Self>) -> FloatTensor<Self> {
        let (scores, node) = scores.into_parts();
        attention::softmax::<B, C>(inner(block), scores, node)
    }

    fn edge_relu_sum(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        rows_of_edges: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let (x, x_node) = x.into_parts();
        let (rows_of_edges, rows_node) = rows_of_edges.into_parts();
        let messages = Messages { block: inner(block), x, edge_rows: rows_of_edges };
        edge_rows::relu_sum::<B, C>(messages, [x_node, rows_node])
    }

    fn edge_dropout(
        x: FloatTensor<Self>,
        edge_ids: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        let ops = Linear::new(edge_mask::<B>, edge_mask::<B>);
        ops.apply::<C>((edge_ids, key, keep), x)
    }

    fn relation_shares(
        block: Adjacency<Self>,
        types: IntTensor<Self>,
        n_types: usize,
        weights: Weights<Self>,
    ) -> FloatTensor<Self> {
        let weights = match weights {
            Weights::Ones => Weights::Ones,
            Weights::Tensor(weights) => Weights::Tensor(Self::inner(weights)),
        };
        Self::from_inner(B::relation_shares(inner(block), types, n_types, weights))
    }

    fn aggregate(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: Weights<Self>,
        form: Form,
    ) -> FloatTensor<Self> {
        let x = if form.to_f32 { features::widened_if_tracked::<B, C>(x) } else { x };
        let saved = Saved::new(inner(block), form);
        let x_is_tracked = x.is_tracked();
        let (x, x_node) = x.into_parts();
        match weights {
            Weights::Ones => aggregate_tracked::<B, C, 1>([x_node], x, Weights::Ones, saved),
            Weights::Tensor(weights) => {
                // The gradient of each input reads the other one, so an input is saved only if the other one is
                // tracked.
                let kept_x = weights.is_tracked().then(|| x.clone());
                let (weights, weights_node) = weights.into_parts();
                let weights = Weights::Tensor(weights);
                let kept_weights = if x_is_tracked { weights.clone() } else { Weights::Ones };
                let saved = Saved { x: kept_x, weights: kept_weights, ..saved };
                aggregate_tracked::<B, C, 2>([x_node, weights_node], x, weights, saved)
            }
        }
    }

    fn take_dst(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let ops =
            Linear::new(|block, x| B::take_dst(block, x), |block, grad| B::take_dst_adjoint(&block, grad));
        ops.apply::<C>(inner(block), x)
    }

    fn expand(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let ops = Linear::new(
            |block, x| B::expand(block, x),
            |block, grad| {
                let Saved { block, form, weights, .. } = Saved::of_sum(block);
                B::aggregate(block, grad, weights, form)
            },
        );
        ops.apply::<C>(inner(block), x)
    }

    fn column_sums(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let ops = Linear::new(|_, x| B::column_sums(x), |n_rows, grad| B::expand_row(grad, n_rows));
        ops.apply::<C>(x.primitive().shape()[0], x)
    }

    fn expand_row(row: FloatTensor<Self>, n_rows: usize) -> FloatTensor<Self> {
        let ops = Linear::new(|n_rows, row| B::expand_row(row, n_rows), |_, grad| B::column_sums(grad));
        ops.apply::<C>(n_rows, row)
    }

    fn sum_ranges(x: FloatTensor<Self>, ranges: Ranges) -> FloatTensor<Self> {
        let width = x.primitive().shape()[1];
        let ops = Linear::new(
            |(ranges, _), x| B::sum_ranges(x, ranges),
            |(ranges, width), grad| B::spread_ranges(grad, ranges, width),
        );
        ops.apply::<C>((ranges, width), x)
    }

    fn row_maxima(x: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::from_inner(B::row_maxima(Self::inner(x)))
    }

    fn spread_ranges(sums: FloatTensor<Self>, ranges: Ranges, width: usize) -> FloatTensor<Self> {
        let ops = Linear::new(
            |(ranges, width), sums| B::spread_ranges(sums, ranges, width),
            |(ranges, _), grad| B::sum_ranges(grad, ranges),
        );
        ops.apply::<C>((ranges, width), sums)
    }

    fn product(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        product::product::<B, C>(x, weight)
    }

    fn stack_rows(first: FloatTensor<Self>, second: FloatTensor<Self>) -> FloatTensor<Self> {
        product::stack_rows::<B, C>(first, second)
    }

    fn normalize_columns(
        input: NormalizationInput<Self>,
        settings: NormalizationSettings,
    ) -> Normalized<Self> {
        batch_norm::normalize::<B, C>(input, settings)
    }

    fn dropout(x: FloatTensor<Self>, nodes: IntTensor<Self>, key: RngKey, keep: Keep) -> FloatTensor<Self> {
        // A mask is its own adjoint, and redrawing it is cheaper than storing it.
        let ops = Linear::new(mask::<B>, mask::<B>);
        ops.apply::<C>((nodes, key, keep), x)
    }

    fn bias_dropout(
        x: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
        has_relu: bool,
    ) -> FloatTensor<Self> {
        activation::bias_dropout::<B, C>([x, bias], nodes, key, keep, has_relu)
    }

    fn relu_dropout(
        x: FloatTensor<Self>,
        nodes: IntTensor<Self>,
        key: RngKey,
        keep: Keep,
    ) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match ReluDropout.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let output = B::relu_dropout(x, nodes, key, keep);
                prep.finish((output.clone(), keep), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::relu_dropout(x, nodes, key, keep)),
        }
    }

    fn elu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match EluOp.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let output = B::elu(x);
                prep.finish(output.clone(), output)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::elu(x)),
        }
    }

    fn cross_entropy(x: FloatTensor<Self>, labels: IntTensor<Self>) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match CrossEntropyOp.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let traced = B::cross_entropy_traced(x.clone(), labels.clone());
                let loss = traced.loss.clone();
                prep.finish((x, labels, traced), loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::cross_entropy(x, labels)),
        }
    }

    fn grouped_linear(
        types: Arc<[TypeGroup]>,
        bias: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        relation_groups::grouped_linear::<B, C>(types, bias, x, weight)
    }

    fn grouped_transposed(
        types: Arc<[TypeGroup]>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        d_out: usize,
    ) -> FloatTensor<Self> {
        relation_groups::grouped_transposed::<B, C>(types, x, weight, d_out)
    }

    fn edge_dots(
        block: Adjacency<Self>,
        srcs: FloatTensor<Self>,
        dsts: FloatTensor<Self>,
        n_heads: usize,
    ) -> FloatTensor<Self> {
        relation_groups::edge_dots::<B, C>(inner(block), srcs, dsts, n_heads)
    }

    fn add_linear(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        product::add_linear::<B, C>(base, x, weight)
    }
}

fn mask<B: BlockOps>((nodes, key, keep): (IntTensor<B>, RngKey, Keep), x: FloatTensor<B>) -> FloatTensor<B> {
    B::dropout(x, nodes, key, keep)
}

fn edge_mask<B: BlockOps>(
    (edge_ids, key, keep): (IntTensor<B>, RngKey, Keep),
    x: FloatTensor<B>,
) -> FloatTensor<B> {
    B::edge_dropout(x, edge_ids, key, keep)
}

/// The adjacency on the inner backend. Index tensors carry no gradient, so they have the same type on both backends.
fn inner<B: Backend, C: CheckpointStrategy>(block: Adjacency<Autodiff<B, C>>) -> Adjacency<B> {
    Adjacency {
        indptr: block.indptr,
        indices: block.indices,
        by_source: block.by_source,
        n_src: block.n_src,
        n_dst: block.n_dst,
        n_edges: block.n_edges,
        most_in_edges: block.most_in_edges,
        is_gather: block.is_gather,
    }
}

/// An op that is linear in its only differentiable input. Its gradient depends on the state of the op, but not on the
/// input.
struct Linear<B: Backend, S> {
    forward: fn(S, FloatTensor<B>) -> FloatTensor<B>,
    adjoint: fn(S, FloatTensor<B>) -> FloatTensor<B>,
}

impl<B: Backend, S: Clone + Send + fmt::Debug + 'static> Linear<B, S> {
    fn new(
        forward: fn(S, FloatTensor<B>) -> FloatTensor<B>,
        adjoint: fn(S, FloatTensor<B>) -> FloatTensor<B>,
    ) -> Self {
        Self { forward, adjoint }
    }

    fn apply<C: CheckpointStrategy>(
        self,
        state: S,
        x: FloatTensor<Autodiff<B, C>>,
    ) -> FloatTensor<Autodiff<B, C>> {
        let forward = self.forward;
        let (x, node) = x.into_parts();
        match self.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(state.clone(), forward(state, x)),
            OpsKind::UnTracked(prep) => prep.finish(forward(state, x)),
        }
    }
}

impl<B: Backend, S> fmt::Debug for Linear<B, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Linear")
    }
}

impl<B: Backend, S: Clone + Send + fmt::Debug + 'static> Backward<B, 1> for Linear<B, S> {
    type State = S;

    fn backward(self, ops: Ops<S, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, (self.adjoint)(ops.state, grad));
        }
    }
}

/// An aggregation that is recorded in the autodiff graph. `nodes` are the nodes of this graph for the source rows and,
/// if there are weights, for the weights.
fn aggregate_tracked<B: BlockOps + BlockAdjoints, C: CheckpointStrategy, const N: usize>(
    nodes: [NodeGuard; N],
    x: FloatTensor<B>,
    weights: Weights<B>,
    saved: Saved<B>,
) -> FloatTensor<Autodiff<B, C>> {
    match AggregateOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let Traced { values, edges } = B::aggregate_traced(&saved.block, x, &weights, saved.form);
            prep.finish(Saved { edges, ..saved }, values)
        }
        OpsKind::UnTracked(prep) => prep.finish(B::aggregate(saved.block, x, weights, saved.form)),
    }
}

#[derive(Debug)]
struct AggregateOp;

impl<B: BlockAdjoints, const N: usize> Backward<B, N> for AggregateOp {
    type State = Saved<B>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        for (node, input) in ops.parents.into_iter().zip([Input::Rows, Input::Weights]) {
            if let Some(node) = node {
                grads.register::<B>(node.id, B::aggregate_adjoint(&ops.state, grad.clone(), input));
            }
        }
    }
}
