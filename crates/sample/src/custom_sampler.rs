use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kiln_graph::Csc;

use crate::checked_sampler::CheckedSampler;
use crate::{FrontierSampler, Result, SamplerConfig, SamplerError};

/// The constructor of a sampler on a graph.
type Create = dyn Fn(Arc<Csc>, SamplerConfig) -> Result<Arc<dyn FrontierSampler>> + Send + Sync;

/// A whole sampler of a program's own, by name: a constructor of a [`FrontierSampler`] on the graph of a loader. It may work hop by
/// hop, or draw the nodes of a layer for the whole batch, if it overrides [`FrontierSampler::sample_blocks`].
///
/// Name and settings identify it in runs and saved models. Its blocks are checked: a block that is not valid is a
/// [`SamplerError`] that names the sampler. The check looks up each edge in the graph.
///
/// ```
/// use std::sync::Arc;
/// use kiln_graph::{CscBuilder, NodeId};
/// use kiln_sample::{
///     CustomSampler, Dsts, Fanout, Frontier, FrontierSampler, HopRequest, NeighborSampler, RngKey, SamplerConfig, Scratch, Seeds,
/// };
///
/// /// Takes at most one neighbour of each node, and all of the seeds.
/// struct Thin(NeighborSampler, Vec<Fanout>);
///
/// impl FrontierSampler for Thin {
///     fn fanouts(&self) -> &[Fanout] {
///         &self.1
///     }
///     fn n_nodes(&self) -> usize {
///         self.0.n_nodes()
///     }
///     fn sample_frontier(
///         &self,
///         request: &HopRequest,
///         dsts: Dsts<'_>,
///         scratch: &mut Scratch,
///         out: &mut Frontier,
///     ) -> kiln_sample::Result<()> {
///         self.0.sample_frontier(request, dsts, scratch, out)
///     }
/// }
///
/// let sampler = CustomSampler::new("thin", |graph, _| {
///     Thin(NeighborSampler::full(graph, 2), vec![Fanout::UpTo(1), Fanout::All])
/// });
/// let graph = Arc::new(CscBuilder::new(4).build(&[1, 2, 3, 0], &[0, 0, 1, 1])?);
/// let sampler = sampler.create(&graph, SamplerConfig::default())?;
/// let seeds = Seeds::nodes(vec![NodeId(0)]);
/// let sampled = sampler.sample_blocks(&seeds, RngKey::new(7), &mut Scratch::default())?;
/// assert_eq!(sampled.blocks[1].n_edges(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CustomSampler {
    name: Arc<str>,
    settings: BTreeMap<String, String>,
    create: Arc<Create>,
}

impl CustomSampler {
    /// Names a sampler. `create` is called once for each graph that is sampled, such as those of the phases of a split by time. It
    /// receives the graph and the configuration of the loader. The sampler decides what fanouts and the rule mean; its edge weights
    /// and types must be of the configured kinds. The blocks must depend on the seeds and on the key
    /// only.
    pub fn new<S: FrontierSampler + 'static>(
        name: &str,
        create: impl Fn(Arc<Csc>, SamplerConfig) -> S + Send + Sync + 'static,
    ) -> Self {
        Self::try_new(name, move |graph, config| Ok(create(graph, config)))
    }

    /// Names a sampler like [`CustomSampler::new`], whose constructor may fail, for example on a graph without edge weights. An error
    /// of the program's own is [`Error::Elsewhere`](crate::Error::Elsewhere).
    ///
    /// ```
    /// use kiln_sample::{CustomSampler, NeighborSampler};
    /// let sampler = CustomSampler::try_new("neighbors", NeighborSampler::with_config);
    /// assert_eq!(sampler.name(), "neighbors");
    /// ```
    pub fn try_new<S: FrontierSampler + 'static>(
        name: &str,
        create: impl Fn(Arc<Csc>, SamplerConfig) -> Result<S> + Send + Sync + 'static,
    ) -> Self {
        let create: Arc<Create> = Arc::new(move |graph: Arc<Csc>, config: SamplerConfig| {
            Ok(Arc::new(create(graph, config)?) as Arc<dyn FrontierSampler>)
        });
        Self { name: name.into(), settings: BTreeMap::new(), create }
    }

    /// Records a setting of the sampler, on which its blocks depend. A run resumes, and a saved model predicts, with equal settings
    /// only.
    ///
    /// ```
    /// use kiln_sample::{CustomSampler, NeighborSampler};
    /// let n_hops = 2;
    /// let sampler = CustomSampler::new("whole", move |graph, _| NeighborSampler::full(graph, n_hops)).setting("hops", n_hops);
    /// assert_eq!(sampler.to_string(), "whole (hops: 2)");
    /// ```
    #[must_use]
    pub fn setting(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.settings.insert(name.to_owned(), value.to_string());
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the settings, by name.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }

    /// Returns true if both have the same constructor: one is a clone of the other, whose settings may differ.
    pub fn has_constructor_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.create, &other.create)
    }

    /// Creates the sampler on a graph. Its blocks are checked.
    ///
    /// # Errors
    /// Returns the error of the constructor, [`SamplerError::Nodes`] for a sampler of another graph, and [`SamplerError::Settings`]
    /// for one whose edge weights or types are of another kind than those of the configuration.
    pub fn create(&self, graph: &Arc<Csc>, config: SamplerConfig) -> Result<Arc<dyn FrontierSampler>> {
        let weights = config.weights;
        let has_types = config.edge_types;
        let sampler = (self.create)(Arc::clone(graph), config)?;
        for (what, expected, got) in [
            ("edge weights", format!("{weights:?}"), format!("{:?}", sampler.weights())),
            ("edge types", format!("{has_types:?}"), format!("{:?}", sampler.has_edge_types())),
        ] {
            if expected != got {
                return Err(
                    SamplerError::Settings { name: self.name.to_string(), what, expected, got }.into()
                );
            }
        }
        let expected = graph.n_nodes();
        let got = sampler.n_nodes();
        if expected != got {
            return Err(SamplerError::Nodes { name: self.name.to_string(), expected, got }.into());
        }
        Ok(Arc::new(CheckedSampler::new(Arc::clone(&self.name), sampler, graph)))
    }
}

/// Formats the name, with the settings in parentheses.
impl fmt::Display for CustomSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.settings.is_empty() {
            return Ok(());
        }
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        write!(f, " ({})", settings.join(", "))
    }
}

impl fmt::Debug for CustomSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
