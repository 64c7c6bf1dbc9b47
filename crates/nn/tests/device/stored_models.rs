//! The stored form of every model: the JSON text of its configuration, the `Debug` text from which the identity of a run is
//! computed, and the names, shapes and initial values of its parameters. Files of earlier versions depend on each of them.

use std::fmt::{Debug, Write};

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use kiln_kernels::testing::{device, values};
use kiln_nn::{
    Aggregate, AttentionKind, EdgeInput, Epsilon, GatConfig, GcnConfig, GineConfig, HeteroModelConfig,
    HgtConfig, JumpingKnowledge, LinkDecoderConfig, LinkModelConfig, ModelConfig, Normalization, RgcnConfig,
    RsageConfig, SageConfig, TransformerConfig, WeightInit,
};
use kiln_sample::RngKey;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::common::typed::graph;

/// The parameters of a model: their names, shapes and values.
#[derive(Default)]
struct Stored {
    path: Vec<String>,
    text: String,
    /// The hash of the values by FNV-1a.
    hash: u64,
}

impl ModuleVisitor for Stored {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.to_string());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        writeln!(self.text, "{} {:?}", self.path.join("."), param.dims()).expect("a text should grow");
        for value in values(param.val()) {
            self.hash = (self.hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Returns the JSON and `Debug` texts of a configuration, after a check that the JSON text is read again, and that an
/// unknown field is an error.
fn texts<C: Debug + PartialEq + Serialize + DeserializeOwned>(config: &C) -> String {
    let json = serde_json::to_string(config).expect("the configuration should be serialisable");
    assert_eq!(serde_json::from_str::<C>(&json).expect("the text should be read"), *config);
    let unknown = json.replacen('{', "{\"other\":1,", 1);
    let error = serde_json::from_str::<C>(&unknown).expect_err("an unknown field should be an error");
    assert!(error.to_string().starts_with("unknown field `other`"), "{error}");
    format!("{json}\n{config:?}\n")
}

/// Returns the texts of a configuration, and the parameters of its model.
fn stored<C: ModelConfig + PartialEq>(name: &str, config: &C) -> String {
    let model = config.init(RngKey::new(9), &device()).expect("the configuration should be valid");
    let mut parameters = Stored::default();
    model.visit(&mut parameters);
    let Stored { text, hash, .. } = parameters;
    let texts = texts(config);
    let (kind, min_parameters) = (C::KIND, config.min_parameters());
    format!("== {name}\n{kind} {min_parameters}\n{texts}{text}{hash:016x}\n\n")
}

#[test]
fn configurations_and_parameters_are_stored_as_before() {
    let metagraph = graph().metagraph();
    let (d_in, n_classes) = (5, 3);
    let sage = SageConfig::new(d_in, n_classes);
    let gcn = GcnConfig::new(d_in, n_classes);
    let gat = GatConfig::new(d_in, n_classes);
    let rgcn = RgcnConfig::new(d_in, n_classes, 6);
    let rsage = RsageConfig::new(d_in, n_classes);
    let gine = GineConfig::new(d_in, n_classes, EdgeInput::Types(4));
    let hgt = HgtConfig::new(d_in, n_classes);
    let transformer = TransformerConfig::new(d_in, n_classes);
    let mut text = String::new();
    text += &stored("sage", &sage);
    text += &stored("gcn", &gcn);
    text += &stored("gat", &gat);
    text += &stored("gat of cora", &GatConfig::cora(d_in, n_classes));
    text += &stored("rgcn", &rgcn);
    text += &stored("rsage", &rsage);
    text += &stored("gine", &gine);
    text += &stored("hgt", &hgt);
    text += &stored("transformer", &transformer);

    macro_rules! with_options {
        ($config:expr, $jumping:ident) => {
            $config
                .hidden(8)
                .layers(3)
                .input_dropout(0.25)
                .dropout(0.75)
                .norm(Normalization::Layer)
                .residual(true)
                .jumping(JumpingKnowledge::$jumping)
        };
    }
    let sage = with_options!(sage, Cat).aggregate(Aggregate::Max).weight_init(WeightInit::Pyg);
    text += &stored("sage with options", &sage);
    text += &stored("gcn with options", &with_options!(gcn, Max));
    let gat = with_options!(gat, Last).heads(2).output_heads(3).attention_dropout(0.5);
    let gat = gat.attention(AttentionKind::GatV2);
    text += &stored("gat with options", &gat);
    text += &stored("rgcn with options", &with_options!(rgcn, Cat).bases(2));
    let rsage = with_options!(rsage, Max).metagraph(&metagraph);
    let rsage = rsage.aggregate(Aggregate::Sum).weight_init(WeightInit::Pyg);
    text += &stored("rsage with options", &rsage);
    let gine = GineConfig { edges: EdgeInput::Features(7), ..gine };
    let gine = with_options!(gine, Last).mlp_layers(3).epsilon(Epsilon::Learnable(0.5));
    text += &stored("gine with options", &gine);
    let hgt = HgtConfig { project_skip: false, ..with_options!(hgt, Cat).heads(4).metagraph(&metagraph) };
    text += &stored("hgt with options", &hgt);
    let transformer = with_options!(transformer, Cat).heads(4).output_heads(3).attention_dropout(0.5);
    text += &stored("transformer with options", &transformer.beta(true));

    let widths = [Some(6), None, Some(2), None];
    let typed = HeteroModelConfig::new(widths, rsage);
    text += &stored("typed model", &typed);
    let decoder = LinkDecoderConfig::Mlp { hidden: 4, n_layers: 2, dropout: 0.25 };
    text += &stored("link model", &LinkModelConfig { encoder: sage, decoder });
    text += &stored("typed link model", &LinkModelConfig { encoder: typed, decoder });

    let expected = include_str!("stored_models.txt");
    for (got, expected) in text.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(got, expected);
    }
    assert_eq!(text, expected);
}

/// Configurations of versions before the options of the frame, of the weights and of the attention.
#[test]
fn configurations_of_earlier_versions_are_read() {
    let read = |text: &str| serde_json::from_str::<SageConfig>(text).expect("the text should be read");
    let sage = r#"{"d_in":5,"hidden":256,"n_classes":3,"n_layers":3,"aggregate":"mean","input_dropout":0.0,"dropout":0.5}"#;
    assert_eq!(read(sage), SageConfig::new(5, 3));
    let gcn = r#"{"d_in":5,"hidden":256,"n_classes":3,"n_layers":3,"input_dropout":0.0,"dropout":0.5}"#;
    assert_eq!(serde_json::from_str::<GcnConfig>(gcn).expect("it should be read"), GcnConfig::new(5, 3));
    let gat = r#"{"d_in":5,"hidden":256,"n_classes":3,"n_layers":3,"n_heads":4,"n_output_heads":1,"negative_slope":0.2,"attention_dropout":0.0,"input_dropout":0.0,"dropout":0.5}"#;
    assert_eq!(serde_json::from_str::<GatConfig>(gat).expect("it should be read"), GatConfig::new(5, 3));
    let hgt = r#"{"d_in":5,"hidden":256,"n_classes":3,"n_layers":2,"n_heads":8,"n_types":1,"relations":[[0,0]],"input_dropout":0.0,"dropout":0.2,"jumping":"last"}"#;
    let hgt: HgtConfig = serde_json::from_str(hgt).expect("it should be read");
    assert_eq!(hgt, HgtConfig { project_skip: false, ..HgtConfig::new(5, 3) });
}
