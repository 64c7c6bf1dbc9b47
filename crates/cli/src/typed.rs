//! `kiln train` on a heterogeneous dataset.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use kiln::data::{DatasetFormat, TypedDataset};
use kiln::nn::{BlockModel, HgtConfig, ModelConfig, RgcnConfig, RsageConfig, TypedModelConfig};
use kiln::sample::Fanout;
use kiln::{GraphMode, TypedNeighborLoader};

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
    /// Trains on the nodes of the type that has targets.
    pub(crate) fn typed_nodes(&self) -> anyhow::Result<Vec<Outcome>> {
        let TrainArgs { data: source, model, sampling, ranks, device, loss, .. } = self.args;
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
        let Some(targets) = &data.targets else { bail!("{} has no targets to train on", data.name) };
        for (part, nodes) in targets.split.parts() {
            ensure!(!nodes.is_empty(), "the {part} split of {} has no nodes: add at least one", data.name);
        }
        let fanouts = model.fanouts(sampling.fanouts.of_default(&data)?)?;
        let mut loader = TypedNeighborLoader::new(&data, &fanouts)?
            .objective(loss.objective(targets.values.kind())?)
            .batches(ranks.batches(false))
            .rule(sampling.rule.clone())
            .evaluation(sampling.evaluation()?);
        for (name, of_relation) in &sampling.fanouts.of_relations {
            loader = loader.relation_fanouts(name, model.fanouts(of_relation)?)?;
        }
        if let Some(workers) = ranks.workers {
            loader = loader.workers(workers);
        }
        match model.of_typed_nodes(&data, targets.values.n_outputs(), fanouts.len())? {
            TypedNodeModel::Rsage(config) => self.fit_typed(config, &data, &loader, &id),
            TypedNodeModel::Rgcn(config) => self.fit_typed(config, &data, &loader, &id),
            TypedNodeModel::Hgt(config) => self.fit_typed(config, &data, &loader, &id),
        }
    }

    fn fit_typed<C: ModelConfig<Model: BlockModel + Sync>>(
        &self,
        model: C,
        data: &TypedDataset,
        loader: &TypedNeighborLoader,
        id: &DataId,
    ) -> anyhow::Result<Vec<Outcome>> {
        let model = TypedModelConfig::new(data.dims(), model);
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
