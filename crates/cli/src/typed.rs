//! `kiln train` on a heterogeneous dataset.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use kiln::data::{DatasetFormat, TypedDataset};
use kiln::nn::{
    HgtConfig, LinkModelConfig, ModelConfig, RgcnConfig, RsageConfig, TypedModelConfig, WeightInit,
};
use kiln::sample::Fanout;
use kiln::{DataLoader, GraphMode, TypedLinkNeighborLoader, TypedNeighborLoader};

use crate::data_id::DataId;
use crate::output::print_rank_zero;
use crate::source::DataSource;
use crate::train::{Outcome, TrainArgs, TrainRun};

/// The configuration of a model of nodes of a heterogeneous graph.
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
        let TrainArgs { data: source, device, .. } = self.args;
        ensure!(
            device.graph_mode == GraphMode::Host,
            "--graph-mode device and zero-copy need a graph with one type of nodes: use --graph-mode cpu"
        );
        ensure!(
            !device.has_cache_flags(),
            "--feature-cache and --hot-by need a graph with one type of nodes: remove them"
        );
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
    fn configure_typed(&self, loader: TypedNeighborLoader) -> anyhow::Result<TypedNeighborLoader> {
        let TrainArgs { model, sampling, ranks, .. } = self.args;
        let mut loader = loader
            .batches(ranks.batches(false))
            .rule(sampling.rule.clone())
            .evaluation(sampling.evaluation()?);
        for (name, of_relation) in &sampling.fanouts.of_relations {
            loader = loader.relation_fanouts(name, model.fanouts(of_relation)?)?;
        }
        Ok(match ranks.workers {
            Some(workers) => loader.workers(workers),
            None => loader,
        })
    }

    /// Trains on the nodes of the type that has targets.
    pub(crate) fn typed_nodes(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, sampling, loss, .. } = self.args;
        let (data, id) = self.open_typed()?;
        let Some(targets) = &data.targets else { bail!("{} has no targets to train on", data.name) };
        for (part, nodes) in targets.split.parts() {
            ensure!(!nodes.is_empty(), "the {part} split of {} has no nodes: add at least one", data.name);
        }
        let fanouts = model.fanouts(sampling.fanouts.of_default(&data)?)?;
        let loader =
            TypedNeighborLoader::new(&data, &fanouts)?.objective(loss.objective(targets.values.kind())?);
        let (loader, dims) = (self.configure_typed(loader)?, data.dims());
        match model.of_typed_nodes(&data, targets.values.n_outputs(), fanouts.len())? {
            TypedNodeModel::Rsage(config) => {
                self.fit_typed(TypedModelConfig::new(dims, config), &loader, &id)
            }
            TypedNodeModel::Rgcn(config) => self.fit_typed(TypedModelConfig::new(dims, config), &loader, &id),
            TypedNodeModel::Hgt(config) => self.fit_typed(TypedModelConfig::new(dims, config), &loader, &id),
        }
    }

    /// Trains on the links of one relation of a heterogeneous dataset.
    pub(crate) fn typed_links(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { model, sampling, ranks, link, .. } = self.args;
        let (data, id) = self.open_typed()?;
        let split = link.split_relation(&data, ranks.seed)?;
        let fanouts = model.fanouts(sampling.fanouts.of_default(&data)?)?;
        let nodes = TypedNeighborLoader::without_targets(&data, &fanouts);
        let loader = TypedLinkNeighborLoader::of_relation(self.configure_typed(nodes)?, &split)?;
        let whole = || Ok(Arc::new(data.graph.whole_graph(split.relation())?));
        let loader =
            link.configure(loader, split.node_ranges(), split.of_relation(), whole, self.link_loss()?)?;
        let (decoder, dims) = (link.decoder()?, data.dims());
        match model.of_typed_nodes(&data, link.embedding(), fanouts.len())? {
            TypedNodeModel::Rsage(encoder) => {
                let encoder = encoder.weight_init(model.weight_init.unwrap_or(WeightInit::Pyg));
                let encoder = TypedModelConfig::new(dims, encoder);
                self.fit_typed(LinkModelConfig { encoder, decoder }, &loader, &id)
            }
            TypedNodeModel::Rgcn(encoder) => {
                let encoder = TypedModelConfig::new(dims, encoder);
                self.fit_typed(LinkModelConfig { encoder, decoder }, &loader, &id)
            }
            TypedNodeModel::Hgt(encoder) => {
                let encoder = TypedModelConfig::new(dims, encoder);
                self.fit_typed(LinkModelConfig { encoder, decoder }, &loader, &id)
            }
        }
    }

    fn fit_typed<C: ModelConfig, L: DataLoader<C::Model> + Sync>(
        &self,
        model: C,
        loader: &L,
        id: &DataId,
    ) -> anyhow::Result<Vec<Outcome>> {
        self.launch(id, |rank| self.fit(&model, loader, &rank, &id.hash, ()))
    }
}

impl crate::sampling::Fanouts {
    /// Returns the fanouts of relations without their own. If all have their own, those of the first.
    fn of_default(&self, data: &TypedDataset) -> anyhow::Result<&[Fanout]> {
        let has_own = |name: &String| self.of_relations.iter().any(|(own, _)| own == name);
        let without = data.graph.iter().map(|relation| &relation.name).find(|name| !has_own(name));
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
