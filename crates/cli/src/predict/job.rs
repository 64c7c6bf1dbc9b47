//! A prediction job: what the predictions of nodes, of links and of graphs share.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use kiln::comm::LaunchEnv;
use kiln::data::{TimeKind, TimeSplit};
use kiln::feature::{FeatureColumn, Targets};
use kiln::graph::{GraphSchema, ItemId};
use kiln::predictions::{RankFolders, Written, totals_of_ranks};
use kiln::prelude::{RankHandle, SavedModel};
use kiln::store::sha256;
use kiln::train::{ModelInputs, ModelRegistry, ModelTask, PredictedRows};
use kiln::{PredictionFiles, PredictionOutput, PredictionRequest, PredictionTotals, SplitParts, launch};

use super::args::PredictArgs;
use super::data::{OpenedGraph, PredictedGraph};
use crate::output::{print_note_lines, print_rank_zero};

/// A prediction job: the flags, the model on the device of this process's first rank, and the launcher's settings.
pub(super) struct Job<'a> {
    pub(super) args: &'a PredictArgs,
    pub(super) model: SavedModel,
    /// The local rank on whose device the model is.
    pub(super) local_rank: usize,
    pub(super) launch: Option<LaunchEnv>,
    pub(super) started: Instant,
}

impl Job<'_> {
    /// Opens the graph of the flags and prints a summary.
    pub(super) fn open(&self) -> anyhow::Result<OpenedGraph> {
        let args = self.args;
        let inputs = &self.model.info().inputs;
        if args.parts.is_given() {
            return self.open_partitions(inputs);
        }
        let mut data = args.data.load(self.model.info().evaluation.seed)?;
        if inputs.graph.is_none() && data.is_heterogeneous() {
            let relations: Vec<String> = data.graph.iter().map(|relation| relation.name.clone()).collect();
            data = data.to_homogeneous()?;
            let kind = &self.model.info().kind;
            print_rank_zero(format_args!(
                "note: the {kind} reads {} as a homogeneous graph, whose edges are those of {}",
                data.name,
                relations.join(", ")
            ));
        }
        let data = if args.in_memory { data.in_memory() } else { data };
        print_rank_zero(&data);
        self.print_notes_on_names(data.graph.schema(), &data.feature_columns, &data.edge_type_names);
        let has_no_test = data.links.as_ref().is_none_or(|links| links.targets.split().test.is_empty());
        let ranks_all = args.links.top_k.is_some() && has_no_test;
        let time = self.time(data.times.kind, data.times.split, args.selects_test() && !ranks_all);
        let mut graph = PredictedGraph::from(data);
        if let Some(hash) = args.data.recorded_hash()? {
            graph.source = graph.source.with_hash(hash);
        }
        if let Some(time) = time {
            graph.source = graph.source.at(&time)?;
        }
        Ok(OpenedGraph::Whole(graph))
    }

    /// Returns the time before which edges pass messages: that of `--at`, or the time of the test of data with a split by time if
    /// its test nodes are predicted. Prints a note without `--at`.
    fn time(&self, kind: TimeKind, split: Option<TimeSplit>, selects_test: bool) -> Option<String> {
        // Items with times of their own need none for all.
        let split = split.filter(|_| !self.model.info().inputs.has_item_times());
        let (None, Some(split)) = (&self.args.at, split) else { return self.args.at.clone() };
        let test = Some(kind.text(split.test).to_string()).filter(|_| selects_test);
        let edges = test.as_ref().map(|time| format!("the edges before {time}, the time of the test"));
        let edges = edges.as_deref().unwrap_or("all edges");
        print_rank_zero(format_args!(
            "note: messages pass over {edges}: --at TIME reads what was known then"
        ));
        test
    }

    /// Prints notes if the feature columns or the edge types of the data cannot be compared with those of the training data. There
    /// are columns for each type of nodes.
    fn print_notes_on_names(
        &self,
        schema: &GraphSchema,
        columns: &[Vec<FeatureColumn>],
        edge_type_names: &[String],
    ) {
        let names = schema.types().names().iter().map(String::as_str);
        print_note_lines(self.model.note_on_columns(names.zip(columns.iter().map(Vec::as_slice))));
        print_note_lines(self.model.note_on_edge_types(edge_type_names));
    }

    /// Opens the partitions of the flags, and checks that they suit the model and the ranks.
    fn open_partitions(&self, inputs: &ModelInputs) -> anyhow::Result<OpenedGraph> {
        let job = &self.args.job;
        let graph = self.args.parts.open(job.partitions_config()?)?;
        let info = graph.info();
        match (info.is_heterogeneous, &inputs.graph) {
            (true, Some(_)) | (false, None) => {}
            (false, Some(_)) => anyhow::bail!(
                "the partitions are of a graph with one type of nodes, and the model is of a heterogeneous graph: use partitions of its \
                 training data"
            ),
            (true, None) => anyhow::bail!(
                "the partitions are of a heterogeneous graph, and the model is not: use partitions of its training data; `kiln \
                 data convert --homogeneous` writes that of one type of nodes"
            ),
        }
        let schema = info.schema.clone();
        self.print_notes_on_names(&schema, &info.feature_columns, &info.edge_type_names);
        job.share_partitions(&graph, self.launch.as_ref())?;
        let time = self.time(info.times.kind, info.times.split, self.args.selects_test());
        if let Some(time) = &time {
            info.times.kind.parse(time)?;
        }
        Ok(OpenedGraph::Partitioned(graph, schema, time))
    }

    /// Returns the request for items, without names and embeddings.
    pub(super) fn request<I: ItemId>(
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
            ends: None,
            model: self.model.clone(),
            format: self.args.format.into(),
            embedding_width: None,
        }
    }

    /// Returns the model on the device of a rank.
    pub(super) fn model_of(&self, rank: &RankHandle) -> kiln::Result<SavedModel> {
        match self.args.job.device.len() == 1 || rank.local_index() == self.local_rank {
            true => Ok(self.model.clone()),
            false => open_model(self.args, rank.local_index()),
        }
    }

    /// Runs `body` on each rank of this process, with the path of the folder that the rank writes, and prints the result.
    /// `request` identifies the items, which must be the same for all processes.
    pub(super) fn launch(
        &self,
        request: &str,
        body: impl Fn(&RankHandle, &Path) -> kiln::Result<Written> + Sync,
    ) -> anyhow::Result<()> {
        let Self { args, model, launch: environment, .. } = self;
        let mut config = args.job.config(environment.as_ref())?;
        if environment.is_some() {
            let info = serde_json::to_vec(model.info()).context("describing the model")?;
            config = config.agree_on("the model", sha256(&info)).agree_on("the requested items", request);
            let PredictArgs { mode, fanouts, seed, per_rank, embeddings, memory, links, at, .. } = args;
            let of_links = (links.top_k, links.exclude_edges);
            let flags = format!(
                "{mode:?} {fanouts:?} {seed:?} {per_rank} {embeddings} {memory:?} {of_links:?} {at:?}"
            );
            config = config.agree_on("the flags of predictions", flags);
            config = config.agree_on("place of the partitions", args.parts.holders(None));
        }
        let ranks = launch(config, |rank| {
            if environment.is_some() {
                print_rank_zero(rank.description());
            }
            let (folder, totals) = match args.per_rank {
                true => {
                    let mut comm = rank.communicator("folders of ranks")?;
                    RankFolders::create(&mut *comm, &args.out)?.write(|own| body(&rank, own))?
                }
                false => body(&rank, &args.out)?,
            };
            let mut comm = rank.communicator("totals")?;
            let of_ranks = totals_of_ranks(&mut *comm, &totals.unwrap_or_default())?;
            Ok((folder, rank.is_zero().then_some(of_ranks)))
        })?;
        // Renamed only now that all ranks have ended: if one were lost later, the job would fail and could not be started again.
        for (folder, of_ranks) in ranks {
            match folder {
                Some(folder) if args.per_rank => RankFolders::commit(folder, of_ranks.as_deref())?,
                Some(folder) => folder.commit()?,
                None => {}
            }
            if let Some(of_ranks) = of_ranks {
                self.print_totals(&PredictionTotals::sum(&of_ranks));
            }
        }
        Ok(())
    }

    /// Prints the totals of a job, whose files are complete.
    fn print_totals(&self, totals: &PredictionTotals) {
        let seconds = self.started.elapsed().as_secs_f64();
        let items = match self.model.info().inputs.task {
            ModelTask::Graphs => "graphs".to_owned(),
            task => task.to_string(),
        };
        print_rank_zero(format_args!("{} {items} predicted in {seconds:.2} s", totals.n_items));
        for line in totals.non_finite_note().into_iter().chain(totals.accuracies()) {
            print_rank_zero(line);
        }
        print_rank_zero(format_args!("files           {}", self.args.out.display()));
    }

    /// Writes the files of a rank to a folder: `predict` computes the rows and passes them to a callback. Without `--per-rank`,
    /// only rank 0 writes.
    pub(super) fn write<I: ItemId>(
        &self,
        rank: &RankHandle,
        folder: &Path,
        request: PredictionRequest<I>,
        predict: impl FnOnce(
            PredictionOutput,
            &mut dyn FnMut(&PredictedRows) -> kiln::Result<()>,
        ) -> kiln::Result<()>,
    ) -> kiln::Result<Written> {
        let is_writer = self.args.per_rank || rank.is_zero();
        let mut files = is_writer.then(|| PredictionFiles::create(folder, request)).transpose()?;
        let output = match self.args.per_rank {
            true => PredictionOutput::EachRank,
            false => PredictionOutput::RankZero,
        };
        predict(output, &mut |rows| match &mut files {
            Some(files) => Ok(files.write(rows)?),
            None => Ok(()),
        })?;
        Ok(files.map(PredictionFiles::complete).transpose()?.unzip())
    }
}

pub(super) fn open_model(args: &PredictArgs, local_rank: usize) -> kiln::Result<SavedModel> {
    let device = &args.job.device.of_rank(local_rank).device;
    Ok(SavedModel::open_with(&args.run, &ModelRegistry::default(), device)?)
}
