//! `kit batches`: sampled batches as `.npy` files, on which other libraries are measured.

use std::fs;
use std::path::Path;

use kiln_benches::{Input, Result};
use kiln_graph::Block;
use kiln_sample::SampledBlocks;
use kiln_store::npy;

/// Writes the first `n` batches of a data set's training nodes to `out/batch-000`, `out/batch-001` and so on. The fanouts
/// are those of the environment variable `KILN_BENCH_FANOUTS`. The batches are those of `kit steps`.
///
/// | file | type | contents |
/// |---|---|---|
/// | `nodes.npy` | u32, `[n_src]` | ids of the input rows, which are the sources of layer 0 |
/// | `labels.npy` | i32, `[n_seeds]` | classes of the last layer's destinations |
/// | `indptr-L.npy` | u32, `[n_dst + 1]` | edges of each destination of layer `L`; the destinations are the first sources |
/// | `indices-L.npy` | u32, `[n_edges]` | source of each edge, as a row of layer `L`'s input |
///
/// # Errors
/// Returns an error if the data set has no training nodes, or if a file cannot be written.
pub(crate) fn write(folder: &Path, out: &Path, n: usize) -> Result {
    let input = Input::open(folder)?;
    let classes = input.dataset.labels();
    let labels = classes.as_slice();
    let sampled = input.sampled(n)?;
    let mut n_edges = 0;
    for (number, batch) in sampled.iter().enumerate() {
        let folder = out.join(format!("batch-{number:03}"));
        fs::create_dir_all(&folder)?;
        write_batch(&folder, batch, labels)?;
        n_edges += batch.blocks.iter().map(Block::n_edges).sum::<usize>();
    }
    let line = serde_json::json!({
        "batches": sampled.len(),
        "layers": input.fanouts.len(),
        "classes": input.dataset.labels().n_classes(),
        "edges": n_edges,
    });
    fs::write(out.join("batches.json"), line.to_string())?;
    println!("{line}");
    Ok(())
}

fn write_batch(folder: &Path, batch: &SampledBlocks, labels: &[i32]) -> Result {
    let input = batch.blocks.first().ok_or("the data set has no fanouts")?;
    let seeds = batch.blocks.last().ok_or("the data set has no fanouts")?.dsts();
    let nodes: Vec<u32> = input.srcs().iter().map(|node| node.0).collect();
    let classes: Vec<i32> = seeds.iter().map(|node| labels[node.index()]).collect();
    save(folder, "nodes", &nodes)?;
    save(folder, "labels", &classes)?;
    for (layer, block) in batch.blocks.iter().enumerate() {
        let indices: Vec<u32> = block.indices().iter().map(|local| local.0).collect();
        save(folder, &format!("indptr-{layer}"), block.indptr())?;
        save(folder, &format!("indices-{layer}"), &indices)?;
    }
    Ok(())
}

fn save<T: npy::Element>(folder: &Path, name: &str, values: &[T]) -> Result {
    fs::write(folder.join(format!("{name}.npy")), npy::write(values, &[values.len()]))?;
    Ok(())
}
