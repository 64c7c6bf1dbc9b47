//! Writes the set of an import: the nodes of all types, and then the edges of all relations.

use kiln_data::convert::ConvertOptions;
use kiln_data::format::{RelationTypes, SetWriter};
use kiln_graph::{Duplicates, NodeTypes};
use kiln_store::array_folder::FolderWriter;
use kiln_store::counted;

use super::{ImportedRelation, ImportedType, Importer};
use crate::edge_items::WrittenItems;
use crate::edges::{RelationEdgeList, RelationRows};
use crate::held_out_edges::HeldOutEdges;
use crate::known_edges::KnownEdges;
use crate::known_set::KnownSet;
use crate::node_writer::{write_names, write_node_type};
use crate::options::AppendedCounts;
use crate::record::FILE;
use crate::row_ids::RowIds;
use crate::spec::EndSpec;
use crate::table::{relation_of, table_of};
use crate::task_rows::{FittedTask, TaskRows};
use crate::{FittedNodeType, FittedRelation, Import, ImportReport, Result};

/// The effect of edges without times on a split by time.
const OF_PHASES: &str = "they pass messages in each phase of the split by time";

impl<'a> Importer<'a> {
    pub(super) fn write(
        mut self,
        set: FolderWriter,
        types: Vec<ImportedType<'a>>,
        relations: Vec<ImportedRelation<'a>>,
        tasks: Vec<TaskRows<'a>>,
    ) -> Result<ImportReport> {
        let names = types.iter().map(|imported| (imported.fitted.name.as_str(), imported.ids.n_ids()));
        let node_types = NodeTypes::new(names)?;
        let mut set = SetWriter::new(set, &self.spec.name, &node_types);
        let mut ids = Vec::new();
        let mut fitted = Vec::new();
        let mut counts = Vec::new();
        let mut split = None;
        let mut first_new = Vec::new();
        let mut appended = AppendedCounts::default();
        for (position, imported) in types.into_iter().enumerate() {
            let first = node_types.range(position).start;
            let label = table_of(&imported.fitted.name);
            if let Some(table) = &imported.table {
                let written =
                    write_node_type(&mut set, position, first, table, &imported.ids, &imported.fitted)?;
                split = split.or(written.split);
                if self.has_earlier() {
                    self.add_drift(written.drift);
                } else {
                    self.notes.extend(table.table.source.note_on_unused_texts());
                }
            }
            write_names(&mut set, position, &label, &imported.keys, &imported.ids)?;
            first_new.push(imported.keys.n_known);
            appended.new_nodes.push(imported.ids.n_ids() as u64 - u64::from(imported.keys.n_known));
            appended.known_rows.push(imported.n_known_rows);
            appended.other_parts.push(imported.n_other_parts);
            counts.push((imported.fitted.name.clone(), imported.ids.n_ids() as u64));
            ids.push(imported.ids);
            fitted.push(imported.fitted);
        }
        let of_ids: u64 = ids.iter().map(RowIds::heap_bytes).sum();
        let of_values: u64 = fitted.iter().map(FittedNodeType::heap_bytes).sum();
        let of_edges: u64 = features_of(&relations).map(FittedRelation::heap_bytes).sum();
        let used_bytes = of_ids + of_values + of_edges;
        let fitted_relations = features_of(&relations).cloned().collect();
        let mut edge_split = None;
        let mut n_edges = Vec::new();
        for (spec, ImportedRelation { rows, items }) in self.spec.relations.iter().zip(relations) {
            let written = items.map(|items| {
                let [src, dst] = [&spec.src, &spec.dst].map(|end| node_types.require(&end.node_type));
                items.write(&mut set, &node_types, &rows, [&ids[src?], &ids[dst?]])
            });
            let (held_out, of_edges) =
                written.transpose()?.map(|WrittenItems { held_out, split }| (held_out, split)).unzip();
            edge_split = edge_split.or(of_edges.flatten());
            let of_held_out = held_out.as_ref().map_or(0, HeldOutEdges::heap_bytes);
            let memory_bytes = self.room(used_bytes + of_held_out)?;
            let options = ConvertOptions { memory_bytes, ..ConvertOptions::default() };
            // An undirected relation of a set has both directions already, which are removed as duplicates.
            let duplicates = if spec.undirected { Duplicates::Remove } else { options.duplicates };
            let options = ConvertOptions { symmetrize: spec.undirected, duplicates, ..options };
            for (name, is_reversed) in
                [(Some(&spec.name), false), (spec.reverse.as_ref(), true)].into_iter().filter_map(named)
            {
                let [src, dst] = [&spec.src, &spec.dst].map(|end| node_types.require(&end.node_type));
                let src = src?;
                let dst = dst?;
                let known = self.known_edges(n_edges.len(), &rows);
                let n_known = known.as_ref().map_or(0, |known| known.relation.graph.n_edges());
                let source = RelationEdgeList {
                    rows: &rows,
                    ids: [&ids[src], &ids[dst]],
                    is_reversed,
                    known,
                    held_out: held_out.as_ref(),
                };
                let (src_type, dst_type) = if is_reversed { (dst, src) } else { (src, dst) };
                let written =
                    set.write_relation(RelationTypes { name, src_type, dst_type }, &source, &options);
                let written = written.map_err(|error| self.name_whole_limit(error.into()))?;
                appended.new_edges.push((written.n_edges as u64).saturating_sub(n_known));
                if spec.undirected {
                    let n_repeated = source.known.as_ref().map_or(0, KnownEdges::n_reverses);
                    let n_rows = written.n_duplicates.saturating_sub(n_repeated);
                    self.notes.extend(repeated_rows(name, n_rows, self.known.is_some()));
                }
                n_edges.push((name.to_owned(), written.n_edges as u64));
            }
        }
        let fitted_tasks: Vec<FittedTask> = tasks.iter().map(|task| task.fitted.clone()).collect();
        let mut task_splits = Vec::new();
        for (spec, task) in self.spec.tasks.iter().zip(tasks) {
            let node_type = node_types.require(&spec.key.node_type)?;
            task_splits.push(task.write(&mut set, &node_types, &ids[node_type])?);
        }
        self.write_times(&mut set);
        let record = match self.known {
            Some(known) => known.import().append(self.spec.clone(), &self.found),
            None => Import::new(self.spec.clone(), fitted, fitted_relations, fitted_tasks, &self.found),
        };
        set.attach(FILE, &record.to_json())?;
        self.sources.check()?;
        if let Some(known) = self.known {
            set.set_first_new(first_new);
            known.check_unchanged()?;
        }
        set.commit()?;
        let appended = self.known.map(|_| appended);
        let Self { found: dropped, notes, drift, .. } = self;
        Ok(ImportReport {
            node_types: counts,
            relations: n_edges,
            appended,
            split,
            edge_split,
            task_splits,
            dropped,
            notes,
            drift,
        })
    }

    /// Writes the meaning of the times and the split by time, and adds notes on edges that messages cannot leave out.
    fn write_times(&mut self, set: &mut SetWriter) {
        let Some(kind) = self.spec.time_kind() else { return };
        let known_split = self.known.map(KnownSet::time_split);
        let time_split = known_split.unwrap_or_else(|| self.spec.time_split());
        set.set_times(kind, time_split);
        if time_split.is_none() && self.spec.tasks.is_empty() {
            return;
        }
        for relation in &self.spec.relations {
            let has_times = |end: &&EndSpec| {
                let of_type = self.spec.nodes.iter().find(|node_type| node_type.name == end.node_type);
                of_type.is_some_and(|node_type| node_type.time_column().is_some())
            };
            let ends = [&relation.src, &relation.dst];
            let is_one_way = !relation.undirected && relation.reverse.is_none();
            let (are_timed, effect) = match time_split {
                Some(_) if is_one_way => (has_times(&ends[0]), OF_PHASES),
                Some(_) => (ends.iter().all(has_times), OF_PHASES),
                // An edge between a row and a node that it does not know is never sampled.
                None => (ends.iter().any(has_times), "each row of a task table knows them"),
            };
            if relation.time_column().is_none() && !are_timed {
                self.notes.push(format!(
                    "{}: its edges have no times, so {effect}: add `time` if some are later",
                    relation_of(&relation.name)
                ));
            }
        }
    }

    /// Returns the edges of the relation at a position in the set to which the rows are appended.
    fn known_edges(&self, position: usize, rows: &RelationRows) -> Option<KnownEdges<'a>> {
        let (relation, first_src) = self.known?.edges(position);
        let columns = relation.graph.columns();
        // The set has all columns of its spec.
        let columns = rows.formats().filter_map(|format| columns.get(&format.name)).collect();
        Some(KnownEdges { relation, first_src, columns })
    }
}

/// Returns the statistics of the relations whose edges have features.
fn features_of<'a>(relations: &'a [ImportedRelation<'_>]) -> impl Iterator<Item = &'a FittedRelation> {
    let features = relations.iter().filter_map(|relation| relation.rows.features.as_ref());
    features.map(|features| &features.fitted)
}

/// Returns a note on the rows of an undirected relation that repeat the pair of nodes of an earlier one.
fn repeated_rows(relation: &str, n_rows: u64, is_appended: bool) -> Option<String> {
    let repeat = if n_rows == 1 { "repeats" } else { "repeat" };
    let edge_of_set = if is_appended { ", or the edge of the set" } else { "" };
    let label = relation_of(relation);
    let rows = counted(n_rows, "row");
    (n_rows > 0).then(|| format!("{label}: {rows} {repeat} a pair: the first one is kept{edge_of_set}"))
}

fn named((name, is_reversed): (Option<&String>, bool)) -> Option<(&str, bool)> {
    name.map(|name| (name.as_str(), is_reversed))
}
