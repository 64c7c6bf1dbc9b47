//! `kiln predict`.

mod data;
mod link_files;
mod link_request;
mod links;
mod rank_folders;
mod request;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kiln::comm::LaunchEnv;
use kiln::data::{NodeFeatures, Split};
use kiln::feature::Targets;
use kiln::graph::{GraphSchema, ItemId, NodeId};
use kiln::prelude::{PredictMode, PredictOn, RankHandle, SavedModel};
use kiln::sample::RelationFanouts;
use kiln::store::sha256;
use kiln::train::{
    ModelError, ModelInfo, ModelInputs, ModelRegistry, ModelTask, NodePredictor, PredictedRows, WantedRows,
};
use kiln::{PredictionFiles, PredictionOutput, PredictionRequest, PredictionTotals, SplitParts, launch};

use self::data::{OpenedGraph, PredictedGraph};
use self::links::LinkPredictionArgs;
use self::rank_folders::{check_out, part_name, totals_of_ranks, write_index};
use self::request::{Format, id_bytes, items, requested, selection};
use crate::flags::device::set_trained_precision;
use crate::flags::parse;
use crate::flags::partitions::PartitionSource;
use crate::flags::ranks::{JobArgs, convert_error};
use crate::flags::source::DataSource;
use crate::output::{be_quiet, print_rank_zero};

/// The neighbours that predictions read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// The neighbours that the run's evaluation read: for the run's data, the predictions of the run.
    AsEvaluated,
    /// All neighbours, layer by layer over the whole graph.
    Exact,
    /// Sampled neighbours, which depend on --seed and the node.
    Sampled,
}

/// The flags of `kiln predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Folder of the run, with `model.json` and `best.safetensors`.
    #[arg(long)]
    run: PathBuf,
    /// Dataset, as for `kiln train`, without preprocessing: the model repeats that of its training data. It may contain
    /// nodes that training did not have.
    #[arg(long, value_parser = DataSource::parse, default_value = "debian-packages", conflicts_with_all = ["parts", "servers"])]
    data: DataSource,
    /// Copies graph and features into memory.
    #[arg(long, conflicts_with_all = ["parts", "servers"])]
    in_memory: bool,
    /// Node features, for graph classification. Default: those of training.
    #[arg(long, value_parser = parse::node_features())]
    node_features: Option<NodeFeatures>,
    /// Nodes (or graphs) to predict, or the sources of --top-k: `test` (the test split of the data; of graphs, that of the
    /// run's seed; of links, the sources of the test links), `all`, or a file of ids, `.npy` or text with one id per line.
    #[arg(long, value_name = "test|all|FILE", default_value = "test")]
    nodes: String,
    /// Nodes to predict, or the sources of --top-k, by their names: a text file with one name per line, such as the keys of imported tables.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "parts", "servers"])]
    keys: Option<PathBuf>,
    #[command(flatten)]
    links: LinkPredictionArgs,
    /// New or empty folder for the results. It appears when all its files are complete.
    #[arg(long)]
    out: PathBuf,
    /// Writes a folder per rank, such as `part-00000-of-00004`, with a consecutive range of the nodes or graphs, and
    /// `index.json` with their ranges, instead of one result on rank 0: for many nodes, or if the ranks share no folder.
    #[arg(long)]
    per_rank: bool,
    /// Also writes the embeddings of nodes: the inputs of the model's last layer.
    #[arg(long)]
    embeddings: bool,
    /// Format of scores and embeddings.
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,
    /// Neighbours that predictions read.
    #[arg(long, value_enum, default_value = "as-evaluated")]
    mode: Mode,
    /// Neighbours per node of `--mode sampled`, as for `kiln train`: a number or `all` per layer, input layer first, or one
    /// for all layers, also for relations by name, such as `10,10;depends=5,5`. Default: those of training.
    #[arg(long)]
    fanouts: Option<RelationFanouts>,
    /// Seed of `--mode sampled`. Default: 0.
    #[arg(long)]
    seed: Option<u64>,
    /// Memory limit of `--mode exact` for layer outputs, and of the rows that --pairs and --top-k read, such as 512MiB;
    /// the rest is written to temporary files (TMPDIR). Scores and embeddings are written batch by batch. Default: no
    /// limit.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    parts: PartitionSource,
}

/// A prediction job: the flags, the model on the device of this process's first rank, and the launcher's settings.
struct Job<'a> {
    args: &'a PredictArgs,
    model: SavedModel,
    /// The local rank on whose device the model is.
    local_rank: usize,
    launch: Option<LaunchEnv>,
    started: Instant,
}

/// Runs `kiln predict`.
pub(crate) fn run(args: &PredictArgs) -> anyhow::Result<()> {
    let launch = args.job.launch()?;
    if launch.as_ref().is_some_and(|launch| launch.rank != 0) {
        be_quiet();
    }
    let local_rank = launch.as_ref().map_or(0, |launch| launch.local_rank);
    let model = open_model(args, local_rank)?;
    check_out(&args.out)?;
    set_trained_precision(model.info().precision.as_deref(), &args.job.device);
    let ModelInfo { kind, inputs, .. } = model.info();
    let &ModelInputs { task, ref data_name, n_features, n_outputs, .. } = inputs;
    print_rank_zero(format_args!(
        "{kind} for {task}, trained on {data_name}: {n_features} features, {n_outputs} outputs"
    ));
    if args.mode == Mode::AsEvaluated
        && let Some(note) = model.info().note_on_draws()
    {
        print_rank_zero(format_args!("note: {note}"));
    }
    args.parts.check()?;
    args.links.check(args, task)?;
    ensure!(
        args.node_features.is_none() || task == ModelTask::Graphs,
        "--node-features does not apply to a model of {task}: remove it"
    );
    let job = Job { args, model, local_rank, launch, started: Instant::now() };
    ensure!(
        args.keys.is_none() || task != ModelTask::Graphs,
        "--keys does not apply to a model of {task}: use --nodes"
    );
    match task {
        ModelTask::Nodes => job.nodes(),
        ModelTask::Links => job.links(),
        ModelTask::Graphs => job.graphs(),
    }
}

fn open_model(args: &PredictArgs, local_rank: usize) -> kiln::Result<SavedModel> {
    let device = &args.job.device.of_rank(local_rank).device;
    Ok(SavedModel::open_with(&args.run, &ModelRegistry::default(), device)?)
}

impl Job<'_> {
    /// Opens the graph of the flags and prints a summary.
    fn open(&self) -> anyhow::Result<OpenedGraph> {
        let args = self.args;
        let inputs = &self.model.info().inputs;
        if args.parts.is_given() {
            return self.open_partitions(inputs);
        }
        if inputs.graph.is_none() && args.data.is_heterogeneous()? {
            return Err(kiln::train::Error::from(ModelError::NotHeterogeneous).into());
        }
        let data = args.data.load(self.model.info().evaluation.seed)?;
        let data = if args.in_memory { data.in_memory() } else { data };
        print_rank_zero(&data);
        let mut graph = PredictedGraph::from(data);
        if let Some(hash) = args.data.recorded_hash()? {
            graph.source = graph.source.with_hash(hash);
        }
        Ok(OpenedGraph::Whole(graph))
    }

    /// Opens the partitions of the flags, and checks that they suit the model and the ranks.
    fn open_partitions(&self, inputs: &ModelInputs) -> anyhow::Result<OpenedGraph> {
        let job = &self.args.job;
        let graph = self.args.parts.open(job.tls())?;
        let info = graph.info();
        match (info.is_heterogeneous, &inputs.graph) {
            (true, Some(_)) | (false, None) => {}
            (false, Some(_)) => bail!(
                "the partitions are of a graph with one type of nodes, and the model is of a heterogeneous graph: use partitions of its \
                 training data"
            ),
            (true, None) => bail!(
                "the partitions are of a heterogeneous graph, and the model is not: use partitions of its training data"
            ),
        }
        let schema = info.schema.clone();
        job.share_partitions(&graph, self.launch.as_ref())?;
        Ok(OpenedGraph::Partitioned(graph, schema))
    }

    /// Predicts nodes; of a heterogeneous graph, those of the type that had targets in training, numbered within the type.
    fn nodes(&self) -> anyhow::Result<()> {
        let args = self.args;
        let graph = self.open()?;
        let whole = graph.whole().map(|graph| self.node_request(graph)).transpose()?;
        // A partitioned graph without the type is an error before the ranks start.
        self.node_type(graph.schema())?;
        let mode = args.mode(&self.model)?;
        let request = match &whole {
            Some((_, request)) => sha256(&id_bytes(&request.items)),
            None => selection(args)?,
        };
        self.launch(&graph.identity(request), |rank| {
            let (predictor, request) = match &whole {
                Some(prepared) => prepared.clone(),
                None => self.node_request(&graph.join(rank)?).map_err(convert_error)?,
            };
            self.predict_nodes(rank, &predictor, request, &mode, &progress_bar(rank))
        })
    }

    /// Returns the predictor and the request of the nodes of a graph.
    fn node_request(
        &self,
        graph: &PredictedGraph,
    ) -> anyhow::Result<(NodePredictor, PredictionRequest<NodeId>)> {
        let predictor = self.model.on_nodes(&graph.source)?;
        let n_nodes = predictor.n_nodes();
        let node_type = self.node_type(graph.source.schema())?;
        let names = graph.names(node_type);
        let (targets, split) = graph.targets(node_type);
        let nodes = requested(self.args, &split.test, n_nodes, names.as_deref())?;
        let parts = SplitParts::new(n_nodes, &split);
        let request = PredictionRequest { names, ..self.request(nodes, targets, parts) };
        Ok((predictor, request))
    }

    /// Returns the position of the type of nodes that the model predicts.
    fn node_type(&self, schema: &GraphSchema) -> anyhow::Result<usize> {
        let Some(info) = &self.model.info().inputs.graph else { return Ok(0) };
        let position = schema.types().position(&info.target_type);
        position.context("the data lacks the type of nodes that the model predicts")
    }

    /// Predicts nodes on one rank. Shows the progress on the bar, and clears it.
    fn predict_nodes(
        &self,
        rank: &RankHandle,
        predictor: &NodePredictor,
        request: PredictionRequest<NodeId>,
        mode: &PredictMode,
        bar: &ProgressBar,
    ) -> kiln::Result<PredictionTotals> {
        let predictor = predictor.with_model(&self.model_of(rank)?)?;
        let nodes = request.items.clone();
        let to_bar = bar.clone();
        let is_exact = predictor.is_exact(mode);
        let predictor = predictor.on_progress(move |n_done, n_rows| show(&to_bar, n_done, n_rows));
        let wanted = if self.args.embeddings { WantedRows::Both } else { WantedRows::Outputs };
        let embedding_width = if self.args.embeddings { embedding_width(&predictor)? } else { None };
        let request = PredictionRequest { embedding_width, ..request };
        if !is_exact {
            // A request that is invalid is an error before the first file.
            predictor.batches(&nodes, mode, wanted)?;
        }
        let totals = self.write(rank, request, |output, each| {
            rank.predict(&predictor, &nodes, mode, wanted, output, |rows| {
                if !is_exact {
                    show(bar, rows.positions.end as u64, nodes.len() as u64);
                }
                each(&rows)
            })
        });
        bar.finish_and_clear();
        totals
    }

    /// Returns the request for items, without names and embeddings.
    fn request<I: ItemId>(
        &self,
        items: Vec<I>,
        targets: Targets<I>,
        parts: SplitParts,
    ) -> PredictionRequest<I> {
        PredictionRequest {
            items: items.into(),
            targets,
            parts,
            names: None,
            model: self.model.clone(),
            format: self.args.format.into(),
            embedding_width: None,
        }
    }

    /// Returns the model on the device of a rank.
    fn model_of(&self, rank: &RankHandle) -> kiln::Result<SavedModel> {
        match self.args.job.device.len() == 1 || rank.local_index() == self.local_rank {
            true => Ok(self.model.clone()),
            false => open_model(self.args, rank.local_index()),
        }
    }

    fn graphs(&self) -> anyhow::Result<()> {
        let args = self.args;
        let of_nodes = [
            ("--embeddings", args.embeddings),
            ("--mode", args.mode != Mode::AsEvaluated),
            ("--fanouts", args.fanouts.is_some()),
            ("--seed", args.seed.is_some()),
            ("--memory", args.memory.is_some()),
            ("--in-memory", args.in_memory),
            ("--parts", args.parts.is_given()),
        ];
        if let Some((flag, _)) = of_nodes.into_iter().find(|(_, is_given)| *is_given) {
            bail!("{flag} does not apply to a model of graphs: remove it");
        }
        let (data, split) = args.data.load_graphs()?;
        let features = match args.node_features {
            Some(kind) => data.node_features(kind)?,
            None => self.model.node_features(&data)?,
        };
        // `kiln train` splits sets without a split of their own by the seed of the run.
        let seed = self.model.info().evaluation.seed;
        let split = split.map_or_else(|| Split::random(data.n_graphs(), [0.8, 0.1], seed), Ok)?;
        let graphs = items(&args.nodes, &split.test, data.n_graphs())?;
        let parts = SplitParts::new(data.n_graphs(), &split);
        let request = self.request(graphs, data.targets(), parts);
        self.launch(&sha256(&id_bytes(&request.items)), |rank| {
            let model = self.model_of(rank)?;
            let batches =
                model.graph_batches(data.graph(), data.node_offsets(), &features, &request.items)?;
            self.write(rank, request.clone(), |output, each| {
                rank.predict_batches(&batches, output, |rows| each(&rows))
            })
        })
    }

    /// Runs `body` on each rank of this process and prints the result. `request` identifies the items, which must be
    /// the same for all processes.
    fn launch(
        &self,
        request: &str,
        body: impl Fn(&RankHandle) -> kiln::Result<PredictionTotals> + Sync,
    ) -> anyhow::Result<()> {
        let Self { args, model, launch: environment, started, .. } = self;
        let mut config = args.job.config(environment.as_ref())?;
        if environment.is_some() {
            let info = serde_json::to_vec(model.info()).context("describing the model")?;
            config = config.agree_on("the model", sha256(&info)).agree_on("the requested items", request);
            let PredictArgs { mode, fanouts, seed, per_rank, embeddings, memory, links, .. } = args;
            let of_links = (links.top_k, links.exclude_edges);
            let flags =
                format!("{mode:?} {fanouts:?} {seed:?} {per_rank} {embeddings} {memory:?} {of_links:?}");
            config = config.agree_on("the flags of predictions", flags);
            config = config.agree_on("place of the partitions", args.parts.holders(None));
        }
        launch(config, |rank| {
            if environment.is_some() {
                print_rank_zero(rank.description());
            }
            let of_ranks = totals_of_ranks(&rank, body(&rank)?)?;
            if rank.is_zero() {
                if args.per_rank {
                    write_index(&args.out, &of_ranks)?;
                }
                let totals = PredictionTotals::sum(&of_ranks);
                let seconds = started.elapsed().as_secs_f64();
                let items = match model.info().inputs.task {
                    ModelTask::Graphs => "graphs".to_owned(),
                    task => task.to_string(),
                };
                print_rank_zero(format_args!("{} {items} predicted in {seconds:.2} s", totals.n_items));
                for line in totals.non_finite_note().into_iter().chain(totals.accuracies()) {
                    print_rank_zero(line);
                }
                print_rank_zero(format_args!("files           {}", args.out.display()));
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Writes the files of a rank: `predict` computes the rows and passes them to a callback. Without `--per-rank`, only
    /// rank 0 writes.
    fn write<I: ItemId>(
        &self,
        rank: &RankHandle,
        request: PredictionRequest<I>,
        predict: impl FnOnce(
            PredictionOutput,
            &mut dyn FnMut(&PredictedRows) -> kiln::Result<()>,
        ) -> kiln::Result<()>,
    ) -> kiln::Result<PredictionTotals> {
        let (folder, output) = match self.args.per_rank {
            true => {
                let name = part_name(rank.index(), rank.world_size());
                (self.args.out.join(name), PredictionOutput::EachRank)
            }
            false => (self.args.out.clone(), PredictionOutput::RankZero),
        };
        let is_writer = self.args.per_rank || rank.is_zero();
        let mut files = is_writer.then(|| PredictionFiles::create(&folder, request)).transpose()?;
        predict(output, &mut |rows| match &mut files {
            Some(files) => files.write(rows),
            None => Ok(()),
        })?;
        files.map_or(Ok(PredictionTotals::default()), PredictionFiles::finish)
    }
}

/// Returns the width of the embeddings; `None` if it is unknown, because the type that is predicted has no nodes.
fn embedding_width(predictor: &NodePredictor) -> kiln::Result<Option<usize>> {
    match predictor.embedding_width() {
        Err(kiln::train::Error::NotLayerWise) if predictor.n_nodes() == 0 => Ok(None),
        width => Ok(Some(width?)),
    }
}

fn progress_bar(rank: &RankHandle) -> ProgressBar {
    if !rank.is_zero() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length();
    let style = ProgressStyle::with_template("{bar:30} row {pos}/{len}  {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn show(bar: &ProgressBar, n_done: u64, n_rows: u64) {
    bar.set_length(n_rows);
    bar.set_position(n_done);
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use kiln::graph::{NodeTypes, RelationEdges};
    use kiln::prelude::*;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        predict: PredictArgs,
    }

    /// Pages that link to the next page, of two classes.
    fn pages() -> Dataset {
        let next: Vec<u32> = (0..100).map(|page| (page + 1) % 100).collect();
        let all: Vec<u32> = (0..100).collect();
        let links = RelationEdges {
            name: "links",
            src_type: "page",
            dst_type: "page",
            srcs: &all,
            dsts: &next,
            weights: None,
            columns: None,
        };
        Dataset::builder_with_types(NodeTypes::new([("page", 100)]).unwrap())
            .relation(links)
            .nodes("page")
            .features(vec![0.5; 100], 1)
            .nodes("page")
            .labels((0..100).map(|page| page % 2).collect::<Vec<i32>>(), 2)
            .split(all[..40].to_vec(), all[40..60].to_vec(), all[60..].to_vec())
            .build()
            .unwrap()
    }

    #[test]
    fn predictions_of_heterogeneous_nodes_show_their_progress() {
        let root = tempfile::tempdir().unwrap();
        let [run, out] = ["run", "out"].map(|name| root.path().join(name));
        let data = pages();
        let loader = NeighborLoader::new(&data, [2]).batch_size(8).workers(0);
        let config = HeteroModelConfig::new(data.dims(), RsageConfig::new(1, 2).layers(1));
        let fit = FitConfig::epochs(1).out(&run).quiet();
        Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, fit).unwrap();
        let model = SavedModel::open(&run).unwrap();
        let flags = format!("kiln --run {} --out {}", run.display(), out.display());
        let args = Flags::try_parse_from(flags.split(' ')).unwrap().predict;
        let job = Job { args: &args, model, local_rank: 0, launch: None, started: Instant::now() };
        let (predictor, request) = job.node_request(&data.into()).unwrap();
        let bar = ProgressBar::hidden();
        launch(RankConfig::threads(1), |rank| {
            job.predict_nodes(&rank, &predictor, request.clone(), &PredictMode::AsEvaluated, &bar)
        })
        .unwrap();
        assert_eq!((bar.position(), bar.length()), (40, Some(40)));
    }
}
