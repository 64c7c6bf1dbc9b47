//! Trains GraphSAGE on a graph built from arrays: the first program of the README of `kiln`. It reaches a test accuracy of 1.00.
//!
//! ```text
//! cargo run --release --bin own_edge_list
//! ```

use kiln::prelude::*;
kiln::use_allocator!();

fn main() -> Result<()> {
    // The edge list has 4 communities. Each node has 16 noisy features, of which 4 are larger in its community.
    let (n_nodes, n_classes, dim) = (4_000_u32, 4, 16);
    let steps = [4, 16, 64, 256, 1024];
    let srcs: Vec<u32> = (0..n_nodes).flat_map(|node| [node; 5]).collect();
    let dsts: Vec<u32> = (0..n_nodes).flat_map(|node| steps.map(|step| (node + step) % n_nodes)).collect();
    let y: Vec<i32> = (0..n_nodes as i32).map(|node| node % n_classes).collect();
    let noise = |i: usize| (i as u32).wrapping_mul(0x9E37_79B9) as f32 / u32::MAX as f32;
    let signal = |i: usize| if i as i32 % n_classes == y[i / dim] { 0.5 } else { 0.0 };
    let x = (0..n_nodes as usize * dim).map(|i| noise(i) + signal(i)).collect::<Vec<f32>>();
    let part = |tenths: std::ops::Range<u32>| {
        (0..n_nodes).filter(|v| tenths.contains(&(v / 4 % 10))).collect::<Vec<u32>>()
    };

    let data = Dataset::builder(n_nodes as usize)
        .edges(&srcs, &dsts)
        .symmetrize()
        .features(x, dim)
        .labels(y, n_classes as usize)
        .split(part(0..6), part(6..8), part(8..10))
        .build()?;
    let loader = NeighborLoader::new(&data, [10, 10, 10]).batch_size(256);
    let mut trainer = Trainer::new(SageConfig::for_data(&data).hidden(64), AdamConfig::new(3e-3)).seed(0);
    let best = trainer.fit(&loader, FitConfig::epochs(10).out("runs/mine"))?;
    println!("test accuracy {:.4}", best.evaluate(&loader, Phase::Test)?.accuracy());
    Ok(())
}
