//! Loaders of edges with targets, whose classes, labels or numbers a model predicts.

use kiln_feature::{EdgeFeatures, TargetKind, TargetScaler, Targets};
use kiln_graph::LinkId;
use kiln_nn::EdgeDims;
use kiln_train::{Objective, TargetScale};

use super::edge_settings::EdgeSettings;
use super::{LinkNeighborLoader, uniform_negatives};
use crate::batches::check_target_scale;
use crate::links::TrainingLinks;
use crate::{LinkLoaderError, NeighborLoader, Result};

impl LinkNeighborLoader {
    /// Returns a loader of edges with targets: links with classes, labels or numbers
    /// ([`LinkTargets::with_values`](kiln_data::LinkTargets::with_values)), as PyG's `LinkNeighborLoader` with an `edge_label` and
    /// DGL's `as_edge_prediction_sampler`. A batch has edges and the sampled neighbourhoods of both ends, and no negatives. It
    /// trains a [`LinkModel`](kiln_nn::LinkModel) whose decoder is one of edges
    /// ([`LinkDecoderConfig::Edge`](kiln_nn::LinkDecoderConfig::Edge)), which reads both rows and the edge's own features.
    ///
    /// Losses, metrics, class weights and the best epoch are those of a [`NeighborLoader`] of nodes with such targets, and graphs,
    /// exclusion and partitions those of [`LinkNeighborLoader::new`]: a training step leaves its edges and their reverses out of
    /// its messages, and the message graph has no edge of the validation and the test.
    ///
    /// ```
    /// use kiln::data::LinkTargets;
    /// use kiln::feature::{EdgeFeatures, Labels};
    /// use kiln::graph::Links;
    /// use kiln::prelude::*;
    /// // Accounts with one feature each, and payments between them: edge_index, edge_label and edge_attr.
    /// let srcs: Vec<u32> = (0..200).map(|payment| payment % 50).collect();
    /// let dsts: Vec<u32> = (0..200).map(|payment| (payment * 7 + 3) % 50).collect();
    /// let frauds: Vec<i32> = (0..200).map(|payment| i32::from(payment % 5 == 0)).collect();
    /// let amounts: Vec<f32> = frauds.iter().map(|&fraud| if fraud == 1 { 9.0 } else { 1.0 }).collect();
    /// let data = Dataset::builder(50).edges(&srcs, &dsts).features(vec![1.0; 50], 1).build()?;
    ///
    /// let split = Split::random(200, [0.6, 0.2], 7)?;
    /// let payments = LinkTargets::new(Links::new(srcs, dsts)?, split)?
    ///     .with_values(Labels::new(frauds, 2))?
    ///     .with_features(EdgeFeatures::new(amounts, 1)?)?;
    /// let split = LinkSplit::hold_out(&data.graph, payments)?;
    /// let nodes = NeighborLoader::new(&data, [5, 5]).batch_size(40);
    /// let loader = LinkNeighborLoader::with_targets(nodes, &split)?;
    ///
    /// let decoder = LinkDecoderConfig::edges(loader.edge_dims().expect("the links have targets"));
    /// let config = LinkModelConfig { encoder: SageConfig::new(1, 16).layers(2).hidden(16), decoder };
    /// # let folder = tempfile::tempdir()?;
    /// # let out = folder.path().join("run");
    /// let best = Trainer::new(config, AdamConfig::new(1e-2)).fit(&loader, FitConfig::epochs(10).out(out))?;
    /// let test = best.predict(&loader, Phase::Test)?;
    /// println!("accuracy {:.3}, AUC {:?}", test.metrics().accuracy, test.roc_auc());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`LinkLoaderError::NoTargets`] if the links have no targets, and the errors of [`LinkNeighborLoader::new`].
    pub fn with_targets(nodes: NeighborLoader, links: impl Into<TrainingLinks>) -> Result<Self> {
        let loader = Self::new(nodes, links)?;
        if loader.targets.values().is_none() {
            let name = loader.nodes.source().name().to_owned();
            return Err(LinkLoaderError::NoTargets { name }.into());
        }
        let none = uniform_negatives(loader.nodes.source().schema(), loader.relation, 0);
        Ok(Self {
            negatives: none.clone(),
            eval_negatives: [none.clone(), none],
            edges: Some(EdgeSettings::default()),
            ..loader
        })
    }

    /// Returns the number of feature columns and of outputs of the edges, for the decoder of a model; `None` for links without
    /// targets.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// # fn example(loader: LinkNeighborLoader) {
    /// let dims = loader.edge_dims().expect("the links have targets");
    /// let decoder = LinkDecoderConfig::edges(dims);
    /// # let _ = decoder;
    /// # }
    /// ```
    pub fn edge_dims(&self) -> Option<EdgeDims> {
        let n_outputs = self.targets.values()?.n_outputs();
        Some(EdgeDims { d_edge: self.targets.features().map_or(0, EdgeFeatures::dim), n_outputs })
    }

    /// Sets the objective of edges, which must suit the data's targets, as [`NeighborLoader::objective`] does for nodes. The default
    /// is the cross entropy for classes, the binary cross entropy for several labels and the squared error for regression. For
    /// links, it sets a loss of your own ([`Objective::custom`]).
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// use kiln::nn::ClassLoss;
    /// use kiln::train::Objective;
    /// # fn example(loader: LinkNeighborLoader) {
    /// // A fraud counts as much as 20 honest payments.
    /// let weights = ClassLoss { class_weights: Some(vec![1.0, 20.0]), ..ClassLoss::default() };
    /// let loader = loader.objective(Objective::Classes(weights));
    /// # let _ = loader;
    /// # }
    /// ```
    pub fn objective(mut self, objective: Objective) -> Self {
        match &mut self.edges {
            Some(edges) => edges.objective = Some(objective),
            None if objective.kind() == TargetKind::Links => self.link_objective = Some(objective),
            None => self.misplaced = Some(".objective()"),
        }
        self
    }

    /// Sets the scale on which the model learns regression targets of edges, as [`NeighborLoader::target_scale`] does for nodes.
    ///
    /// ```no_run
    /// # use kiln::prelude::*;
    /// use kiln::train::TargetScale;
    /// # fn example(loader: LinkNeighborLoader) {
    /// // The squared error of ratings from 1 to 5 as they are.
    /// let loader = loader.target_scale(TargetScale::None);
    /// # let _ = loader;
    /// # }
    /// ```
    pub fn target_scale(mut self, scale: TargetScale) -> Self {
        match &mut self.edges {
            Some(edges) => edges.target_scale = Some(scale),
            None => self.misplaced = Some(".target_scale()"),
        }
        self
    }

    /// Notes a call that only applies to link prediction, for an error of the check of an edge task.
    pub(super) fn note_call(mut self, call: &'static str) -> Self {
        if self.edges.is_some() {
            self.misplaced = Some(call);
        }
        self
    }

    /// Returns the settings and the targets of an edge task; `None` for link prediction.
    pub(super) fn edge_task(&self) -> Option<(&EdgeSettings, &Targets<LinkId>)> {
        self.edges.as_ref().zip(self.targets.values())
    }

    /// Returns the scale on which the numbers of the training edges are learned.
    pub(super) fn edge_scaler(&self) -> Result<Option<TargetScaler>> {
        let Some((edges, targets)) = self.edge_task() else { return Ok(None) };
        let scale = edges.target_scale.unwrap_or_default();
        Ok(scale.scaler(targets, &self.targets.split().train)?)
    }

    /// Checks that the settings are those of the task, and that the decoder of the model is for its targets and features.
    pub(super) fn check_edges(&self, decoder: Option<EdgeDims>) -> Result<()> {
        if let Some(call) = self.misplaced {
            let is_of_edges = self.edges.is_some();
            return Err(LinkLoaderError::NotApplicable { call, is_of_edges }.into());
        }
        let (Some((edges, targets)), Some(expected)) = (self.edge_task(), self.edge_dims()) else {
            return match decoder {
                Some(_) => Err(LinkLoaderError::DecoderOfEdges.into()),
                None => Ok(()),
            };
        };
        check_target_scale(edges.target_scale, targets.kind())?;
        edges.objective(targets).check(targets.kind(), targets.n_outputs())?;
        match decoder {
            None => Err(LinkLoaderError::DecoderOfScores.into()),
            Some(got) if got != expected => Err(LinkLoaderError::DecoderDims { expected, got }.into()),
            Some(_) => Ok(()),
        }
    }
}
