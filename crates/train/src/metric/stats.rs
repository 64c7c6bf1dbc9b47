use kiln_comm::Communicator;
use kiln_feature::TargetKind;

use crate::error::Result;
use crate::metric::confusion::Confusion;
use crate::metric::custom::MetricItems;
use crate::metric::kind::Metric;
use crate::metric::link_ranks::LinkRanks;
use crate::metric::multi_label::MultiLabelCounts;
use crate::metric::ranking::{
    average_precision, mean_over_classes, mean_over_labels, over_all_labels, over_all_links, roc_auc,
};
use crate::metric::regression::RegressionSums;
use crate::step::task::classification::{is_finite, predicted_class};
use crate::step::task::objective::has_prediction;

/// The statistics from which one metric is computed: counts or sums, which ranks add up, or for metrics of the order of
/// the items every output, which rank 0 gathers.
#[derive(Debug, Clone)]
pub struct MetricStats {
    metric: Metric,
    n_outputs: usize,
    held: Held,
}

/// The statistics of a kind of targets.
#[derive(Debug, Clone)]
enum Held {
    Classes(Confusion),
    MultiLabel(MultiLabelCounts),
    Regression(RegressionSums),
    Links(LinkRanks),
    /// The class of each item, and its logits, `n * n_outputs`.
    RankedClasses {
        labels: Vec<i32>,
        outputs: Vec<f32>,
    },
    /// The targets (NaN if missing) and the outputs of each item, both `n * n_outputs`: labels, 1 or 0, and logits, or numbers.
    RankedValues {
        targets: Vec<f32>,
        outputs: Vec<f32>,
    },
    /// The scores of each link and of its negatives, `n * n_outputs`.
    RankedLinks {
        scores: Vec<f32>,
    },
}

impl MetricStats {
    /// Creates statistics without items for a model with `n_outputs` outputs.
    ///
    /// # Errors
    /// Returns [`crate::MetricError::OtherMetric`] if the metric is not defined for these targets.
    pub fn new(metric: Metric, kind: TargetKind, n_outputs: usize) -> Result<Self> {
        metric.check(kind)?;
        let is_ranked = matches!(
            metric,
            Metric::RocAuc | Metric::AveragePrecision | Metric::AveragePrecisionMicro | Metric::Custom(_)
        );
        let held = match kind {
            TargetKind::Classes if is_ranked => {
                Held::RankedClasses { labels: Vec::new(), outputs: Vec::new() }
            }
            TargetKind::MultiLabel | TargetKind::Regression if is_ranked => {
                Held::RankedValues { targets: Vec::new(), outputs: Vec::new() }
            }
            TargetKind::Classes => Held::Classes(Confusion::new(n_outputs)),
            TargetKind::MultiLabel => Held::MultiLabel(MultiLabelCounts::new(n_outputs)),
            TargetKind::Regression => Held::Regression(RegressionSums::new(n_outputs)),
            TargetKind::Links if is_ranked => Held::RankedLinks { scores: Vec::new() },
            TargetKind::Links => Held::Links(LinkRanks::new(n_outputs)),
        };
        Ok(Self { metric, n_outputs, held })
    }

    /// Returns the metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Adds items with these classes and logits, `[n, n_outputs]`, row-major. Items whose logits are not finite do not
    /// count.
    ///
    /// # Panics
    /// Panics for statistics of another kind of targets, if the lengths do not fit, or if a class has no output.
    pub fn add_classes(&mut self, classes: &[i32], logits: &[f32]) {
        let n_items = classes.len();
        let n_outputs = self.n_outputs;
        assert_eq!(logits.len(), n_items * n_outputs, "expected {n_outputs} outputs per item");
        for (&class, row) in classes.iter().zip(logits.chunks_exact(n_outputs.max(1))) {
            let Some(predicted) = predicted_class(row) else {
                continue;
            };
            match &mut self.held {
                Held::Classes(confusion) => confusion.add(class as u32, predicted),
                Held::RankedClasses { labels, outputs } => {
                    labels.push(class);
                    outputs.extend_from_slice(row);
                }
                _ => panic!("the statistics of {} are not of classes", self.metric),
            }
        }
    }

    /// Adds items with these targets and outputs, both `[n, n_outputs]`, row-major. A target is NaN if it is missing;
    /// for several labels, it is 1 or 0, and the outputs are logits. Items whose outputs are not finite do not count.
    ///
    /// # Panics
    /// Panics for statistics of classes or links, or if the lengths do not fit.
    pub fn add_targets(&mut self, targets: &[f32], predicted: &[f32]) {
        let n_outputs = self.n_outputs;
        let is_whole = targets.len() == predicted.len() && targets.len().is_multiple_of(n_outputs.max(1));
        assert!(is_whole, "expected {n_outputs} targets and as many outputs per item");
        let rows = targets.chunks_exact(n_outputs.max(1)).zip(predicted.chunks_exact(n_outputs.max(1)));
        for (targets, row) in rows.filter(|(_, row)| is_finite(row)) {
            match &mut self.held {
                Held::MultiLabel(counts) => counts.add(targets, row),
                Held::Regression(sums) => sums.add(targets, row),
                Held::RankedValues { targets: all, outputs } => {
                    all.extend_from_slice(targets);
                    outputs.extend_from_slice(row);
                }
                _ => panic!("the statistics of {} are not of target values", self.metric),
            }
        }
    }

    /// Adds links with these scores, `[n, n_outputs]`, row-major: the first score of a row is that of the link, the
    /// others are those of its negatives. Links do not count if a score is not finite.
    ///
    /// # Panics
    /// Panics for statistics of another kind of targets, or if the scores are not a whole number of rows.
    pub fn add_links(&mut self, scores: &[f32]) {
        let n_outputs = self.n_outputs.max(1);
        assert!(scores.len().is_multiple_of(n_outputs), "expected {n_outputs} scores per link");
        for row in scores.chunks_exact(n_outputs).filter(|row| has_prediction(TargetKind::Links, row)) {
            match &mut self.held {
                Held::Links(ranks) => ranks.add(row),
                Held::RankedLinks { scores: all } => all.extend_from_slice(row),
                _ => panic!("the statistics of {} are not of links", self.metric),
            }
        }
    }

    /// Computes the metric of the added items; `None` if it is undefined.
    pub fn value(&self) -> Option<f64> {
        let area = if self.metric == Metric::RocAuc { roc_auc } else { average_precision };
        let value = match (&self.held, self.metric) {
            (_, Metric::Custom(metric)) => metric.get().value(&self.items()),
            (Held::Classes(counts), Metric::F1Micro) => counts.f1_micro(),
            (Held::Classes(counts), Metric::F1Macro) => counts.f1_macro(),
            (Held::Classes(counts), _) => Some(counts.accuracy()),
            (Held::MultiLabel(counts), Metric::F1Micro) => counts.f1_micro(),
            (Held::MultiLabel(counts), Metric::F1Macro) => counts.f1_macro(),
            (Held::MultiLabel(counts), _) => counts.accuracy(),
            (Held::Regression(sums), Metric::Rmse) => sums.rmse(),
            (Held::Regression(sums), Metric::Mae) => sums.mae(),
            (Held::Regression(sums), _) => sums.r2(),
            (Held::Links(ranks), Metric::Hits10) => ranks.hits_at(10),
            (Held::Links(ranks), Metric::Hits50) => ranks.hits_at(50),
            (Held::Links(ranks), Metric::Hits100) => ranks.hits_at(100),
            (Held::Links(ranks), _) => ranks.mrr(),
            (Held::RankedLinks { scores }, _) => over_all_links(scores, self.n_outputs, area),
            (Held::RankedClasses { labels, outputs }, _) => {
                mean_over_classes(labels, outputs, self.n_outputs, area)
            }
            (Held::RankedValues { targets, outputs }, Metric::AveragePrecisionMicro) => {
                over_all_labels(targets, outputs, area)
            }
            (Held::RankedValues { targets, outputs }, _) => {
                mean_over_labels(targets, outputs, self.n_outputs, area)
            }
        };
        // The accuracy of no items is NaN.
        value.filter(|value| !value.is_nan())
    }

    /// Returns the added items, for metrics that hold all of them.
    fn items(&self) -> MetricItems<'_> {
        let n_outputs = self.n_outputs;
        let (classes, values, outputs): (&[i32], &[f32], &[f32]) = match &self.held {
            Held::RankedClasses { labels, outputs } => (labels, &[], outputs),
            Held::RankedValues { targets, outputs } => (&[], targets, outputs),
            Held::RankedLinks { scores } => (&[], &[], scores),
            Held::Classes(_) | Held::MultiLabel(_) | Held::Regression(_) | Held::Links(_) => (&[], &[], &[]),
        };
        let n_items = outputs.len() / n_outputs.max(1);
        MetricItems { n_items, n_outputs, classes, values, outputs }
    }

    /// Computes the metric of the items of all ranks, and returns the same value on each. Statistics are combined in
    /// the order of the ranks. Collective: every rank must call it.
    ///
    /// # Errors
    /// Returns [`Error::Ranks`](crate::Error::Ranks) if a rank fails.
    pub fn value_over(mut self, comm: &mut dyn Communicator) -> Result<Option<f64>> {
        if comm.rank_info().world_size == 1 {
            return Ok(self.value());
        }
        self.agree_on_outputs(comm)?;
        let n_ranks = comm.rank_info().world_size;
        // Counts are few, so every rank gets all of them. Outputs are many, so only rank 0 does.
        if let Held::RankedClasses { .. } | Held::RankedValues { .. } | Held::RankedLinks { .. } = self.held {
            let mut send = vec![Vec::new(); n_ranks];
            send[0] = self.to_bytes();
            let received = comm.all_to_all(&send)?;
            self.clear();
            received.iter().for_each(|bytes| self.add_bytes(bytes));
            let mut value = bytemuck::bytes_of(&bits_of(self.value())).to_vec();
            comm.broadcast(0, &mut value)?;
            return Ok(value_of(bytemuck::pod_read_unaligned(&value)));
        }
        let all = comm.all_gather(&self.to_bytes())?;
        self.clear();
        all.iter().for_each(|bytes| self.add_bytes(bytes));
        Ok(self.value())
    }

    /// Sets the number of outputs to that of the other ranks, if this rank has no items and does not know it.
    fn agree_on_outputs(&mut self, comm: &mut dyn Communicator) -> Result<()> {
        let own = (self.n_outputs as u64).to_le_bytes();
        let all = comm.all_gather(&own)?;
        let n_outputs = all.iter().map(|bytes| bytemuck::pod_read_unaligned::<u64>(bytes)).max();
        if self.n_outputs == 0 {
            self.n_outputs = n_outputs.unwrap_or(0) as usize;
            self.clear();
        }
        Ok(())
    }

    /// Removes all items.
    fn clear(&mut self) {
        let n = self.n_outputs;
        self.held = match &self.held {
            Held::Classes(_) => Held::Classes(Confusion::new(n)),
            Held::MultiLabel(_) => Held::MultiLabel(MultiLabelCounts::new(n)),
            Held::Regression(_) => Held::Regression(RegressionSums::new(n)),
            Held::Links(_) => Held::Links(LinkRanks::new(n)),
            Held::RankedLinks { .. } => Held::RankedLinks { scores: Vec::new() },
            Held::RankedClasses { .. } => Held::RankedClasses { labels: Vec::new(), outputs: Vec::new() },
            Held::RankedValues { .. } => Held::RankedValues { targets: Vec::new(), outputs: Vec::new() },
        };
    }

    fn to_bytes(&self) -> Vec<u8> {
        match &self.held {
            Held::Classes(counts) => bytemuck::cast_slice(&counts.to_words()).to_vec(),
            Held::MultiLabel(counts) => bytemuck::cast_slice(&counts.to_words()).to_vec(),
            Held::Regression(sums) => bytemuck::cast_slice(&sums.to_words()).to_vec(),
            Held::Links(ranks) => bytemuck::cast_slice(ranks.to_words()).to_vec(),
            Held::RankedLinks { scores } => bytemuck::cast_slice(scores).to_vec(),
            Held::RankedClasses { labels, outputs } => {
                [bytemuck::cast_slice(labels), bytemuck::cast_slice(outputs)].concat()
            }
            Held::RankedValues { targets, outputs } => {
                [bytemuck::cast_slice(targets), bytemuck::cast_slice(outputs)].concat()
            }
        }
    }

    /// Adds the items of another rank from its [`MetricStats::to_bytes`].
    fn add_bytes(&mut self, bytes: &[u8]) {
        let n = self.n_outputs;
        let words = || bytemuck::pod_collect_to_vec::<u8, u64>(bytes);
        match &mut self.held {
            Held::Classes(counts) => *counts += &Confusion::from_words(&words(), n),
            Held::MultiLabel(counts) => *counts += &MultiLabelCounts::from_words(&words(), n),
            Held::Regression(sums) => *sums += &RegressionSums::from_words(&words()),
            Held::Links(ranks) => *ranks += &LinkRanks::from_words(words()),
            Held::RankedLinks { scores } => scores.extend(bytemuck::pod_collect_to_vec::<u8, f32>(bytes)),
            Held::RankedClasses { labels, outputs } => {
                // An item has one label and n outputs, each of 4 bytes.
                let (of_labels, of_outputs) = bytes.split_at(bytes.len() / (n + 1));
                labels.extend(bytemuck::pod_collect_to_vec::<u8, i32>(of_labels));
                outputs.extend(bytemuck::pod_collect_to_vec::<u8, f32>(of_outputs));
            }
            Held::RankedValues { targets, outputs } => {
                let (of_targets, of_outputs) = bytes.split_at(bytes.len() / 2);
                targets.extend(bytemuck::pod_collect_to_vec::<u8, f32>(of_targets));
                outputs.extend(bytemuck::pod_collect_to_vec::<u8, f32>(of_outputs));
            }
        }
    }
}

/// Encodes a value of a metric as a 64-bit word: the bits of the number, or of NaN if it is undefined.
pub(crate) fn bits_of(value: Option<f64>) -> u64 {
    value.unwrap_or(f64::NAN).to_bits()
}

/// Decodes the word of [`bits_of`].
pub(crate) fn value_of(bits: u64) -> Option<f64> {
    Some(f64::from_bits(bits)).filter(|value| !value.is_nan())
}
