//! `kiln predict` with a model of links: the scores of pairs, or the best destinations of each source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use clap::Args;
use kiln::data::{NodeNames, read_pairs};
use kiln::graph::{Csc, Links, NodeId};
use kiln::prelude::{PredictMode, PredictOnDataset, RankHandle};
use kiln::store::array_folder::{ArrayWriter, ElementType, FolderWriter};
use kiln::store::sha256;
use kiln::train::{
    LinkScorer, LinkScorerBuilder, ModelTask, NodePredictor, ScoredLink, TopKConfig, WantedRows,
};
use kiln::{Error, PredictionOutput};
#[cfg(feature = "tables")]
use kiln_tables::{OutputColumn, RowWriter};

use super::files::{Format, TextFile, Totals, quoted};
use super::parts::WRITING;
use super::request::{id_bytes, items};
use super::{Job, PredictArgs, progress_bar, show};
use crate::flags;
use crate::output::print_rank_zero;

/// The number of pairs that are scored and written at once.
const LINES: usize = 1 << 16;

/// The flags for a model of links.
#[derive(Debug, Args)]
#[command(next_help_heading = "Links")]
pub(super) struct LinkPredictionArgs {
    /// Scores pairs of nodes: a text file with a source and a destination per line, separated by a comma, or a `.npy`
    /// array [n, 2].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["top_k", "nodes"])]
    pairs: Option<PathBuf>,
    /// Finds the K destinations with the largest scores of each source that --nodes selects, at most 10,000, by an exact
    /// search over all nodes.
    #[arg(long, value_name = "K", value_parser = flags::top_k)]
    pub(super) top_k: Option<usize>,
    /// Leaves out destinations to which the source already has an edge in --data, prepared as for the model.
    #[arg(long, requires = "top_k")]
    pub(super) exclude_edges: bool,
}

impl LinkPredictionArgs {
    /// Checks that the flags suit the model's task.
    pub(super) fn check(&self, args: &PredictArgs, task: ModelTask) -> anyhow::Result<()> {
        let is_given = self.pairs.is_some() || self.top_k.is_some();
        if task != ModelTask::Links {
            ensure!(
                !is_given,
                "--pairs and --top-k need a model of links, and this is a model of {task}: remove them"
            );
            return Ok(());
        }
        ensure!(is_given, "the model scores links: add --pairs FILE or --top-k K");
        ensure!(!args.embeddings, "--embeddings does not apply to a model of links: remove it");
        ensure!(!args.per_rank, "--per-rank does not apply to a model of links: remove it");
        ensure!(
            !(self.exclude_edges && args.parts.is_given()),
            "--exclude-edges needs the whole graph: use --data instead of partitions"
        );
        Ok(())
    }
}

/// The links to score.
enum LinkRequest {
    Pairs(Links),
    TopK { srcs: Vec<NodeId>, config: TopKConfig },
}

impl Job<'_> {
    pub(super) fn links(&self) -> anyhow::Result<()> {
        let args = self.args;
        let mut data = args.data.load(self.model.info().evaluation.seed)?;
        if args.in_memory {
            data = data.in_memory();
        }
        print_rank_zero(&data);
        let test = data.links.as_ref().map(|links| {
            let mut srcs: Vec<NodeId> =
                links.split().test.iter().map(|link| links.links().pair(*link).0).collect();
            srcs.sort_unstable();
            srcs.dedup();
            srcs
        });
        if data.links.is_none() {
            print_rank_zero(
                "note: messages pass over all edges of the data, also over links that training held out",
            );
        }
        let predictor = self.model.on_dataset(&data)?;
        let request =
            LinkRequest::new(args, &test.unwrap_or_default(), data.graph.n_nodes(), predictor.graph())?;
        let mode = args.mode(&self.model)?;
        let names = (!data.names.is_empty()).then_some(&*data.names);
        self.launch(&request.hash(), |rank| self.score(rank, &predictor, &request, &mode, names))
    }

    pub(super) fn partitioned_links(&self) -> anyhow::Result<()> {
        let args = self.args;
        let graph = args.parts.open(args.job.tls())?;
        graph.check_ranks(args.job.n_ranks(self.launch.as_ref()))?;
        let request = LinkRequest::new(args, &[], graph.info().n_nodes, None)?;
        let mode = args.mode(&self.model)?;
        self.launch(&request.hash(), |rank| {
            let joined = graph.join(rank)?;
            let predictor = self.model.on_partitions(&joined)?;
            self.score(rank, &predictor, &request, &mode, None)
        })
    }

    /// Computes the rows of the nodes on all ranks. Rank 0 scores the links, and writes them.
    fn score(
        &self,
        rank: &RankHandle,
        predictor: &NodePredictor,
        request: &LinkRequest,
        mode: &PredictMode,
        names: Option<&NodeNames>,
    ) -> kiln::Result<Totals> {
        let predictor = predictor.with_model(&self.model_of(rank)?)?;
        let (nodes, bar) = (request.nodes(predictor.n_nodes()), progress_bar(rank));
        // The layers of exact mode have the other half of the limit.
        let memory =
            self.args.memory.map(|bytes| bytes / 2).or(self.model.info().evaluation.neighbors.memory_bytes());
        let builder = |nodes: &[NodeId]| LinkScorerBuilder::new(predictor.model(), nodes.to_vec(), memory);
        let mut rows = rank.is_zero().then(|| builder(&nodes)).transpose()?;
        let (to_bar, is_exact) = (bar.clone(), predictor.is_exact(mode));
        let predictor = predictor.on_progress(move |n_done, n_rows| show(&to_bar, n_done, n_rows));
        let output = PredictionOutput::RankZero;
        rank.predict(&predictor, &nodes, mode, WantedRows::Outputs, output, |batch| {
            if !is_exact {
                show(&bar, batch.positions.end as u64, nodes.len() as u64);
            }
            Ok(rows.as_mut().map_or(Ok(()), |rows| rows.push(&batch))?)
        })?;
        let totals = match rows {
            Some(rows) => {
                rank.with_machine_threads(|| self.write_links(&rows.finish()?, request, names, &bar))?
            }
            None => Totals::default(),
        };
        bar.finish_and_clear();
        rank.communicator("scores of links")?.barrier(WRITING)?;
        Ok(totals)
    }

    fn write_links(
        &self,
        scorer: &LinkScorer,
        request: &LinkRequest,
        names: Option<&NodeNames>,
        bar: &indicatif::ProgressBar,
    ) -> kiln::Result<Totals> {
        let failed = |error: anyhow::Error| Error::Other(error.into());
        let mut files = LinkFiles::create(&self.args.out, self.args.format, names).map_err(failed)?;
        match request {
            LinkRequest::Pairs(links) => {
                for (srcs, dsts) in links.srcs().chunks(LINES).zip(links.dsts().chunks(LINES)) {
                    let scores = scorer.score(&Links::new(srcs.to_vec(), dsts.to_vec())?)?;
                    let pairs = srcs.iter().zip(dsts).zip(scores);
                    let links = pairs.map(|((&src, &dst), score)| ScoredLink { src, dst, score });
                    files.write(&links.collect::<Vec<_>>()).map_err(failed)?;
                }
            }
            LinkRequest::TopK { srcs, config } => {
                for (part, sources) in srcs.chunks(LinkScorer::SRCS_AT_ONCE).enumerate() {
                    files.write(&scorer.top_k(sources, config)?).map_err(failed)?;
                    let n_done = part * LinkScorer::SRCS_AT_ONCE + sources.len();
                    show(bar, n_done as u64, srcs.len() as u64);
                }
            }
        }
        files.finish().map_err(failed)
    }
}

impl LinkRequest {
    /// Returns the request of the flags. `graph` has the edges that may be left out.
    fn new(
        args: &PredictArgs,
        test_srcs: &[NodeId],
        n_nodes: usize,
        graph: Option<&Arc<Csc>>,
    ) -> anyhow::Result<Self> {
        if let Some(path) = &args.links.pairs {
            return Ok(Self::Pairs(read_pairs(path, n_nodes)?));
        }
        ensure!(
            args.nodes != "test" || !test_srcs.is_empty(),
            "the data has no test links, whose sources --nodes test selects: give --nodes all or a file of ids"
        );
        let config = TopKConfig::new(args.links.top_k.unwrap_or(1));
        let config = match graph.filter(|_| args.links.exclude_edges) {
            Some(graph) => config.excluding(graph.clone())?,
            None => config,
        };
        Ok(Self::TopK { srcs: items(&args.nodes, test_srcs, n_nodes)?, config })
    }

    /// Returns the nodes whose rows are read, ascending and distinct.
    fn nodes(&self, n_nodes: usize) -> Vec<NodeId> {
        match self {
            Self::Pairs(links) => {
                let mut nodes: Vec<NodeId> =
                    links.srcs().iter().chain(links.dsts().iter()).copied().collect();
                nodes.sort_unstable();
                nodes.dedup();
                nodes
            }
            Self::TopK { .. } => (0..n_nodes as u32).map(NodeId).collect(),
        }
    }

    /// Returns the hash of the nodes of the request, which must be the same for all processes.
    fn hash(&self) -> String {
        let bytes = match self {
            Self::Pairs(links) => [id_bytes(links.srcs()), id_bytes(links.dsts())].concat(),
            Self::TopK { srcs, .. } => id_bytes(srcs),
        };
        sha256(&bytes)
    }
}

/// The file of scored links, or the two arrays. They are in a temporary folder beside the target until they are
/// complete.
struct LinkFiles<'a> {
    folder: FolderWriter,
    names: Option<&'a NodeNames>,
    rows: LinkRows,
    n_links: u64,
}

enum LinkRows {
    Csv(TextFile),
    Npy {
        links: Box<ArrayWriter>,
        scores: Box<ArrayWriter>,
    },
    #[cfg(feature = "tables")]
    Parquet(Box<RowWriter>),
}

impl<'a> LinkFiles<'a> {
    fn create(target: &Path, format: Format, names: Option<&'a NodeNames>) -> anyhow::Result<Self> {
        let folder = FolderWriter::create(target)?;
        let rows = match format {
            Format::Csv => {
                let mut file = TextFile::create(folder.folder(), "links.csv")?;
                file.write("source,source_name,destination,destination_name,score\n")?;
                LinkRows::Csv(file)
            }
            Format::Npy => LinkRows::Npy {
                links: Box::new(folder.rows("links.npy", ElementType::U32, 2)?),
                scores: Box::new(folder.vector("scores.npy", ElementType::F32)?),
            },
            #[cfg(feature = "tables")]
            Format::Parquet => {
                LinkRows::Parquet(Box::new(RowWriter::create(folder.folder().join("links.parquet"))?))
            }
        };
        let mut files = Self { folder, names, rows, n_links: 0 };
        // The file has its columns also without rows.
        files.write(&[])?;
        Ok(files)
    }

    /// Appends links. Text is read back to the same f32.
    fn write(&mut self, links: &[ScoredLink]) -> anyhow::Result<()> {
        self.n_links += links.len() as u64;
        let names = self.names;
        let name = |node| names.and_then(|names| names.get(node)).unwrap_or_default();
        match &mut self.rows {
            LinkRows::Csv(file) => {
                for &ScoredLink { src, dst, score } in links {
                    let name = |node| quoted(name(node));
                    file.write(&format!("{},{},{},{},{score}\n", src.0, name(src), dst.0, name(dst)))?;
                }
            }
            LinkRows::Npy { links: pairs, scores } => {
                pairs.push(&links.iter().flat_map(|link| [link.src.0, link.dst.0]).collect::<Vec<u32>>())?;
                scores.push(&links.iter().map(|link| link.score).collect::<Vec<f32>>())?;
            }
            #[cfg(feature = "tables")]
            LinkRows::Parquet(writer) => {
                let nodes: [Vec<u32>; 2] = [|link: &ScoredLink| link.src.0, |link: &ScoredLink| link.dst.0]
                    .map(|end| links.iter().map(end).collect());
                let texts = nodes
                    .each_ref()
                    .map(|nodes| nodes.iter().map(|node| name(NodeId(*node))).collect::<Vec<_>>());
                let scores: Vec<f32> = links.iter().map(|link| link.score).collect();
                let ends = ["source", "destination"].into_iter().zip(["source_name", "destination_name"]);
                let mut columns = Vec::new();
                for ((id, of_names), (nodes, texts)) in ends.zip(nodes.iter().zip(&texts)) {
                    columns.push((id, OutputColumn::U32(nodes)));
                    if names.is_some() {
                        columns.push((of_names, OutputColumn::Text(texts)));
                    }
                }
                columns.push(("score", OutputColumn::F32(&scores)));
                writer.write(&columns)?;
            }
        }
        Ok(())
    }

    /// Gives the folder its name.
    fn finish(mut self) -> anyhow::Result<Totals> {
        match self.rows {
            LinkRows::Csv(file) => file.finish()?,
            LinkRows::Npy { links, scores } => {
                self.folder.add(*links)?;
                self.folder.add(*scores)?;
            }
            #[cfg(feature = "tables")]
            LinkRows::Parquet(writer) => writer.finish()?,
        }
        self.folder.commit().context("the links could not be written")?;
        Ok(Totals { n_items: self.n_links, ..Totals::default() })
    }
}
