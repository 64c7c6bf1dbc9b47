//! Predictions of graphs.

use kiln::SplitParts;
use kiln::data::NodeFeatures;
use kiln::predictions::{ItemSelection, SelectableItems, id_bytes, split_of_training};
use kiln::prelude::PredictOn;
use kiln::store::sha256;
use kiln::train::NamedTargets;
use kiln_usage::{bail, ensure};

use super::args::Mode;
use super::job::Job;
use crate::output::print_note_lines;

impl Job<'_> {
    pub(super) fn graphs(&self) -> anyhow::Result<()> {
        let args = self.args;
        let of_nodes = [
            ("--embeddings", args.embeddings),
            ("--mode", args.mode != Mode::AsEvaluated),
            ("--fanouts", args.fanouts.is_some()),
            ("--seed", args.seed.is_some()),
            ("--memory", args.memory.is_some()),
            ("--in-memory", args.in_memory),
            ("--parts", args.parts.is_given()),
        ];
        if let Some((flag, _)) = of_nodes.into_iter().find(|(_, is_given)| *is_given) {
            bail!("{flag} does not apply to a model of graphs: remove it");
        }
        let (data, split) = args.data.load_graphs()?;
        let recorded = self.model.info().inputs.node_features.as_deref();
        let given = args.node_features.map(|kind| data.node_features_kind(kind));
        if let (Some(given), Some(recorded)) = (given, recorded) {
            ensure!(
                given.name() == recorded,
                "--node-features {}, but the model was trained with {recorded}: remove the flag",
                given.name()
            );
        }
        let columns =
            data.feature_columns(given.or(recorded.and_then(NodeFeatures::from_name)).unwrap_or_default());
        print_note_lines(self.model.note_on_columns([("node", &columns[..])]));
        let features = match given {
            Some(kind) => self.model.reorder_columns("node", &data.node_features(kind)?, &columns)?,
            None => self.model.node_features(&data)?,
        };
        let NamedTargets { targets, notes } =
            self.model.targets_by_name(&data.targets(), &data.class_names)?;
        print_note_lines(notes);
        let split = match split {
            Some(split) => split,
            None => split_of_training(&self.model, &data, &*features)?,
        };
        let has_split = !split.train.is_empty() || !split.val.is_empty() || !split.test.is_empty();
        ensure!(
            has_split || *args.selection() != ItemSelection::Test,
            "the set has no split of its own, and is not that of the training: give --nodes all, or a file of ids"
        );
        let of_data = data.targets();
        let selectable = SelectableItems {
            n_items: data.n_graphs(),
            test: &split.test,
            new: None,
            targets: Some(&of_data),
        };
        let graphs = selectable.select(args.selection())?;
        let parts = SplitParts::new(data.n_graphs(), &split);
        let request = self.request(graphs, targets, parts);
        self.launch(&sha256(&id_bytes(&request.items)), |rank, folder| {
            let model = self.model_of(rank)?;
            let batches =
                model.graph_batches(data.graph(), data.node_offsets(), &features, &request.items)?;
            self.write(rank, folder, request.clone(), |output, each| {
                rank.predict_batches(&batches, output, |rows| each(&rows))
            })
        })
    }
}
