//! Stage `sample`: samples and relabels the blocks of fresh batches, on one thread as in a loader's worker; `-workers`
//! uses a loader with one worker per thread. The rate counts edges of the blocks. `links` draws one negative per link and
//! excludes the edges of the step's links, in both directions; `nodes-of-links` samples the same seeds without both. `timed`
//! gives each edge and each seed a random time, so that a seed shares no row with another one; `recent` picks the latest edges.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use kiln_benches::{BATCH_SIZE, Endless, Input, Result, Stage, Work, inputs, n_threads};
use kiln_graph::{Block, Csc, LinkId, Links, NodeId};
use kiln_loader::{
    BatchError, Batcher, LinkBatch, LinkBatcher, Loader, LoaderConfig, Phase, SeedBatch, StageTimes,
};
use kiln_sample::{
    FrontierSampler, Negatives, NeighborSampler, RngKey, Rule, SampledBlocks, Scratch, Seeds,
    UniformNegatives,
};

/// The number of batches that a bench cycles through. The cache lines that these batches read exceed most caches.
const N_BATCHES: usize = 16;

/// The number of batches that are timed together if several workers sample, because batches arrive in groups.
const N_TOGETHER: u32 = 8;

pub(crate) fn main() -> Result {
    let mut stage = Stage::new("sample");
    for input in inputs()? {
        let graph = &input.dataset.graph;
        let fanouts = input.fanouts_name();
        let times = random_times(RngKey::new(1), graph.relation(0).graph.n_edges() as usize);
        let timed = Arc::new(Csc::clone(&graph.relation(0).graph).with_edge_times(times)?);
        let replacement = NeighborSampler::with_rule(
            Arc::clone(&graph.relation(0).graph),
            input.fanouts.clone(),
            Rule::UniformWithReplacement,
        );
        bench(&mut stage, &format!("uniform-{fanouts}"), &input, &input.sampler(), untimed, work)?;
        for (name, rule) in [("timed", Rule::Uniform), ("recent", Rule::MostRecent)] {
            let sampler = NeighborSampler::with_rule(Arc::clone(&timed), input.fanouts.clone(), rule);
            bench(&mut stage, &format!("{name}-{fanouts}"), &input, &sampler, timed_seeds, work)?;
        }
        bench(&mut stage, &format!("replacement-{fanouts}"), &input, &replacement, untimed, work)?;
        // Whole neighbourhoods are read sequentially, so the ceiling of random reads does not apply.
        let without_ceiling =
            |input: &Input, sampled: &[SampledBlocks], threads| work(input, sampled, threads).lines(0, 0);
        bench(
            &mut stage,
            "full-1",
            &input,
            &NeighborSampler::full(Arc::clone(&graph.relation(0).graph), 1),
            untimed,
            without_ceiling,
        )?;
        bench_workers(&mut stage, &format!("uniform-{fanouts}-workers"), &input)?;
        bench_links(&mut stage, &fanouts, &input)?;
    }
    stage.finish();
    Ok(())
}

fn bench(
    stage: &mut Stage,
    variant: &str,
    input: &Input,
    sampler: &impl FrontierSampler,
    seeds_of: impl Fn(&SeedBatch) -> Seeds,
    work: impl Fn(&Input, &[SampledBlocks], usize) -> Work,
) -> Result {
    let batches = input.batches(N_BATCHES)?;
    let mut scratch = Scratch::default();
    let mut sample = |batch: &SeedBatch| {
        let sampled = sampler.sample_blocks(&seeds_of(batch), batch.key, &mut scratch);
        sampled.expect("the seeds should be nodes of the graph")
    };
    let sampled: Vec<SampledBlocks> = batches.iter().map(&mut sample).collect();
    let work = work(input, &sampled, 1);
    drop(sampled);
    let mut next = 0;
    stage.bench(variant, &input.name, work, |bencher| {
        bencher.iter(|| {
            next = (next + 1) % batches.len();
            sample(&batches[next])
        });
    })
}

fn untimed(batch: &SeedBatch) -> Seeds {
    Seeds::nodes(batch.seeds.clone())
}

fn timed_seeds(batch: &SeedBatch) -> Seeds {
    let times = random_times(batch.key, batch.seeds.len());
    untimed(batch).with_times(times)
}

/// Draws times of a range that 32 bits do not hold.
fn random_times(key: RngKey, n_times: usize) -> Vec<i64> {
    let mut rng = key.node(NodeId(0)).rng();
    (0..n_times).map(|_| i64::from(rng.next_u32()) << 8).collect()
}

fn bench_workers(stage: &mut Stage, variant: &str, input: &Input) -> Result {
    let config = LoaderConfig { workers: n_threads(), ..LoaderConfig::default() };
    let loader = Loader::new(input.items(BATCH_SIZE)?, SampleOnly(input.sampler()), config)?;
    let work = work(input, &input.sampled(N_BATCHES)?, n_threads());
    let mut batches = Endless::new(loader);
    let mut take = || batches.next().map(|batch| batch.expect("the seeds should be nodes of the graph"));
    stage.bench(variant, &input.name, work, |bencher| {
        bencher.iter_custom(|n| {
            // The workers prefetched these batches outside the measured time, so they are discarded.
            (0..N_TOGETHER).for_each(|_| drop(take()));
            let started = Instant::now();
            (0..n * u64::from(N_TOGETHER)).for_each(|_| drop(black_box(take())));
            started.elapsed() / N_TOGETHER
        });
    })
}

/// Benches batches of links, and the same seeds as batches of nodes.
fn bench_links(stage: &mut Stage, fanouts: &str, input: &Input) -> Result {
    let links = links(input.dataset.csc()?);
    let negatives = Negatives::new(UniformNegatives { dsts: 0..input.dataset.graph.n_nodes() as u32 }, 1);
    let batcher = LinkBatcher::new(SampleOnly(input.sampler()), links.clone(), negatives);
    let mut scratch = Scratch::default();
    let mut times = StageTimes::default();
    let batches: Vec<SeedBatch<LinkId>> = (0..N_BATCHES)
        .map(|step| {
            let seeds = (0..BATCH_SIZE).map(|row| LinkId((step * BATCH_SIZE + row) as u32)).collect();
            SeedBatch::new(Phase::Train { epoch: 0 }, step, RngKey::new(step as u64), seeds)
        })
        .collect();
    let mut seeds = Vec::with_capacity(N_BATCHES);
    let mut sampled = Vec::with_capacity(N_BATCHES);
    for batch in &batches {
        let LinkBatch { nodes, .. } = batcher.batch(batch.clone(), &mut scratch, &mut times)?;
        seeds.push(nodes.seeds.excluding(None));
        sampled.push(nodes.sampled);
    }
    let work = work(input, &sampled, 1);
    drop(sampled);
    let mut next = 0;
    stage.bench(&format!("links-{fanouts}"), &input.name, work, |bencher| {
        bencher.iter(|| {
            next = (next + 1) % N_BATCHES;
            let batch = batcher.batch(batches[next].clone(), &mut scratch, &mut times);
            batch.expect("the links should be edges of the graph").nodes.sampled
        });
    })?;
    let sampler = input.sampler();
    stage.bench(&format!("nodes-of-links-{fanouts}"), &input.name, work, |bencher| {
        bencher.iter(|| {
            next = (next + 1) % N_BATCHES;
            let sampled = sampler.sample_blocks(&seeds[next], batches[next].key, &mut scratch);
            sampled.expect("the seeds should be nodes of the graph")
        });
    })
}

/// Returns edges of a graph for all batches, at equal distances in the order of destinations, and shuffled by a fixed
/// step, so that a batch contains edges of all regions.
fn links(graph: &Csc) -> Links {
    let n_links = N_BATCHES * BATCH_SIZE;
    let n_edges = graph.n_edges() as usize;
    let dst_of =
        |edge: usize| NodeId((graph.indptr().partition_point(|&start| start <= edge as u64) - 1) as u32);
    let edges: Vec<usize> = (0..n_links)
        .map(|link: usize| (link * 7_919 % n_links) * (n_edges / n_links).max(1) % n_edges)
        .collect();
    let srcs: Vec<NodeId> = edges.iter().map(|&edge| graph.indices()[edge]).collect();
    let dsts: Vec<NodeId> = edges.iter().map(|&edge| dst_of(edge)).collect();
    Links::new(srcs, dsts).expect("there should be few links")
}

/// Returns the mean work of these batches in cache lines: one line of `indices` per edge, one of the relabelling table
/// per new node, and two per destination (its entry of `indptr` and its first edge).
fn work(input: &Input, sampled: &[SampledBlocks], threads: usize) -> Work {
    let mean_of = |count: fn(&Block) -> usize| {
        let all: usize = sampled.iter().flat_map(|batch| &batch.blocks).map(count).sum();
        (all / sampled.len()) as u64
    };
    let indices_bytes = 4 * input.dataset.graph.n_edges();
    Work::new(mean_of(Block::n_edges), "edges", threads).lines(
        mean_of(|block: &Block| block.n_edges() + (block.n_src() - block.n_dst()) + 2 * block.n_dst()),
        indices_bytes,
    )
}

/// A batcher that samples blocks, but gathers neither features nor labels.
struct SampleOnly(NeighborSampler);

/// The blocks of a batch, and its seeds.
struct SampledSeeds {
    seeds: Seeds,
    sampled: SampledBlocks,
}

impl Batcher for SampleOnly {
    type Item = NodeId;
    type Batch = SampledSeeds;
    type Scratch = Scratch;

    fn batch(
        &self,
        batch: SeedBatch,
        scratch: &mut Scratch,
        _: &mut StageTimes,
    ) -> std::result::Result<SampledSeeds, BatchError> {
        let seeds = Seeds::nodes(batch.seeds).excluding(batch.excluded);
        let sampled = self.0.sample_blocks(&seeds, batch.key, scratch)?;
        Ok(SampledSeeds { seeds, sampled })
    }

    fn n_bytes(batch: &SampledSeeds) -> usize {
        batch.sampled.blocks.iter().map(Block::n_bytes).sum()
    }
}
