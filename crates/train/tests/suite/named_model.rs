//! Tests of models by name: their configurations, their options, and the errors of options that they do not have.

use kiln_graph::Metagraph;
use kiln_nn::{
    AttentionKind, BlockModel, Epsilon, GatConfig, GineConfig, GraphMetadata, HeteroModelConfig, HgtConfig,
    JumpingKnowledge, ModelConfig, Normalization, RsageConfig, SageConfig, WeightInit,
};
use kiln_train::{ConfigVisitor, ModelRegistry, NamedModel, NamedModelError, NodeModelEntry, node_models};
use serde_json::{Value, json};

/// The number of feature columns, and that of outputs.
const DIMS: [usize; 2] = [5, 3];

/// Returns the kind of a configuration and its form in JSON.
struct Json;

impl ConfigVisitor for Json {
    type Output = (&'static str, Value);

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) -> Self::Output {
        (C::KIND, serde_json::to_value(config).expect("a configuration should have a form in JSON"))
    }
}

fn named(name: &str) -> NamedModel {
    NamedModel::new(name, DIMS[0], DIMS[1])
}

/// Returns the properties of a graph with two types of nodes, of which one has features, and two relations.
fn heterogeneous() -> GraphMetadata {
    let metagraph = Metagraph::new(2, vec![[0, 1], [1, 0]]).expect("the relations should be valid");
    GraphMetadata {
        n_relations: Some(2),
        metagraph: Some(metagraph),
        widths: Some(vec![Some(7), None]),
        ..GraphMetadata::default()
    }
}

/// Returns the graphs for which a name has a model.
fn graphs(entry: &NodeModelEntry) -> Vec<GraphMetadata> {
    let one_type = entry.one_type.then(GraphMetadata::default);
    one_type.into_iter().chain(entry.several_types.then(heterogeneous)).collect()
}

/// Returns the options of a configuration: those of the model within, for several types of nodes.
fn options(config: &Value) -> &Value {
    config.get("model").unwrap_or(config)
}

fn check<C: ModelConfig>(model: &NamedModel, expected: &C) {
    let expected = serde_json::to_value(expected).expect("a configuration should have a form in JSON");
    assert_eq!(model.configure(Json), Ok((C::KIND, expected)));
}

#[test]
fn a_name_and_options_are_a_configuration() {
    let [d_in, d_out] = DIMS;
    check(&named("sage"), &SageConfig::new(d_in, d_out));
    let shaped = named("sage")
        .option("hidden", 16)
        .option("n_layers", 2)
        .option("dropout", 0.1)
        .option("norm", "layer")
        .option("residual", true)
        .option("jumping", "cat")
        .option("weight_init", "pyg");
    let expected = SageConfig::new(d_in, d_out).hidden(16).layers(2).dropout(0.1).norm(Normalization::Layer);
    let expected = expected.residual(true).jumping(JumpingKnowledge::Cat).weight_init(WeightInit::Pyg);
    check(&shaped, &expected);
    check(&named("gat"), &GatConfig::new(d_in, d_out));
    let v2 = GatConfig::new(d_in, d_out).attention(AttentionKind::GatV2);
    check(&named("gatv2"), &v2);
    check(&named("gatv2").option("n_heads", 2), &v2.heads(2));
    let gine = GineConfig::for_dims(d_in, d_out).epsilon(Epsilon::Learnable(0.5));
    check(&named("gine").option("epsilon", json!({ "learnable": 0.5 })), &gine);
    let featured = GraphMetadata { d_edge: Some(6), ..GraphMetadata::default() };
    check(&named("gine").graph(featured.clone()), &GineConfig::for_dims(d_in, d_out).for_graph(&featured));
}

#[test]
fn a_name_has_another_configuration_on_several_types_of_nodes() {
    let [d_in, d_out] = DIMS;
    let graph = heterogeneous();
    let widths = graph.widths.clone().unwrap_or_default();
    let rsage = RsageConfig::new(d_in, d_out).for_graph(&graph).layers(2);
    let expected = HeteroModelConfig::new(widths.clone(), rsage);
    check(&named("sage").graph(graph.clone()).option("n_layers", 2), &expected);
    let hgt = HgtConfig::new(d_in, d_out).for_graph(&graph).heads(2);
    check(&named("hgt").graph(graph).option("n_heads", 2), &HeteroModelConfig::new(widths, hgt));
}

#[test]
fn the_default_of_an_option_changes_nothing() {
    for entry in node_models() {
        for graph in graphs(&entry) {
            let model = named(entry.name).graph(graph);
            let (kind, config) = model.configure(Json).expect("the model should have a configuration");
            let fields = options(&config).as_object().expect("a configuration should be an object").clone();
            for (option, value) in fields {
                assert!(entry.options.contains_key(&option), "{} {option}", entry.name);
                let same = model.clone().option(&option, value);
                assert_eq!(same.configure(Json), Ok((kind, config.clone())), "{} {option}", entry.name);
            }
        }
    }
}

#[test]
fn an_option_that_a_model_does_not_have_is_an_error_that_names_both() {
    let entries = node_models();
    let mut all: Vec<&String> = entries.iter().flat_map(|entry| entry.options.keys()).collect();
    let none = "no_such_option".to_owned();
    all.push(&none);
    let mut n_errors = 0;
    for entry in &entries {
        for graph in graphs(entry) {
            let model = named(entry.name).graph(graph);
            let (_, config) = model.configure(Json).expect("the model should have a configuration");
            for &option in all.iter().filter(|option| options(&config).get(option.as_str()).is_none()) {
                let error =
                    model.clone().option(option, 1).configure(Json).expect_err("it has no such option");
                let expected = format!("the model {} has no option `{option}`: use one of ", entry.name);
                assert!(error.to_string().starts_with(&expected), "{error}");
                assert!(matches!(error, NamedModelError::UnknownOption { .. }), "{error}");
                n_errors += 1;
            }
        }
    }
    assert!(entries.len() < n_errors, "{n_errors}");
}

#[test]
fn errors_name_the_value_or_the_models_for_such_graphs() {
    let text =
        |model: NamedModel| model.configure(Json).expect_err("the model should be rejected").to_string();
    let expected = "there is no model of nodes with the name gin: use one of sage, gcn, gat, gatv2, transformer, rgcn, gine (did you mean `gine`?)";
    assert_eq!(text(named("gin")), expected);
    let expected = "the model hgt is for graphs with several types of nodes, but the graph has one: use one of sage, gcn, gat, \
                    gatv2, transformer, rgcn, gine";
    assert_eq!(text(named("hgt")), expected);
    let expected = "the model gat is for graphs with one type of nodes, but the graph has several: use one of sage, rgcn, hgt";
    assert_eq!(text(named("gat").graph(heterogeneous())), expected);
    let expected =
        "the option `n_layers` of the model gcn is invalid: invalid type: string \"two\", expected usize";
    assert_eq!(text(named("gcn").option("n_layers", "two")), expected);
    let expected = "the option `norm` of the model gcn is invalid: unknown variant `group`, expected one of `none`, `batch`, \
                    `layer`";
    assert_eq!(text(named("gcn").option("norm", "group")), expected);
    let expected = "the option `d_in` of the model gcn follows from the widths and the graph of the model: remove the option";
    assert_eq!(text(named("gcn").option("d_in", 9999)), expected);
}

#[test]
fn the_kinds_of_saved_models_are_those_of_the_table_and_of_earlier_versions() {
    let registry = ModelRegistry::default();
    let kinds = registry.kinds().collect::<Vec<_>>().join(" ");
    // Those of graphs with one type of nodes have an encoder (`typed`) if they read ages.
    let expected = "gat gcn gin gine link-gat link-gcn link-gine link-rgcn link-sage link-transformer link-typed-gat \
                    link-typed-gcn link-typed-gine link-typed-hgt link-typed-rgcn link-typed-rsage link-typed-sage \
                    link-typed-transformer rgcn sage transformer typed-gat typed-gcn typed-gine typed-hgt typed-rgcn \
                    typed-rsage typed-sage typed-transformer";
    assert_eq!(kinds, expected);
}
