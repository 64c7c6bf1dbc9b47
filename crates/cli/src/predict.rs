//! `kiln predict`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kiln::data::{NodeFeatures, Split, read_ids};
use kiln::feature::TargetKind;
use kiln::graph::ItemId;
use kiln::kernels::Devices;
use kiln::prelude::{PredictMode, PredictOnDataset, SavedModel};
use kiln::sample::Fanout;
use kiln::store::{npy, whole_file::write_whole};
use kiln::train::{LayerWiseConfig, ModelRegistry, ModelTask};

use crate::flags;
use crate::output::print_rank_zero;
use crate::predicted::{Predicted, rows_csv};
use crate::source::DataSource;

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

/// The format of scores and embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text, one line per node or graph, which begins with its id.
    Csv,
    /// NumPy arrays of f32, with the ids in `items.npy`.
    Npy,
}

/// The flags of `kiln predict`.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Folder of the run, with `model.json` and `best.safetensors`.
    #[arg(long)]
    run: PathBuf,
    /// Dataset, as for `kiln train`, without preprocessing: the model repeats that of its training data. It may contain
    /// nodes that training did not have.
    #[arg(long, value_parser = flags::data, default_value = "debian-packages")]
    data: DataSource,
    /// Copies graph and features into memory.
    #[arg(long)]
    in_memory: bool,
    /// Node features, for graph classification: as in training.
    #[arg(long, default_value = "auto", value_parser = flags::node_features())]
    node_features: NodeFeatures,
    /// Nodes (or graphs) to predict: `test` (the test split of the data; of graphs, that of the run's seed), `all`, or
    /// a file of ids, `.npy` or text with one id per line.
    #[arg(long, value_name = "test|all|FILE", default_value = "test")]
    nodes: String,
    /// New or empty folder for the results.
    #[arg(long)]
    out: PathBuf,
    /// Also writes the embeddings of nodes: the inputs of the model's last layer.
    #[arg(long)]
    embeddings: bool,
    /// Format of scores and embeddings.
    #[arg(long, value_enum, default_value = "csv")]
    format: Format,
    /// Neighbours that predictions read.
    #[arg(long, value_enum, default_value = "as-evaluated")]
    mode: Mode,
    /// Neighbours per node of `--mode sampled`: a number or `all` per layer, input layer first. Default: those of
    /// training.
    #[arg(long, value_delimiter = ',', value_parser = flags::fanouts)]
    fanouts: Option<Vec<Fanout>>,
    /// Seed of `--mode sampled`. Default: 0.
    #[arg(long)]
    seed: Option<u64>,
    /// Memory limit of `--mode exact` for layer outputs, such as 512MiB; the rest is written to temporary files
    /// (TMPDIR). The scores and embeddings of the requested nodes are not included. Default: no limit.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    memory: Option<u64>,
    /// Compute device: `cpu`, or with the feature of that name `cuda`, `wgpu` or `cube-cpu`.
    #[arg(long, value_parser = |names: &str| Devices::open(names), default_value = "cpu")]
    device: Devices,
}

/// Runs `kiln predict`.
pub(crate) fn run(args: &PredictArgs) -> anyhow::Result<()> {
    let device = &args.device.of_rank(0).device;
    let model = SavedModel::open_with(&args.run, &ModelRegistry::default(), device)?;
    check_out(&args.out)?;
    let inputs = &model.info().inputs;
    print_rank_zero(format_args!(
        "{} for {}, trained on {}: {} features, {} outputs",
        model.info().kind,
        inputs.task,
        inputs.data_name,
        inputs.n_features,
        inputs.n_outputs
    ));
    match inputs.task {
        ModelTask::Nodes => predict_nodes(args, &model),
        ModelTask::Graphs => predict_graphs(args, &model),
        ModelTask::Links => {
            bail!("the model scores links, expected one of nodes or graphs: use NodePredictor::score_links")
        }
    }
}

fn predict_nodes(args: &PredictArgs, model: &SavedModel) -> anyhow::Result<()> {
    let mut data = args.data.load(model.info().evaluation.seed)?;
    if args.in_memory {
        data = data.in_memory();
    }
    print_rank_zero(&data);
    let nodes = items(&args.nodes, &data.split.test, data.graph.n_nodes())?;
    let mode = args.mode(model)?;
    let bar = progress_bar();
    let to_bar = bar.clone();
    let predictor = model.on_dataset(&data)?.on_progress(move |n_done, n_rows| {
        to_bar.set_length(n_rows);
        to_bar.set_position(n_done);
    });
    let started = Instant::now();
    let (scores, embeddings) = match args.embeddings {
        true => predictor.predict_and_embed(&nodes, &mode).map(|(scores, rows)| (scores, Some(rows)))?,
        false => (predictor.predict(&nodes, &mode)?, None),
    };
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    print_rank_zero(format_args!("{} nodes predicted in {seconds:.2} s", nodes.len()));
    let names = (!data.names.is_empty()).then_some(&*data.names);
    write(args, model, &Predicted::new(&nodes, &data.targets(), names, scores, embeddings))
}

fn predict_graphs(args: &PredictArgs, model: &SavedModel) -> anyhow::Result<()> {
    let of_nodes = [
        ("--embeddings", args.embeddings),
        ("--mode", args.mode != Mode::AsEvaluated),
        ("--fanouts", args.fanouts.is_some()),
        ("--seed", args.seed.is_some()),
        ("--memory", args.memory.is_some()),
        ("--in-memory", args.in_memory),
    ];
    if let Some((flag, _)) = of_nodes.into_iter().find(|(_, is_given)| *is_given) {
        bail!("{flag} does not apply to a model of graphs: remove it");
    }
    let (data, split) = args.data.load_graphs()?;
    let features = data.node_features(args.node_features)?;
    // `kiln train` splits sets without a split of their own by the seed of the run.
    let seed = model.info().evaluation.seed;
    let split = split.map_or_else(|| Split::random(data.n_graphs(), [0.8, 0.1], seed), Ok)?;
    let graphs = items(&args.nodes, &split.test, data.n_graphs())?;
    let started = Instant::now();
    let scores = model.predict_dataset(&data, &features, &graphs)?;
    let seconds = started.elapsed().as_secs_f64();
    print_rank_zero(format_args!("{} graphs predicted in {seconds:.2} s", graphs.len()));
    write(args, model, &Predicted::new(&graphs, &data.targets(), None, scores, None))
}

impl PredictArgs {
    fn mode(&self, model: &SavedModel) -> anyhow::Result<PredictMode> {
        let of_sampling = self.fanouts.is_some() || self.seed.is_some();
        ensure!(
            !of_sampling || self.mode == Mode::Sampled,
            "--fanouts and --seed require --mode sampled: add it, or remove them"
        );
        ensure!(
            self.memory.is_none() || self.mode == Mode::Exact,
            "--memory requires --mode exact: add it, or remove --memory"
        );
        Ok(match self.mode {
            Mode::AsEvaluated => PredictMode::AsEvaluated,
            Mode::Exact => PredictMode::Exact(LayerWiseConfig::within(self.memory)),
            Mode::Sampled => {
                let of_training = || model.info().inputs.sampling.as_ref().map(|sampling| sampling.fanouts());
                let fanouts = self.fanouts.clone().or_else(of_training).unwrap_or_default();
                PredictMode::Sampled { fanouts, seed: self.seed.unwrap_or(0) }
            }
        })
    }
}

/// Returns the items that `--nodes` selects.
fn items<I: ItemId>(selection: &str, test: &[I], n_items: usize) -> anyhow::Result<Vec<I>> {
    match selection {
        "test" => {
            ensure!(!test.is_empty(), "the data has no test split: give --nodes all or a file of ids");
            Ok(test.to_vec())
        }
        "all" => Ok((0..n_items as u32).map(I::new).collect()),
        path => Ok(read_ids(path, n_items)?),
    }
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    let style = ProgressStyle::with_template("{bar:30} row {pos}/{len}  {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Creates the folder for the results, which must be new or empty.
fn check_out(out: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(out).with_context(|| format!("{} could not be created", out.display()))?;
    let mut entries = fs::read_dir(out).with_context(|| format!("{} could not be read", out.display()))?;
    ensure!(entries.next().is_none(), "{} is not empty: give --out a new folder", out.display());
    Ok(())
}

/// Writes the predictions and prints the accuracy on the labelled items.
fn write(args: &PredictArgs, model: &SavedModel, predicted: &Predicted<'_>) -> anyhow::Result<()> {
    let save = |name: &str, bytes: &[u8]| {
        let path = args.out.join(name);
        write_whole(&path, bytes).with_context(|| format!("{} could not be written", path.display()))
    };
    if model.info().inputs.targets == TargetKind::Classes {
        let classes = predicted.scores.classes();
        save("predictions.csv", predicted.predictions_csv(&classes).as_bytes())?;
        save("classes.csv", predicted.classes_csv(&classes, model).as_bytes())?;
        if let Some((accuracy, n_labelled)) = predicted.accuracy(&classes) {
            print_rank_zero(format_args!("accuracy {accuracy:.4} on {n_labelled} labelled items"));
        }
    } else {
        save("predictions.csv", predicted.targets_csv().as_bytes())?;
    }
    let rows = [("scores", Some(&predicted.scores)), ("embeddings", predicted.embeddings.as_ref())];
    for (name, rows) in rows.into_iter().filter_map(|(name, rows)| Some((name, rows?))) {
        match args.format {
            Format::Csv => save(&format!("{name}.csv"), rows_csv(&predicted.items, rows).as_bytes())?,
            Format::Npy => {
                save(&format!("{name}.npy"), &npy::write(rows.values(), &[rows.n_rows(), rows.width()]))?;
            }
        }
    }
    if args.format == Format::Npy {
        save("items.npy", &npy::write(&predicted.items, &[predicted.items.len()]))?;
    }
    print_rank_zero(format_args!("files           {}", args.out.display()));
    Ok(())
}
