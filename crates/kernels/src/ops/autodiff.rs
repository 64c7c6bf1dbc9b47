//! Gradients of the ops, for any backend that has the ops and their adjoints.

use std::fmt;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, Backend, TensorMetadata};
use kiln_sample::RngKey;

use crate::device::block::Adjacency;
use crate::ops::adjoint::{ArgMax, BlockAdjoints};
use crate::ops::backend::BlockOps;
use crate::ops::{Keep, Reduce};

impl<B: BlockOps + BlockAdjoints, C: CheckpointStrategy> BlockOps for Autodiff<B, C> {
    fn neighbor_sum(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let ops = Linear::new(
            |block, x| B::neighbor_sum(block, x),
            |block, grad| B::neighbor_sum_adjoint(&block, grad),
        );
        ops.apply::<C>(inner(block), x)
    }

    fn neighbor_weighted_sum(
        block: Adjacency<Self>,
        x: FloatTensor<Self>,
        weights: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let block = inner(block);
        let nodes = [x.node(), weights.node()];
        // Each input is kept only if the other one's gradient will ask for it.
        let kept_x = weights.is_tracked().then(|| x.primitive().clone());
        let kept_weights = x.is_tracked().then(|| weights.primitive().clone());
        let (x, weights) = (x.into_primitive(), weights.into_primitive());
        match WeightedSum.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let state = WeightedState { block: block.clone(), x: kept_x, weights: kept_weights };
                prep.finish(state, B::neighbor_weighted_sum(block, x, weights))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::neighbor_weighted_sum(block, x, weights)),
        }
    }

    fn neighbor_mean(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let ops = Linear::new(
            |block, x| B::neighbor_mean(block, x),
            |block, grad| B::neighbor_mean_adjoint(&block, grad),
        );
        ops.apply::<C>(inner(block), x)
    }

    fn neighbor_max(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let block = inner(block);
        let (x, node) = x.into_parts();
        match MaxOp.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let ArgMax { values, edges } = B::neighbor_argmax(&block, x);
                prep.finish((block, edges), values)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::neighbor_max(block, x)),
        }
    }

    fn own_beside(block: Adjacency<Self>, x: FloatTensor<Self>, reduce: Reduce) -> FloatTensor<Self> {
        let ops = Linear::new(
            |(block, reduce), x| B::own_beside(block, x, reduce),
            |(block, reduce), grad| B::own_beside_adjoint(&block, grad, reduce),
        );
        ops.apply::<C>((inner(block), reduce), x)
    }

    fn own_plus_sum(block: Adjacency<Self>, x: FloatTensor<Self>, own_weight: f32) -> FloatTensor<Self> {
        let ops = Linear::new(
            |(block, own_weight), x| B::own_plus_sum(block, x, own_weight),
            |(block, own_weight), grad| B::own_plus_sum_adjoint(&block, grad, own_weight),
        );
        ops.apply::<C>((inner(block), own_weight), x)
    }

    fn dst_rows(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let ops =
            Linear::new(|block, x| B::dst_rows(block, x), |block, grad| B::dst_rows_adjoint(&block, grad));
        ops.apply::<C>(inner(block), x)
    }

    fn expand(block: Adjacency<Self>, x: FloatTensor<Self>) -> FloatTensor<Self> {
        let ops = Linear::new(|block, x| B::expand(block, x), |block, grad| B::neighbor_sum(block, grad));
        ops.apply::<C>(inner(block), x)
    }

    fn dropout(x: FloatTensor<Self>, nodes: IntTensor<Self>, key: RngKey, keep: Keep) -> FloatTensor<Self> {
        // A mask is its own adjoint, and drawing it again is cheaper than keeping it.
        let ops = Linear::new(mask::<B>, mask::<B>);
        ops.apply::<C>((nodes, key, keep), x)
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

    fn add_linear(
        base: FloatTensor<Self>,
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        // Each input is kept only if the other one's gradient will ask for it.
        let kept_x = weight.is_tracked().then(|| x.primitive().clone());
        let kept_weight = x.is_tracked().then(|| weight.primitive().clone());
        let base_is_row = base.primitive().shape()[0] != x.primitive().shape()[0];
        let nodes = [base.node(), x.node(), weight.node()];
        let (base, x, weight) = (base.into_primitive(), x.into_primitive(), weight.into_primitive());
        match LinearOp.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let state = LinearState { base_is_row, x: kept_x, weight: kept_weight };
                prep.finish(state, B::add_linear(base, x, weight))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::add_linear(base, x, weight)),
        }
    }
}

fn mask<B: BlockOps>((nodes, key, keep): (IntTensor<B>, RngKey, Keep), x: FloatTensor<B>) -> FloatTensor<B> {
    B::dropout(x, nodes, key, keep)
}

/// The index tensors carry no gradient, so they are the inner backend's own.
fn inner<B: Backend, C: CheckpointStrategy>(block: Adjacency<Autodiff<B, C>>) -> Adjacency<B> {
    Adjacency {
        indptr: block.indptr,
        indices: block.indices,
        by_source: block.by_source,
        n_src: block.n_src,
        n_dst: block.n_dst,
        n_edges: block.n_edges,
    }
}

/// An op that is linear in its one input: its gradient needs the state, but not the input.
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

#[derive(Debug)]
struct WeightedSum;

#[derive(Debug, Clone)]
struct WeightedState<B: Backend> {
    block: Adjacency<B>,
    x: Option<FloatTensor<B>>,
    weights: Option<FloatTensor<B>>,
}

impl<B: BlockAdjoints> Backward<B, 2> for WeightedSum {
    type State = WeightedState<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [x_node, weights_node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let WeightedState { block, x, weights } = ops.state;
        if let (Some(node), Some(weights)) = (x_node, weights) {
            let grad = B::neighbor_weighted_sum_adjoint(&block, grad.clone(), weights);
            grads.register::<B>(node.id, grad);
        }
        if let (Some(node), Some(x)) = (weights_node, x) {
            grads.register::<B>(node.id, B::edge_dots(&block, x, grad));
        }
    }
}

#[derive(Debug)]
struct LinearOp;

#[derive(Debug, Clone)]
struct LinearState<B: Backend> {
    /// Whether the base is one row for all.
    base_is_row: bool,
    x: Option<FloatTensor<B>>,
    weight: Option<FloatTensor<B>>,
}

impl<B: BlockAdjoints> Backward<B, 3> for LinearOp {
    type State = LinearState<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [base_node, x_node, weight_node] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let LinearState { base_is_row, x, weight } = ops.state;
        if let (Some(node), Some(weight)) = (x_node, weight) {
            grads.register::<B>(node.id, B::linear_x_adjoint(grad.clone(), weight));
        }
        if let (Some(node), Some(x)) = (weight_node, x) {
            grads.register::<B>(node.id, B::linear_weight_adjoint(x, grad.clone()));
        }
        if let Some(node) = base_node {
            grads.register::<B>(node.id, if base_is_row { B::row_sum(grad) } else { grad });
        }
    }
}

#[derive(Debug)]
struct ReluDropout;

impl<B: BlockAdjoints> Backward<B, 1> for ReluDropout {
    type State = (FloatTensor<B>, Keep);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (output, keep) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::relu_dropout_adjoint(output, grad, keep));
        }
    }
}

#[derive(Debug)]
struct MaxOp;

impl<B: BlockAdjoints> Backward<B, 1> for MaxOp {
    type State = (Adjacency<B>, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let grad = grads.consume::<B>(&ops.node);
        let (block, edges) = ops.state;
        if let Some(parent) = parent {
            grads.register::<B>(parent.id, B::neighbor_max_adjoint(&block, edges, grad));
        }
    }
}
