use clap::FromArgMatches;
use kiln::nn::{
    BlockModel, EdgeInput, GatConfig, GcnConfig, GineConfig, HeteroModelConfig, HgtConfig, ModelConfig,
    RgcnConfig, RsageConfig, SageConfig, TransformerConfig,
};
use kiln::train::ConfigVisitor;

use super::*;

/// Data with 5 feature columns, 3 classes and 2 types of edges.
struct Sizes {
    d_edge: Option<usize>,
}

impl DataDims for Sizes {
    fn dims(&self) -> (usize, usize) {
        (5, 3)
    }

    fn n_edge_types(&self) -> Option<usize> {
        Some(2)
    }

    fn d_edge(&self) -> Option<usize> {
        self.d_edge
    }
}

/// Compares a configuration with the expected one, as text.
struct Compare(String);

impl ConfigVisitor for Compare {
    type Output = ();

    fn visit<C: ModelConfig<Model: BlockModel> + 'static>(self, config: C) {
        assert_eq!(format!("{config:?}"), self.0);
    }
}

fn args(flags: &str) -> ModelArgs {
    let words = ["train"].into_iter().chain(flags.split_whitespace());
    let matches = ModelArgs::augment_args(clap::Command::new("train")).try_get_matches_from(words);
    let matches = matches.expect("the flags should be valid");
    ModelArgs::from_arg_matches(&matches).expect("the flags should be valid")
}

fn check<C: ModelConfig>(flags: &str, expected: &C) {
    let sizes = Sizes { d_edge: None };
    let model = args(flags).build_node_model(&ModelGraph::OneType(&sizes), 3, false, 2, None);
    let model = model.expect("the flags should be valid");
    model.model.configure(Compare(format!("{expected:?}"))).expect("the options should be valid");
}

fn check_hetero<C: ModelConfig>(flags: &str, embedding: Option<usize>, expected: C) {
    let metagraph = Metagraph::new(2, vec![[0, 1], [1, 0]]).expect("the relations should be valid");
    let dims = vec![Some(7), None];
    let edge_widths = Some(vec![None, Some(4)]);
    let graph = ModelGraph::SeveralTypes { metagraph, dims: dims.clone(), edge_widths };
    let model = args(flags).build_node_model(&graph, embedding.unwrap_or(3), embedding.is_some(), 2, None);
    let model = model.expect("the flags should be valid");
    let expected = HeteroModelConfig::new(dims, expected);
    model.model.configure(Compare(format!("{expected:?}"))).expect("the options should be valid");
}

#[test]
fn flags_are_options_of_the_configuration() {
    check("", &SageConfig::new(5, 3).layers(2));
    check("--model gcn --hidden 16 --dropout 0.1", &GcnConfig::new(5, 3).layers(2).hidden(16).dropout(0.1));
    check("--model gat", &GatConfig::new(5, 3).layers(2));
    let gatv2 =
        GatConfig::new(5, 3).layers(2).attention(kiln::nn::AttentionKind::GatV2).heads(2).output_heads(3);
    check("--model gatv2 --heads 2 --output-heads 3 --attention-dropout 0.2", &gatv2.attention_dropout(0.2));
    let transformer = TransformerConfig::new(5, 3).layers(2);
    check("--model transformer", &transformer);
    let transformer = transformer.heads(2).output_heads(3).attention_dropout(0.2);
    check("--model transformer --heads 2 --output-heads 3 --attention-dropout 0.2", &transformer);
    let rgcn = RgcnConfig::new(5, 3, 2).layers(2);
    check("--model rgcn", &rgcn);
    check("--model rgcn --bases 3 --input-dropout 0.1", &rgcn.bases(3).input_dropout(0.1));
    let sage = SageConfig::new(5, 3).layers(2).norm(Normalization::Layer).residual(true);
    let sage = sage.jumping(JumpingKnowledge::Max).weight_init(WeightInit::Pyg);
    check("--norm layer --residual --jumping max --weight-init pyg", &sage);
    let gine = GineConfig::new(5, 3, EdgeInput::Types(2)).layers(2);
    check("--model gine", &gine);
    let gine = gine.mlp_layers(3).epsilon(Epsilon::Learnable(0.0));
    check("--model gine --mlp-layers 3 --learn-epsilon", &gine);
}

#[test]
fn gine_reads_the_features_of_edges_unless_a_flag_names_their_types() {
    for (flags, edges) in [("", EdgeInput::Features(4)), ("--edge-input types", EdgeInput::Types(2))] {
        let args = args(&format!("--model gine {flags}"));
        let sizes = Sizes { d_edge: Some(4) };
        let model = args.build_node_model(&ModelGraph::OneType(&sizes), 3, false, 2, None);
        let model = model.expect("the flags should be valid");
        let expected = GineConfig::new(5, 3, edges).layers(2);
        model.model.configure(Compare(format!("{expected:?}"))).expect("the options should be valid");
    }
}

/// Models that existed before the flag read edge features only if it is given, so that its runs keep their weights.
#[test]
fn other_models_read_the_features_of_edges_if_a_flag_names_them() {
    let build = |flags: &str| {
        let sizes = Sizes { d_edge: Some(4) };
        args(flags).build_node_model(&ModelGraph::OneType(&sizes), 3, false, 2, None)
    };
    let compare = |flags: &str, expected: String| {
        let model = build(flags).expect("the flags should be valid");
        model.model.configure(Compare(expected)).expect("the options should be valid");
    };
    let gatv2 = GatConfig::new(5, 3).layers(2).attention(kiln::nn::AttentionKind::GatV2);
    compare("--model gatv2", format!("{gatv2:?}"));
    compare("--model gatv2 --edge-input features", format!("{:?}", gatv2.edge_features(4)));
    let transformer = TransformerConfig::new(5, 3).layers(2);
    compare("--model transformer", format!("{transformer:?}"));
    compare("--model transformer --edge-input features", format!("{:?}", transformer.edge_features(4)));
    let rgcn = RgcnConfig::new(5, 3, 2).layers(2);
    compare("--model rgcn", format!("{rgcn:?}"));
    compare("--model rgcn --edge-input features", format!("{:?}", rgcn.edge_features([Some(4); 2])));
    for flags in ["", "--model gcn", "--model gat"] {
        let error =
            build(&format!("{flags} --edge-input features")).err().expect("the flag should be rejected");
        let expected =
            "does not read the edge features of such data: use gatv2, transformer, rgcn or gine with";
        assert!(error.to_string().contains(expected), "{error}");
    }
    let metagraph = Metagraph::new(2, vec![[0, 1], [1, 0]]).expect("the relations should be valid");
    let rsage = RsageConfig::new(256, 3).metagraph(&metagraph).layers(2).edge_features([None, Some(4)]);
    check_hetero("--edge-input features", None, rsage);
    let rgcn = RgcnConfig::new(256, 3, 2).layers(2).edge_features([None, Some(4)]);
    check_hetero("--model rgcn --edge-input features", None, rgcn);
}

/// The defaults are those of the help text, also where a configuration has others.
#[test]
fn models_of_several_types_have_the_defaults_of_the_flags() {
    let metagraph = Metagraph::new(2, vec![[0, 1], [1, 0]]).expect("the relations should be valid");
    let rsage = RsageConfig::new(256, 3).metagraph(&metagraph).layers(2);
    check_hetero("", None, rsage);
    let encoder =
        RsageConfig::new(16, 8).metagraph(&metagraph).layers(2).hidden(16).weight_init(WeightInit::Pyg);
    check_hetero("--hidden 16", Some(8), encoder);
    check_hetero("--model rgcn", None, RgcnConfig::new(256, 3, 2).layers(2));
    let hgt = HgtConfig::new(256, 3).metagraph(&metagraph).layers(2).heads(4).dropout(0.5);
    assert_eq!(hgt.jumping, JumpingKnowledge::Last);
    check_hetero("--model hgt", None, hgt.clone());
    check_hetero("--model hgt --jumping cat", Some(3), hgt.jumping(JumpingKnowledge::Cat));
}

/// A checkpoint records them, so other texts would end the resumption of earlier runs.
#[test]
fn defaults_are_recorded_as_in_earlier_versions() {
    let settings = |flags: &str, is_of_graphs| {
        let mut defaults = args(flags).defaults(is_of_graphs);
        defaults.sort();
        defaults.into_iter().map(|(flag, value)| format!("{flag} {value}")).collect::<Vec<_>>().join(", ")
    };
    for (name, others) in [
        ("sage", ""),
        ("gcn", ""),
        ("gat", "attention-dropout 0, "),
        ("gatv2", "attention-dropout 0, "),
        ("transformer", "attention-dropout 0, "),
        ("rgcn", "bases 4, "),
        ("hgt", ""),
        ("gine", ""),
    ] {
        let with_heads = matches!(name, "gat" | "gatv2" | "transformer" | "hgt");
        let heads = if with_heads { "heads 4, " } else { "" };
        let mlp_layers = if name == "gine" { "mlp-layers 2, " } else { "" };
        let output_heads =
            if matches!(name, "gat" | "gatv2" | "transformer") { ", output-heads 1" } else { "" };
        let expected =
            format!("{others}dropout 0.5, {heads}hidden 256, {mlp_layers}model {name}{output_heads}");
        assert_eq!(settings(&format!("--model {name}"), false), expected);
    }
    assert_eq!(settings("", false), "dropout 0.5, hidden 256, model sage");
    assert_eq!(settings("", true), "dropout 0.5, hidden 64, model gin");
    assert_eq!(settings("--model simplified", true), "dropout 0.5, hidden 64, model simplified");
    let given = "--model gat --heads 2 --attention-dropout 0.60 --dropout 0.10 --hidden 8";
    let expected = "attention-dropout 0.6, dropout 0.1, heads 2, hidden 8, model gat, output-heads 1";
    assert_eq!(settings(given, false), expected);
}
