use kiln_graph::{did_you_mean, similar_name};
use kiln_nn::{
    BlockModel, GraphMetadata, GraphRequirements, HeteroModelConfig, ModelConfig, TimeEncoderConfig,
};
use serde_json::{Map, Value};

use crate::saved::config_fields::config_fields;
use crate::saved::models::{Row, RowVisitor, node_models, similar_model, visit_rows};

/// A model of nodes by its name and its options: the default configuration for a graph, with some fields set.
/// [`node_models`] returns the names, and [`NamedModel::configure`] calls a function of the configuration, whose type depends on
/// the name. A program can so read the model from its flags or a file.
///
/// ```
/// use kiln_nn::{BlockModel, ModelConfig};
/// use kiln_train::{ConfigVisitor, NamedModel};
///
/// struct PrintConfig;
///
/// impl ConfigVisitor for PrintConfig {
///     type Output = String;
///
///     fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) -> String {
///         format!("{} with {} layers", C::KIND, config.n_layers())
///     }
/// }
///
/// // 100 feature columns, 10 classes.
/// let model = NamedModel::new("gat", 100, 10).option("n_layers", 2).option("n_heads", 8);
/// assert_eq!(model.configure(PrintConfig)?, "gat with 2 layers");
/// let error = NamedModel::new("gcn", 100, 10).option("n_heads", 8).configure(PrintConfig).unwrap_err();
/// assert!(error.to_string().starts_with("the model gcn has no option `n_heads`"));
/// # Ok::<(), kiln_train::NamedModelError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NamedModel {
    /// The name, one of [`node_models`].
    pub name: String,
    /// The number of feature columns. With several types of nodes, the width of the rows that the encoder computes.
    pub d_in: usize,
    /// The width of the output rows: the number of classes or targets, or the width that a decoder of links reads.
    pub d_out: usize,
    /// The properties of the graph. [`GraphMetadata::widths`] are those of a graph with several types of nodes, or with named
    /// relations; the configuration is then a [`HeteroModelConfig`].
    pub graph: GraphMetadata,
    /// The fields of the configuration that are set, by name, with their values in JSON. In a [`HeteroModelConfig`], they are
    /// those of the model within.
    pub options: Map<String, Value>,
    /// True if the model reads the edge features of the graph ([`ModelConfig::with_edge_features`]).
    pub edge_features: bool,
    /// The encoding of the ages of the parts of the graph with times ([`GraphMetadata::timed`]); `None` for a model that reads none.
    pub time_encoding: Option<TimeEncoderConfig>,
}

/// A function of the configuration of a [`NamedModel`], such as its training.
pub trait ConfigVisitor: Sized {
    /// The result of the function.
    type Output;

    /// Calls the function on a configuration; for graphs with several types of nodes, and for ages, a [`HeteroModelConfig`].
    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) -> Self::Output;
}

impl NamedModel {
    /// Creates a model with the default options, for a graph with one type of nodes, `d_in` feature columns and `d_out` outputs.
    pub fn new(name: impl Into<String>, d_in: usize, d_out: usize) -> Self {
        let graph = GraphMetadata::default();
        let options = Map::new();
        Self { name: name.into(), d_in, d_out, graph, options, edge_features: false, time_encoding: None }
    }

    /// Sets the properties of the graph.
    #[must_use]
    pub fn graph(self, graph: GraphMetadata) -> Self {
        Self { graph, ..self }
    }

    /// Sets a field of the configuration. The value of an enumeration is its form in `model.json`, such as `"layer"` for
    /// [`Normalization::Layer`](kiln_nn::Normalization::Layer).
    #[must_use]
    pub fn option(mut self, option: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.insert(option.into(), value.into());
        self
    }

    /// Makes the model read the edge features of the graph, whose widths are those of the [`GraphMetadata`].
    ///
    /// ```
    /// use kiln_nn::GraphMetadata;
    /// use kiln_train::NamedModel;
    /// // The edges have 5 feature columns.
    /// let graph = GraphMetadata { d_edge: Some(5), ..GraphMetadata::default() };
    /// let model = NamedModel::new("gatv2", 100, 10).graph(graph).edge_features();
    /// assert_eq!(model.requirements()?.d_edge, Some(5));
    /// # Ok::<(), kiln_train::NamedModelError>(())
    /// ```
    #[must_use]
    pub fn edge_features(self) -> Self {
        Self { edge_features: true, ..self }
    }

    /// Makes the model read the ages of nodes and edges, encoded by `times` ([`HeteroModelConfig::time_encoding`]). The graph must
    /// state its parts with times. With one type of nodes, the rows that the model reads have its hidden width.
    ///
    /// ```
    /// use kiln_nn::{GraphMetadata, TimeEncoderConfig, TimedParts};
    /// use kiln_train::NamedModel;
    /// // Nodes have times, edges do not.
    /// let timed = TimedParts { node_types: vec![true], relations: vec![false] };
    /// let graph = GraphMetadata { timed: Some(timed.clone()), ..GraphMetadata::default() };
    /// let model = NamedModel::new("sage", 100, 10).graph(graph).time_encoding(TimeEncoderConfig::fixed(16));
    /// assert_eq!(model.requirements()?.ages, Some(timed));
    /// # Ok::<(), kiln_train::NamedModelError>(())
    /// ```
    #[must_use]
    pub fn time_encoding(self, times: TimeEncoderConfig) -> Self {
        Self { time_encoding: Some(times), ..self }
    }

    /// Calls a function on the configuration.
    ///
    /// # Errors
    /// Returns an error if no model for such graphs has the name, if its configuration has no field of the name of an option,
    /// if a field cannot have the value, or if there are no ages to encode. Numbers that are out of range are errors of
    /// [`ModelConfig::init`].
    pub fn configure<V: ConfigVisitor>(&self, visitor: V) -> Result<V::Output, NamedModelError> {
        let configuration = visit_rows(Configuration { model: self, state: State::Searching(visitor) });
        match configuration.state {
            State::Found(output) => output,
            State::Searching(_) => Err(self.not_found()),
        }
    }

    /// Returns what the model requires of the graph.
    ///
    /// # Errors
    /// Same as [`NamedModel::configure`].
    pub fn requirements(&self) -> Result<GraphRequirements, NamedModelError> {
        self.configure(RequirementsOf)
    }

    /// Returns true if the graph has several types of nodes, or named relations.
    fn has_several_types(&self) -> bool {
        self.graph.widths.is_some()
    }

    /// Returns the configuration of a row, that of the model within for several types of nodes.
    fn config<C: ModelConfig>(&self, row: Row) -> Result<C, NamedModelError> {
        let d_in = self.width_of_rows::<C>();
        let default = C::for_dims(d_in, self.d_out).for_graph(&self.graph);
        self.check_determined(&default, d_in)?;
        let of_row = row.option.map(|(option, value)| (option, Value::from(value)));
        let given = self.options.iter().map(|(option, value)| (option.as_str(), value.clone()));
        let mut options = of_row.into_iter().chain(given);
        let config =
            options.try_fold(default, |config, (option, value)| self.with_option(&config, option, value))?;
        if !self.edge_features {
            return Ok(config);
        }
        config.with_edge_features(&self.graph).ok_or_else(|| self.no_edge_features())
    }

    /// Returns the width of the rows that the model within reads. An encoder for ages of one type of nodes computes rows of the
    /// hidden width.
    fn width_of_rows<C: ModelConfig>(&self) -> usize {
        if self.time_encoding.is_none() || self.has_several_types() {
            return self.d_in;
        }
        let default = config_fields(&C::for_dims(self.d_in, self.d_out)).unwrap_or_default();
        let hidden = self.options.get("hidden").or(default.get("hidden")).and_then(Value::as_u64);
        hidden.map_or(self.d_in, |hidden| hidden as usize)
    }

    /// Calls a function on a configuration, behind an encoder for types of nodes with these widths.
    fn visit_encoded<C: ModelConfig<Model: BlockModel> + 'static, V: ConfigVisitor>(
        &self,
        visitor: V,
        config: C,
        widths: Vec<Option<usize>>,
    ) -> Result<V::Output, NamedModelError> {
        let config = HeteroModelConfig::new(widths, config);
        let Some(times) = self.time_encoding else { return Ok(visitor.visit(config)) };
        let encoded = config.time_encoding(times, &self.graph);
        let encoded = encoded.ok_or_else(|| NamedModelError::NothingToEncode { name: self.name.clone() })?;
        Ok(visitor.visit(encoded))
    }

    /// Returns the error for edge features that the model does not read, or that the graph does not have.
    fn no_edge_features(&self) -> NamedModelError {
        let has_several_types = self.has_several_types();
        let has_features = match has_several_types {
            true => self.graph.edge_widths.iter().flatten().any(Option::is_some),
            false => self.graph.d_edge.is_some(),
        };
        let name = self.name.clone();
        if !has_features {
            return NamedModelError::GraphWithoutEdgeFeatures { name };
        }
        let entries = node_models();
        let readers = entries.iter().filter(|entry| entry.can_read_edge_features(has_several_types));
        let known = readers.map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        NamedModelError::NoEdgeFeatures { name, known }
    }

    /// Checks that no option contradicts a field that the widths and the graph determine.
    fn check_determined<C: ModelConfig>(&self, default: &C, d_in: usize) -> Result<(), NamedModelError> {
        // Other widths change these fields, and so does another graph.
        let wider = C::for_dims(d_in + 1, self.d_out + 1).for_graph(&self.graph);
        let without_graph = C::for_dims(d_in, self.d_out);
        let others = [config_fields(&wider), config_fields(&without_graph)].map(Result::unwrap_or_default);
        let own = config_fields(default).unwrap_or_default();
        for (option, value) in &self.options {
            let is_determined = others.iter().any(|other| other.get(option) != own.get(option));
            if is_determined && own.get(option) != Some(value) {
                let name = self.name.clone();
                return Err(NamedModelError::DeterminedOption { name, option: option.clone() });
            }
        }
        Ok(())
    }

    /// Returns a configuration with another value of a field.
    fn with_option<C: ModelConfig>(
        &self,
        config: &C,
        option: &str,
        value: Value,
    ) -> Result<C, NamedModelError> {
        let invalid = |error: serde_json::Error| NamedModelError::InvalidOption {
            name: self.name.clone(),
            option: option.to_owned(),
            reason: error.to_string(),
        };
        let mut fields = config_fields(config).map_err(invalid)?;
        let known = fields.keys().cloned().collect::<Vec<_>>().join(", ");
        let Some(field) = fields.get_mut(option) else {
            return Err(NamedModelError::UnknownOption {
                name: self.name.clone(),
                option: option.to_owned(),
                known,
            });
        };
        *field = value;
        serde_json::from_value(Value::Object(fields)).map_err(invalid)
    }

    /// Returns the error for a name that no row for such graphs has.
    fn not_found(&self) -> NamedModelError {
        let has_several_types = self.has_several_types();
        let entries = node_models();
        let for_such = entries.iter().filter(|entry| match has_several_types {
            true => entry.several_types,
            false => entry.one_type,
        });
        let known = for_such.map(|entry| entry.name).collect::<Vec<_>>().join(", ");
        let name = self.name.clone();
        match entries.iter().any(|entry| entry.name == name) {
            true if has_several_types => NamedModelError::ForOneType { name, known },
            true => NamedModelError::ForSeveralTypes { name, known },
            false => NamedModelError::UnknownName { name, known },
        }
    }
}

/// The errors of a [`NamedModel`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamedModelError {
    /// No model of nodes has the name.
    #[error(
        "there is no model of nodes with the name {name}: use one of {known}{}",
        did_you_mean(similar_model(name))
    )]
    UnknownName {
        /// The name.
        name: String,
        /// The names of the models for such graphs, separated by commas.
        known: String,
    },
    /// The model is for graphs with one type of nodes, and the graph has several.
    #[error(
        "the model {name} is for graphs with one type of nodes, but the graph has several: use one of {known}"
    )]
    ForOneType {
        /// The name of the model.
        name: String,
        /// The names of the models for several types of nodes, separated by commas.
        known: String,
    },
    /// The model is for graphs with several types of nodes, and the graph has one.
    #[error(
        "the model {name} is for graphs with several types of nodes, but the graph has one: use one of {known}"
    )]
    ForSeveralTypes {
        /// The name of the model.
        name: String,
        /// The names of the models for one type of nodes, separated by commas.
        known: String,
    },
    /// The model does not read edge features.
    #[error("the model {name} does not read edge features: use one of {known}")]
    NoEdgeFeatures {
        /// The name of the model.
        name: String,
        /// The names of the models for such graphs that read edge features, separated by commas.
        known: String,
    },
    /// The model is to read edge features that the graph does not have.
    #[error(
        "the model {name} cannot read edge features, which the edges of the data do not have: use data with edge features"
    )]
    GraphWithoutEdgeFeatures {
        /// The name of the model.
        name: String,
    },
    /// The model is to read ages, and has none to read.
    #[error(
        "the model {name} has no ages to encode: the data has no times of nodes, nor of edges whose features the model reads"
    )]
    NothingToEncode {
        /// The name of the model.
        name: String,
    },
    /// The configuration of the model has no such field.
    #[error(
        "the model {name} has no option `{option}`: use one of {known}{}",
        did_you_mean(similar_name(option, known.split(", ")))
    )]
    UnknownOption {
        /// The name of the model.
        name: String,
        /// The name of the option.
        option: String,
        /// The fields of the configuration, separated by commas.
        known: String,
    },
    /// An option contradicts a field that the widths or the graph determine.
    #[error(
        "the option `{option}` of the model {name} follows from the widths and the graph of the model: remove the option"
    )]
    DeterminedOption {
        /// The name of the model.
        name: String,
        /// The name of the option.
        option: String,
    },
    /// A field of the configuration cannot have the value.
    #[error("the option `{option}` of the model {name} is invalid: {reason}")]
    InvalidOption {
        /// The name of the model.
        name: String,
        /// The name of the option.
        option: String,
        /// The expected and the actual value.
        reason: String,
    },
}

/// Returns what a configuration requires of a graph.
struct RequirementsOf;

impl ConfigVisitor for RequirementsOf {
    type Output = GraphRequirements;

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) -> GraphRequirements {
        config.requirements()
    }
}

/// The search for the row of a model, on whose configuration a function is called.
struct Configuration<'a, V: ConfigVisitor> {
    model: &'a NamedModel,
    state: State<V>,
}

enum State<V: ConfigVisitor> {
    Searching(V),
    Found(Result<V::Output, NamedModelError>),
}

impl<V: ConfigVisitor> Configuration<'_, V> {
    /// Calls the function if the row is that of the model.
    fn call<C: ModelConfig>(
        self,
        row: Row,
        has_several_types: bool,
        call: impl FnOnce(V, C) -> Result<V::Output, NamedModelError>,
    ) -> Self {
        let model = self.model;
        let is_selected = row.name == model.name && has_several_types == model.has_several_types();
        let state = match self.state {
            State::Searching(visitor) if is_selected => {
                State::Found(model.config(row).and_then(|config| call(visitor, config)))
            }
            state => state,
        };
        Self { model, state }
    }
}

impl<V: ConfigVisitor> RowVisitor for Configuration<'_, V> {
    fn one_type<C: ModelConfig<Model: BlockModel> + 'static>(self, row: Row) -> Self {
        let model = self.model;
        self.call(row, false, |visitor, config: C| match model.time_encoding {
            Some(_) => model.visit_encoded(visitor, config, vec![Some(model.d_in)]),
            None => Ok(visitor.visit(config)),
        })
    }

    fn several_types<C: ModelConfig<Model: BlockModel> + 'static>(self, row: Row) -> Self {
        let widths = self.model.graph.widths.clone().unwrap_or_default();
        let model = self.model;
        self.call(row, true, |visitor, config: C| model.visit_encoded(visitor, config, widths))
    }
}
