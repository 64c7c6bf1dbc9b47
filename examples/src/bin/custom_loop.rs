//! Trains GraphSAGE on the built-in dataset in a training loop of its own, by the focal loss.
//!
//! ```text
//! cargo run --release --bin custom_loop
//! ```

use kiln::burn::tensor::Tensor;
use kiln::burn::tensor::activation::log_softmax;
use kiln::prelude::*;
use kiln::train::LossTargets;

kiln::use_allocator!();

/// Computes the focal loss of Lin et al. 2017 with γ = 2 for each node: well classified nodes count less.
pub(crate) fn focal(outputs: Tensor<2>, targets: &LossTargets<'_>) -> Tensor<1> {
    let classes = targets.classes().unsqueeze_dim(1);
    let log_p = log_softmax(outputs, 1).gather(1, classes).squeeze_dim::<1>(1);
    log_p.clone().exp().neg().add_scalar(1.0).square() * log_p.neg()
}

/// The batches of nodes and their neighbours.
pub(crate) fn loader(data: &Dataset) -> NeighborLoader {
    NeighborLoader::new(data, [10, 10]).batch_size(512)
}

/// The model, its optimizer and the seed.
pub(crate) fn setup(data: &Dataset) -> Trainer<SageConfig> {
    Trainer::new(SageConfig::for_data(data).layers(2).hidden(128), AdamConfig::new(3e-3)).seed(1)
}

/// Trains, prints the loss and the validation accuracy of each epoch, and returns them and the test accuracy.
pub(crate) fn train(data: &Dataset, n_epochs: usize) -> Result<(Vec<[f64; 2]>, f64)> {
    let loader = loader(data);
    let setup = setup(data);
    let mut trainer = setup.start(&loader)?;
    let loaders = setup.loaders(&loader, &trainer)?;
    let mut epochs = Vec::new();
    for epoch in 1..=n_epochs {
        for batch in loaders.train.epoch(trainer.next_phase()) {
            let gradients = trainer.gradients(&batch?, |outputs, input| {
                let targets = input.loss_targets(&outputs);
                focal(outputs, &targets)
            })?;
            trainer.update(gradients)?;
        }
        let loss = trainer.end_epoch()?.counts.loss();
        let val = loaders.evaluate(&mut trainer, Phase::Validation)?;
        println!("epoch {epoch:2}  loss {loss:.4}  validation accuracy {:.4}", val.accuracy());
        epochs.push([loss, val.accuracy()]);
    }
    Ok((epochs, loaders.evaluate(&mut trainer, Phase::Test)?.accuracy()))
}

fn main() -> Result<()> {
    kiln::print_log();
    let data = Dataset::open("debian-packages")?.standardize()?;
    let (_, accuracy) = train(&data, 10)?;
    println!("test accuracy {accuracy:.4}");
    Ok(())
}
