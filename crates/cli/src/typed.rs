//! `kiln train` on a heterogeneous dataset, whole or partitioned.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use kiln::data::{DatasetFormat, TypedDataset};
use kiln::feature::TargetKind;
use kiln::graph::GraphSchema;
use kiln::nn::{
    BlockModel, HgtConfig, LinkDecoderConfig, LinkModelConfig, ModelConfig, RgcnConfig, RsageConfig,
    TypedModelConfig, WeightInit,
};
use kiln::remote::HeterogeneousInfo;
use kiln::sample::Fanout;
use kiln::train::TrainCallback;
use kiln::{EvalMode, GraphMode, PartitionedGraph, RankHandle, TypedLinkNeighborLoader, TypedNeighborLoader};

use crate::data_id::DataId;
use crate::output::print_rank_zero;
use crate::partitions::{TrafficLines, print_memory};
use crate::source::DataSource;
use crate::train::{Outcome, TrainArgs, TrainRun};

/// The configuration of a model of nodes of a heterogeneous graph.
#[derive(Clone)]
pub(crate) enum TypedNodeModel {
    Rsage(RsageConfig),
    Rgcn(RgcnConfig),
    Hgt(HgtConfig),
}

impl DataSource {
    /// Returns true if the data has several types of nodes, or relations with names.
    pub(crate) fn is_typed(&self) -> anyhow::Result<bool> {
        Ok(match self {
            DataSource::DebianArchive => true,
            DataSource::Path(path) => kiln::data::typed::is_heterogeneous(path)?,
            _ => false,
        })
    }

    /// Opens a heterogeneous dataset, and returns it with its identity. In the kiln format, that comes from the manifest.
    pub(crate) fn load_typed(&self) -> anyhow::Result<(TypedDataset, DataId)> {
        let path = match self {
            DataSource::DebianArchive => {
                let data = kiln::data::debian_archive().context("loading debian-archive")?;
                let id = DataId::of_typed(&data);
                return Ok((data, id));
            }
            DataSource::Path(path) => path,
            _ => bail!("the data has one type of nodes, expected a heterogeneous dataset"),
        };
        let started = Instant::now();
        let kind = kiln::data::detect_format(path)?;
        let data = TypedDataset::open(path)?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        print_rank_zero(format_args!("{} is {kind}, opened in {ms:.0} ms", path.display()));
        let id = match recorded_hash(path, kind)? {
            Some(hash) => DataId::recorded(hash),
            None => DataId::of_typed(&data),
        };
        Ok((data, id))
    }
}

/// Returns the hash of a heterogeneous dataset in the kiln format, which comes from its manifest.
fn recorded_hash(path: &Path, kind: DatasetFormat) -> anyhow::Result<Option<String>> {
    match kind {
        DatasetFormat::Kiln => Ok(Some(kiln::data::typed::hash(path)?)),
        _ => Ok(None),
    }
}

impl TrainRun<'_> {
    /// Opens a heterogeneous dataset and prints a summary, after a check of the flags that do not apply to it.
    fn open_typed(&self) -> anyhow::Result<(TypedDataset, DataId)> {
        let source = &self.args.data;
        self.check_typed_device()?;
        source.check_typed()?;
        let (mut data, id) = source.data.load_typed()?;
        if source.verify {
            data.notes = data.validate().context("the data could not be verified")?;
        }
        if source.in_memory {
            data = data.in_memory();
        }
        print_rank_zero(&data);
        for note in &data.notes {
            print_rank_zero(format_args!("note: {note}"));
        }
        Ok((data, id))
    }

    /// Sets batches and sampling of a loader as the flags request.
    fn configure_typed(
        &self,
        loader: TypedNeighborLoader,
        fanouts: &TypedFanouts,
    ) -> anyhow::Result<TypedNeighborLoader> {
        let TrainArgs { sampling, ranks, device, .. } = self.args;
        let loader = loader
            .batches(ranks.batches(false))
            .rule(sampling.rule.clone())
            .graph_mode(device.graph_mode)
            .evaluation(sampling.evaluation()?);
        let loader = fanouts.configure(loader)?;
        Ok(match ranks.workers {
            Some(workers) => loader.workers(workers),
            None => loader,
        })
    }

    /// Trains on the nodes of the type that has targets.
    pub(crate) fn typed_nodes(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, loss, .. } = self.args;
        let (data, id) = self.open_typed()?;
        let Some(targets) = &data.targets else { bail!("{} has no targets to train on", data.name) };
        for (part, nodes) in targets.split.parts() {
            ensure!(!nodes.is_empty(), "the {part} split of {} has no nodes: add at least one", data.name);
        }
        let fanouts = TypedFanouts::new(self.args, data.graph.schema())?;
        let loader = TypedNeighborLoader::new(&data, &fanouts.of_all)?
            .objective(loss.objective(targets.values.kind())?);
        let loader = self.configure_typed(loader, &fanouts)?;
        let (metagraph, dims, n_layers) = (data.graph.metagraph(), data.dims(), fanouts.of_all.len());
        let model = model.of_typed_nodes(&metagraph, &dims, targets.values.n_outputs(), n_layers)?;
        self.launch(&id, |rank| self.fit_typed(&model, &dims, &loader, &rank, &id, ()))
    }

    /// Trains on the links of one relation of a heterogeneous dataset.
    pub(crate) fn typed_links(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, ranks, link, .. } = self.args;
        let (data, id) = self.open_typed()?;
        let split = link.split.split_relation(&data, ranks.seed)?;
        let fanouts = TypedFanouts::new(self.args, data.graph.schema())?;
        let nodes = TypedNeighborLoader::without_targets(&data, &fanouts.of_all);
        let loader = TypedLinkNeighborLoader::of_relation(self.configure_typed(nodes, &fanouts)?, &split)?;
        let whole = || Ok(Arc::new(data.graph.whole_graph(split.relation())?));
        let loader =
            link.configure(loader, split.node_ranges(), split.of_relation(), whole, self.link_loss()?)?;
        let (decoder, dims) = (link.decoder()?, data.dims());
        let n_layers = fanouts.of_all.len();
        match model.of_typed_nodes(&data.graph.metagraph(), &dims, link.embedding(), n_layers)? {
            TypedNodeModel::Rsage(encoder) => {
                let encoder = encoder.weight_init(model.weight_init.unwrap_or(WeightInit::Pyg));
                self.fit_typed_links(encoder, decoder, dims, &loader, &id)
            }
            TypedNodeModel::Rgcn(encoder) => self.fit_typed_links(encoder, decoder, dims, &loader, &id),
            TypedNodeModel::Hgt(encoder) => self.fit_typed_links(encoder, decoder, dims, &loader, &id),
        }
    }

    fn fit_typed_links<C: ModelConfig<Model: BlockModel + Sync>>(
        &self,
        encoder: C,
        decoder: LinkDecoderConfig,
        dims: Vec<Option<usize>>,
        loader: &TypedLinkNeighborLoader,
        id: &DataId,
    ) -> anyhow::Result<Vec<Outcome>> {
        let model = LinkModelConfig { encoder: TypedModelConfig::new(dims, encoder), decoder };
        self.launch(id, |rank| self.fit(&model, loader, &rank, &id.hash, ()))
    }

    /// Trains on the nodes of the type that has labels in a partitioned graph.
    pub(crate) fn partitioned_typed_nodes(
        &self,
        graph: &PartitionedGraph,
        info: &HeterogeneousInfo,
    ) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, sampling, ranks, loss, parts, device, .. } = self.args;
        self.check_typed_device()?;
        if matches!(sampling.evaluation()?, EvalMode::Exact { .. }) {
            return Err(kiln::train::Error::ExactOnTypes.into());
        }
        ensure!(
            device.graph_mode == GraphMode::Host,
            "--graph-mode device and zero-copy need --data, or partitions of a graph with one type of nodes: use \
             --graph-mode cpu"
        );
        let fanouts = TypedFanouts::new(self.args, &info.schema)?;
        let (metagraph, n_layers) = (info.schema.metagraph(), fanouts.of_all.len());
        let model = model.of_typed_nodes(&metagraph, &info.dims, graph.info().n_classes, n_layers)?;
        graph.check_ranks(ranks.job.n_ranks(self.launch.as_ref()))?;
        let (objective, evaluation) = (loss.objective(TargetKind::Classes)?, sampling.evaluation()?);
        let (workers, queue_bytes) = (ranks.remote_workers(parts.worker_concurrency), parts.queue_bytes());
        let id = DataId::recorded(graph.info().hash.clone());
        self.launch(&id, |rank| {
            let loader = TypedNeighborLoader::partitioned(graph, &rank, &fanouts.of_all)?
                .objective(objective.clone())
                .batches(ranks.batches(false))
                .rule(sampling.rule.clone())
                .evaluation(evaluation)
                .workers(workers)
                .queue_bytes(queue_bytes);
            let loader = fanouts.configure(loader)?;
            let joined = loader.partition();
            if let Some(joined) = joined.filter(|_| rank.is_zero()) {
                let feature_bytes = joined.cache_memory_bytes();
                print_memory(&joined.graph, feature_bytes, workers, queue_bytes, GraphMode::Host);
            }
            let traffic = TrafficLines::new(&rank, joined.map(|joined| joined.graph.clone()));
            self.fit_typed(&model, &info.dims, &loader, &rank, &id, traffic)
        })
    }

    /// Checks that no flag of a feature cache on a device was given.
    fn check_typed_device(&self) -> anyhow::Result<()> {
        ensure!(
            !self.args.device.has_cache_flags(),
            "--feature-cache and --hot-by need a graph with one type of nodes: remove them"
        );
        Ok(())
    }

    fn fit_typed(
        &self,
        model: &TypedNodeModel,
        dims: &[Option<usize>],
        loader: &TypedNeighborLoader,
        rank: &RankHandle,
        id: &DataId,
        callback: impl TrainCallback + 'static,
    ) -> kiln::Result<Outcome> {
        match model.clone() {
            TypedNodeModel::Rsage(config) => {
                self.fit(&TypedModelConfig::new(dims.to_vec(), config), loader, rank, &id.hash, callback)
            }
            TypedNodeModel::Rgcn(config) => {
                self.fit(&TypedModelConfig::new(dims.to_vec(), config), loader, rank, &id.hash, callback)
            }
            TypedNodeModel::Hgt(config) => {
                self.fit(&TypedModelConfig::new(dims.to_vec(), config), loader, rank, &id.hash, callback)
            }
        }
    }
}

/// The fanouts of `--fanouts`, one per layer.
struct TypedFanouts {
    /// The fanouts of relations without their own.
    of_all: Vec<Fanout>,
    /// The names of the other relations and their fanouts.
    of_relations: Vec<(String, Vec<Fanout>)>,
}

impl TypedFanouts {
    fn new(args: &TrainArgs, schema: &GraphSchema) -> anyhow::Result<Self> {
        let (model, fanouts) = (&args.model, &args.sampling.fanouts);
        let of_relation =
            |(name, fanouts): &(String, Vec<Fanout>)| Ok((name.clone(), model.fanouts(fanouts)?));
        Ok(Self {
            of_all: model.fanouts(fanouts.of_default(schema)?)?,
            of_relations: fanouts.of_relations.iter().map(of_relation).collect::<anyhow::Result<_>>()?,
        })
    }

    /// Sets the fanouts of relations that have their own.
    fn configure(&self, loader: TypedNeighborLoader) -> kiln::Result<TypedNeighborLoader> {
        let mut of_relations = self.of_relations.iter();
        of_relations.try_fold(loader, |loader, (name, fanouts)| loader.relation_fanouts(name, fanouts))
    }
}

impl crate::sampling::Fanouts {
    /// Returns the fanouts of relations without their own. If all have their own, those of the first.
    fn of_default(&self, schema: &GraphSchema) -> anyhow::Result<&[Fanout]> {
        let has_own = |name: &String| self.of_relations.iter().any(|(own, _)| own == name);
        let without = schema.relations().iter().map(|relation| &relation.name).find(|name| !has_own(name));
        match (without, self.of_relations.first()) {
            (Some(name), _) if self.of_all.is_empty() => bail!(
                "--fanouts has no list for the relation `{name}`: add `;{name}=...`, or a list without a name for all \
                 others"
            ),
            (None, Some((_, first))) if self.of_all.is_empty() => Ok(first),
            _ => Ok(&self.of_all),
        }
    }
}
