//! Products of matrices and stacked rows in the autodiff graph.

use burn::backend::Autodiff;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Slice};

use crate::ops::autodiff::features;
use crate::ops::backend::{BlockAdjoints, BlockOps};

/// The factors of a product that its gradients read. The gradient of each factor reads the other one, so a factor is kept only
/// if the other one is tracked.
#[derive(Debug, Clone)]
pub(super) struct Factors<B: Backend> {
    pub(super) x: Option<FloatTensor<B>>,
    pub(super) weight: Option<FloatTensor<B>>,
    /// The element type of `x`.
    row_type: DType,
}

impl<B: BlockAdjoints> Factors<B> {
    pub(super) fn of<C: CheckpointStrategy>(
        x: &FloatTensor<Autodiff<B, C>>,
        weight: &FloatTensor<Autodiff<B, C>>,
    ) -> Self {
        Self {
            x: weight.is_tracked().then(|| x.primitive().clone()),
            weight: x.is_tracked().then(|| weight.primitive().clone()),
            row_type: x.dtype(),
        }
    }

    /// Registers the gradients of `x` and of the weight, from that of their product.
    fn register(self, nodes: [Option<NodeId>; 2], grad: &FloatTensor<B>, grads: &mut Gradients) {
        let [x_node, weight_node] = nodes;
        if let (Some(node), Some(weight)) = (x_node, self.weight) {
            let of_rows = B::linear_x_adjoint(grad.clone(), weight);
            grads.register::<B>(node, features::row_gradient::<B>(of_rows, self.row_type));
        }
        if let (Some(node), Some(x)) = (weight_node, self.x) {
            grads.register::<B>(node, B::linear_weight_adjoint(x, grad.clone()));
        }
    }
}

#[derive(Debug)]
struct ProductOp;

impl<B: BlockAdjoints> Backward<B, 2> for ProductOp {
    type State = Factors<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let nodes = ops.parents.map(|node| node.map(|node| node.id));
        let grad = grads.consume::<B>(&ops.node);
        ops.state.register(nodes, &grad, grads);
    }
}

/// The product of a matrix and a weight.
pub(super) fn product<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let factors = Factors::of::<C>(&x, &weight);
    let (x, x_node) = x.into_parts();
    let (weight, weight_node) = weight.into_parts();
    match ProductOp.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(factors, B::product(x, weight)),
        OpsKind::UnTracked(prep) => prep.finish(B::product(x, weight)),
    }
}

#[derive(Debug)]
struct LinearOp;

#[derive(Debug, Clone)]
struct LinearState<B: Backend> {
    /// True if the base is a single row, which is added to all rows.
    base_is_row: bool,
    factors: Factors<B>,
}

impl<B: BlockAdjoints> Backward<B, 3> for LinearOp {
    type State = LinearState<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let [base_node, x_node, weight_node] = ops.parents.map(|node| node.map(|node| node.id));
        let grad = grads.consume::<B>(&ops.node);
        let LinearState { base_is_row, factors } = ops.state;
        factors.register([x_node, weight_node], &grad, grads);
        if let Some(node) = base_node {
            grads.register::<B>(node, if base_is_row { B::column_sums(grad) } else { grad });
        }
    }
}

/// The sum of a base and the product of a matrix and a weight.
pub(super) fn add_linear<B: BlockOps + BlockAdjoints, C: CheckpointStrategy>(
    base: FloatTensor<Autodiff<B, C>>,
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let x = if weight.dtype() == DType::F32 { features::widened_if_tracked::<B, C>(x) } else { x };
    let base_is_row = base.primitive().shape()[0] != x.primitive().shape()[0];
    let state = LinearState { base_is_row, factors: Factors::of::<C>(&x, &weight) };
    let nodes = [base.node(), x.node(), weight.node()];
    let base = base.into_primitive();
    let x = x.into_primitive();
    let weight = weight.into_primitive();
    match LinearOp.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(state, B::add_linear(base, x, weight)),
        OpsKind::UnTracked(prep) => prep.finish(B::add_linear(base, x, weight)),
    }
}

#[derive(Debug)]
struct StackOp;

impl<B: Backend> Backward<B, 2> for StackOp {
    /// The numbers of rows of both matrices.
    type State = [usize; 2];

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [n_first, n_second] = ops.state;
        for (node, rows) in ops.parents.into_iter().zip([0..n_first, n_first..n_first + n_second]) {
            if let Some(node) = node {
                grads.register::<B>(node.id, B::float_slice(grad.clone(), &[Slice::from(rows)]));
            }
        }
    }
}

/// The rows of two matrices, one below the other.
pub(super) fn stack_rows<B: BlockOps, C: CheckpointStrategy>(
    first: FloatTensor<Autodiff<B, C>>,
    second: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let n_rows = [&first, &second].map(|rows| rows.primitive().shape()[0]);
    let (first, first_node) = first.into_parts();
    let (second, second_node) = second.into_parts();
    match StackOp.prepare::<C>([first_node, second_node]).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(n_rows, B::stack_rows(first, second)),
        OpsKind::UnTracked(prep) => prep.finish(B::stack_rows(first, second)),
    }
}
