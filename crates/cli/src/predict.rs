//! `kiln predict`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use kiln::data::{NodeFeatures, NodeNames, Split, read_ids};
use kiln::feature::Labels;
use kiln::graph::ItemId;
use kiln::kernels::Devices;
use kiln::prelude::{PredictMode, PredictOnDataset, SavedModel};
use kiln::sample::Fanout;
use kiln::store::{npy, whole_file::write_whole};
use kiln::train::{LayerWiseConfig, ModelRegistry, ModelTask, OutputRows};

use crate::flags;
use crate::output::print_rank_zero;
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
    /// Nodes (or graphs) to predict: `test` (the test split of the data; of graphs, that of the run's seed), `all`, or a file of ids, `.npy` or text with
    /// one id per line.
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
    /// (TMPDIR). Default: no limit.
    #[arg(long, value_parser = kiln::data::convert::parse_bytes)]
    memory: Option<u64>,
    /// Compute device: `cpu`, or with the feature of that name `cuda`, `wgpu` or `cube-cpu`.
    #[arg(long, value_parser = |names: &str| Devices::open(names), default_value = "cpu")]
    device: Devices,
}

/// The predicted items, their names and labels, and the outputs of the model.
struct Predicted<'a> {
    items: Vec<u32>,
    /// The label of each item, if it has one.
    labels: Vec<Option<u32>>,
    names: Option<&'a NodeNames>,
    scores: OutputRows,
    embeddings: Option<OutputRows>,
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
    let labels = labels_of(&nodes, &data.labels);
    let names = (!data.names.is_empty()).then_some(&*data.names);
    let items = nodes.iter().map(|node| node.0).collect();
    write(args, model, &Predicted { items, labels, names, scores, embeddings })
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
    let labels = labels_of(&graphs, data.labels());
    let items = graphs.iter().map(|graph| graph.0).collect();
    write(args, model, &Predicted { items, labels, names: None, scores, embeddings: None })
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

fn labels_of<I: ItemId>(items: &[I], labels: &Labels<I>) -> Vec<Option<u32>> {
    items.iter().map(|&item| labels.get(item)).collect()
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
    let classes = predicted.scores.classes();
    let save = |name: &str, bytes: &[u8]| {
        let path = args.out.join(name);
        write_whole(&path, bytes).with_context(|| format!("{} could not be written", path.display()))
    };
    save("predictions.csv", predicted.predictions_csv(&classes).as_bytes())?;
    save("classes.csv", predicted.classes_csv(&classes, model).as_bytes())?;
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
    let labelled = predicted.labels.iter().zip(&classes).filter(|(label, _)| label.is_some());
    let (n_labelled, n_hits) = labelled
        .fold((0, 0), |(n, hits), (label, class)| (n + 1, hits + usize::from(*label == Some(*class))));
    if 0 < n_labelled {
        let accuracy = n_hits as f64 / n_labelled as f64;
        print_rank_zero(format_args!("accuracy {accuracy:.4} on {n_labelled} labelled items"));
    }
    print_rank_zero(format_args!("files           {}", args.out.display()));
    Ok(())
}

impl Predicted<'_> {
    /// Returns the content of `predictions.csv`: the format and the order of a run's `test_predictions.csv`. Items
    /// without a label have an empty field.
    fn predictions_csv(&self, classes: &[u32]) -> String {
        let mut order: Vec<usize> = (0..self.items.len()).collect();
        order.sort_by_key(|&row| self.items[row]);
        let mut csv = String::from("item,label,predicted\n");
        for row in order {
            let label = self.labels[row].map(|label| label.to_string()).unwrap_or_default();
            let _ = writeln!(csv, "{},{label},{}", self.items[row], classes[row]);
        }
        csv
    }

    /// Returns the content of `classes.csv`, in the order of the request: the predicted class with its name and its
    /// probability.
    fn classes_csv(&self, classes: &[u32], model: &SavedModel) -> String {
        let mut csv = String::from("item,name,class,class_name,probability\n");
        let rows = self.items.iter().zip(classes).zip(self.scores.confidences());
        for ((&item, &class), probability) in rows {
            let name = self.names.and_then(|names| names.get(kiln::graph::NodeId(item))).unwrap_or_default();
            let class_name = model.class_name(class).unwrap_or_default();
            let _ = writeln!(csv, "{item},{},{class},{},{probability}", quoted(name), quoted(class_name));
        }
        csv
    }
}

/// Returns rows as text: the id of an item, then its values, which are read back to the same f32.
fn rows_csv(items: &[u32], rows: &OutputRows) -> String {
    let mut csv = String::from("item");
    for column in 0..rows.width() {
        let _ = write!(csv, ",{column}");
    }
    csv.push('\n');
    for (item, row) in items.iter().zip(rows.rows()) {
        let _ = write!(csv, "{item}");
        for value in row {
            let _ = write!(csv, ",{value}");
        }
        csv.push('\n');
    }
    csv
}

/// Returns a field of comma-separated text, in quotes if it needs them (RFC 4180).
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_fields_that_contain_separators() {
        assert_eq!(quoted("admin"), "admin");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
