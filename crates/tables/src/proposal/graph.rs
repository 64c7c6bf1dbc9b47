//! The node types and relations of tables.

use super::columns::{is_category_name, is_step_name, is_target_name, is_time_name};
use super::distinct::Overlap;
use super::keys::{Reference, find_keys, references};
use super::names::{
    has_role, is_end, is_id, is_like_key, is_measure, is_row_number, role_subject, subject, unique_name,
};
use super::profile::ValueKind;
use super::tables::InputTable;
use crate::spec::KeyType;

/// A node type.
#[derive(Debug)]
pub(super) struct NodeDraft {
    pub(super) name: String,
    /// The table and the column of its keys; `None` for a type from relations.
    pub(super) origin: Option<(usize, usize)>,
    pub(super) key_type: KeyType,
}

/// An end of a relation.
#[derive(Debug, Clone)]
pub(super) struct EndDraft {
    pub(super) node_type: usize,
    pub(super) column: usize,
    /// The part of the values that are keys; `None` for a type from relations.
    pub(super) overlap: Option<Overlap>,
    /// Other types of whose keys all values are.
    pub(super) others: Vec<usize>,
}

/// A relation.
#[derive(Debug)]
pub(super) struct RelationDraft {
    pub(super) name: String,
    pub(super) reverse: String,
    pub(super) table: usize,
    pub(super) ends: [EndDraft; 2],
    /// True if the spec has it; false for a comment.
    pub(super) is_active: bool,
    /// True if its rows are those of a node type's table.
    pub(super) is_of_nodes: bool,
}

/// The node types and relations of tables.
#[derive(Debug, Default)]
pub(super) struct GraphDraft {
    pub(super) nodes: Vec<NodeDraft>,
    pub(super) relations: Vec<RelationDraft>,
    /// The tables that are neither, each with the reason.
    pub(super) left_out: Vec<(usize, String)>,
    /// The references of each table.
    references: Vec<Vec<Reference>>,
    names_of_types: Vec<String>,
    names_of_relations: Vec<String>,
}

/// What the rows of a table are.
enum TableRole {
    Nodes(usize),
    /// The columns of the ends, of which the first two are the relation.
    Edges(Vec<usize>),
    Nothing(String),
}

impl GraphDraft {
    /// Finds the node types and relations of tables.
    pub(super) fn find(tables: &[InputTable]) -> Self {
        let mut keys = find_keys(tables);
        let mut roles = Vec::new();
        for position in 0..tables.len() {
            let references = references(&tables[position], position, tables, &keys);
            // Another table may refer to the rows.
            let key = keys[position].filter(|_| {
                tables[position].declared.is_some()
                    || !references.is_empty()
                    || pair_of(&tables[position]).is_none()
                    || is_referred_to(position, tables, &keys)
            });
            let role = role_of(&tables[position], key, &references);
            keys[position] = match role {
                TableRole::Nodes(key) => Some(key),
                TableRole::Edges(_) | TableRole::Nothing(_) => key,
            };
            roles.push(role);
        }
        let mut draft = Self::default();
        for (position, role) in roles.iter().enumerate() {
            let table = &tables[position];
            if let TableRole::Nodes(key) = role {
                let name = unique_name(&table.words.join("_"), &mut draft.names_of_types);
                let origin = Some((position, *key));
                draft.nodes.push(NodeDraft { name, origin, key_type: KeyType::Text });
            }
            draft.references.push(references(table, position, tables, &keys));
        }
        for (position, role) in roles.into_iter().enumerate() {
            match role {
                TableRole::Nodes(key) => draft.add_relations_of_nodes(tables, position, key),
                TableRole::Edges(columns) => draft.add_relation(tables, position, &columns),
                TableRole::Nothing(why) => draft.left_out.push((position, why)),
            }
        }
        draft.compare_keys(tables);
        draft
    }

    /// Returns true for a table whose rows are the edges of a relation.
    pub(super) fn is_of_edges(&self, table: usize) -> bool {
        self.relations.iter().any(|relation| relation.table == table && !relation.is_of_nodes)
    }

    /// Returns the columns of a table that are neither keys nor ends of relations.
    pub(super) fn value_columns(&self, table: &InputTable, position: usize) -> Vec<usize> {
        let keys = self.nodes.iter().filter_map(|node| node.origin).filter(|(of, _)| *of == position);
        let keys: Vec<usize> = keys.map(|(_, key)| key).collect();
        let relations = self.relations.iter().filter(|relation| relation.table == position);
        let ends: Vec<usize> = relations.flat_map(|other| other.ends.iter().map(|end| end.column)).collect();
        let columns = 0..table.profile.columns.len();
        columns.filter(|column| !keys.contains(column) && !ends.contains(column)).collect()
    }

    /// Returns the node type of a table; `None` for a table of no type.
    pub(super) fn type_of_table(&self, table: usize) -> Option<usize> {
        self.nodes.iter().position(|node| node.origin.is_some_and(|(of, _)| of == table))
    }

    /// Returns the node type of the keys in a column.
    fn end(&mut self, tables: &[InputTable], table: usize, column: usize) -> EndDraft {
        let reference = self.references[table].iter().find(|reference| reference.column == column).cloned();
        let node_type = reference.as_ref().and_then(|reference| self.type_of_table(reference.table));
        if let (Some(node_type), Some(reference)) = (node_type, reference) {
            let others = reference.others.iter().filter_map(|other| self.type_of_table(*other)).collect();
            return EndDraft { node_type, column, overlap: None, others };
        }
        let of_column = type_of_end(&tables[table], column);
        let known = self.nodes.iter().position(|node| node.origin.is_none() && node.name == of_column);
        let node_type = known.unwrap_or_else(|| {
            let name = unique_name(&of_column, &mut self.names_of_types);
            self.nodes.push(NodeDraft { name, origin: None, key_type: KeyType::Text });
            self.nodes.len() - 1
        });
        EndDraft { node_type, column, overlap: None, others: Vec::new() }
    }

    fn push_relation(
        &mut self,
        name: &str,
        table: usize,
        ends: [EndDraft; 2],
        is_active: bool,
        is_of_nodes: bool,
    ) {
        let name = unique_name(name, &mut self.names_of_relations);
        let reverse = unique_name(&format!("rev_{name}"), &mut self.names_of_relations);
        self.relations.push(RelationDraft { name, reverse, table, ends, is_active, is_of_nodes });
    }

    /// Adds a relation for each column of a node type's table that refers to keys.
    fn add_relations_of_nodes(&mut self, tables: &[InputTable], table: usize, key: usize) {
        let Some(node_type) = self.type_of_table(table) else { return };
        let profile = &tables[table].profile;
        for column in 0..profile.columns.len() {
            let values = &profile.columns[column];
            let is_reference = self.references[table].iter().any(|reference| reference.column == column);
            let is_other_key = column != key
                && tables[table].declared.is_none()
                && is_id(&values.name)
                && !is_end(&values.name)
                && values.is_key
                && values.n_distinct() > 1
                && !values.distinct.is_unique();
            if !is_reference && !is_other_key {
                continue;
            }
            let src = EndDraft { node_type, column: key, overlap: None, others: Vec::new() };
            let dst = self.end(tables, table, column);
            let name = match subject(&values.name) {
                words if words.is_empty() => self.nodes[dst.node_type].name.clone(),
                words => words.join("_"),
            };
            let name = format!("{}_{name}", self.nodes[node_type].name);
            self.push_relation(&name, table, [src, dst], true, true);
        }
    }

    /// Adds the relation of a table of edges, and those with its further ends, which are comments.
    fn add_relation(&mut self, tables: &[InputTable], table: usize, columns: &[usize]) {
        let ends: Vec<EndDraft> = columns.iter().map(|column| self.end(tables, table, *column)).collect();
        let (Some(src), Some(mut dst)) = (ends.first().cloned(), ends.get(1).cloned()) else { return };
        // Two columns without tables may have the same nodes.
        let have_no_table = [&src, &dst].iter().all(|end| self.nodes[end.node_type].origin.is_none());
        if have_no_table
            && src.node_type != dst.node_type
            && have_same_values(&tables[table], [src.column, dst.column])
            && dst.node_type + 1 == self.nodes.len()
        {
            let removed = self.nodes.pop().map(|node| node.name);
            self.names_of_types.retain(|name| Some(name) != removed.as_ref());
            dst.node_type = src.node_type;
        }
        let name = tables[table].name.clone();
        self.push_relation(&name, table, [src.clone(), dst], true, false);
        for end in ends.into_iter().skip(2) {
            let name = format!("{name}_{}", self.nodes[end.node_type].name);
            self.push_relation(&name, table, [src.clone(), end], false, false);
        }
        // A type of which only a comment has a relation has no keys.
        self.relations.retain(|relation| {
            relation.is_active || relation.ends.iter().all(|end| self.nodes[end.node_type].origin.is_some())
        });
        while self.nodes.last().is_some_and(|node| node.origin.is_none())
            && !self.is_used(self.nodes.len() - 1)
        {
            self.nodes.pop();
        }
    }

    /// Returns true if a relation of the spec has a node type.
    fn is_used(&self, node_type: usize) -> bool {
        let mut active = self.relations.iter().filter(|relation| relation.is_active);
        active.any(|relation| relation.ends.iter().any(|end| end.node_type == node_type))
    }

    /// Compares the values of all ends with the keys of their types, which are integers if more values are keys so.
    fn compare_keys(&mut self, tables: &[InputTable]) {
        for relation in &self.relations {
            for end in &relation.ends {
                let Some((table, key)) = self.nodes[end.node_type].origin else { continue };
                let values = &tables[relation.table].profile.columns[end.column];
                if values.overlap(&tables[table].profile.columns[key]).1 == KeyType::Integer {
                    self.nodes[end.node_type].key_type = KeyType::Integer;
                }
            }
        }
        for relation in &mut self.relations {
            for end in &mut relation.ends {
                let node = &self.nodes[end.node_type];
                let Some((table, key)) = node.origin else { continue };
                let values = &tables[relation.table].profile.columns[end.column];
                let keys = &tables[table].profile.columns[key];
                end.overlap = Some(values.overlap_as(keys, node.key_type));
            }
        }
    }
}

/// Returns true if at least half of the different texts of one of two columns are in the other one.
fn have_same_values(table: &InputTable, columns: [usize; 2]) -> bool {
    let [one, other] = columns.map(|column| &table.profile.columns[column]);
    let shares = [one.overlap(other).0.share(), other.overlap(one).0.share()];
    one.kind(false) == ValueKind::Text && shares.into_iter().flatten().fold(0.0, f64::max) >= 0.5
}

/// Returns true if a column can be the ends of edges by its values: texts or integers that are keys.
fn has_keys(table: &InputTable, column: usize) -> bool {
    let values = &table.profile.columns[column];
    let kind = values.kind(table.has_decimal_commas);
    let is_kind = matches!(kind, ValueKind::Text | ValueKind::Integer)
        || (kind == ValueKind::Nothing && table.profile.n_rows == 0);
    values.is_key && is_kind && !is_row_number(&values.name)
}

/// Returns the columns of the sources and the destinations of a table, which are named as such: `from_account` and `to_account`.
fn pair_of(table: &InputTable) -> Option<[usize; 2]> {
    let columns = &table.profile.columns;
    let ends =
        (0..columns.len()).filter(|column| has_role(&columns[*column].name) && has_keys(table, *column));
    let ends: Vec<usize> = ends.collect();
    let pairs = ends.iter().flat_map(|src| ends.iter().map(|dst| [*src, *dst]));
    let mut named =
        pairs.filter(|[src, dst]| role_subject(&columns[*src].name, &columns[*dst].name).is_some());
    named.next()
}

/// Returns the name of the node type of an end without a table.
fn type_of_end(table: &InputTable, column: usize) -> String {
    let columns = &table.profile.columns;
    let of_pair = pair_of(table).filter(|pair| pair.contains(&column));
    let words = of_pair.and_then(|[src, dst]| role_subject(&columns[src].name, &columns[dst].name));
    let name = &columns[column].name;
    match words {
        Some(words) if !words.is_empty() => words.join("_"),
        None if !is_end(name) => subject(name).join("_"),
        _ => "node".to_owned(),
    }
}

/// Returns true if a column of another table refers to the keys of a table.
fn is_referred_to(position: usize, tables: &[InputTable], keys: &[Option<usize>]) -> bool {
    let mut others = tables.iter().enumerate().filter(|(other, _)| *other != position);
    others.any(|(other, table)| {
        references(table, other, tables, keys).iter().any(|reference| reference.table == position)
    })
}

fn role_of(table: &InputTable, key: Option<usize>, references: &[Reference]) -> TableRole {
    if let Some(key) = key {
        return TableRole::Nodes(key);
    }
    if table.declared.is_some() {
        return match references.len() {
            0 | 1 => TableRole::Nothing("no primary key, and fewer than two foreign keys".to_owned()),
            _ => TableRole::Edges(references.iter().map(|reference| reference.column).collect()),
        };
    }
    let profile = &table.profile;
    let columns = || 0..profile.columns.len();
    let is_end_of_edges = |column: &usize| has_keys(table, *column);
    let is_reference = |column: &usize| references.iter().any(|reference| reference.column == *column);
    let known = columns().filter(|column| {
        is_reference(column) || (is_end_of_edges(column) && is_like_key(&profile.columns[*column].name))
    });
    let known: Vec<usize> = known.collect();
    let n_references = known.iter().filter(|column| is_reference(column)).count();
    if let Some(pair) = pair_of(table).filter(|pair| n_references < 2 || pair.iter().all(is_reference)) {
        let others = known.into_iter().filter(|column| {
            // The rows may have a key of their own.
            let is_key = profile.columns[*column].is_unique() && 1 < profile.n_rows;
            !is_key && !pair.contains(column)
        });
        return TableRole::Edges(pair.into_iter().chain(others).collect());
    }
    if known.len() > 1 {
        return TableRole::Edges(ordered(known, &is_reference));
    }
    let first_unique = columns().find(|column| is_end_of_edges(column)).filter(|column| {
        let values = &profile.columns[*column];
        values.is_unique() && profile.n_rows > 0 && !is_measure(&values.name) && !is_step_name(&values.name)
    });
    if let Some(key) = first_unique.filter(|key| known.is_empty() || known[0] == *key) {
        return TableRole::Nodes(key);
    }
    // The columns of times, kinds and targets of events are no ends.
    let first = columns().filter(|column| {
        let name = &profile.columns[*column].name;
        !is_time_name(name) && !is_step_name(name) && !is_category_name(name) && !is_target_name(name)
    });
    let others = first.take(3).filter(|column| {
        let values = &profile.columns[*column];
        is_end_of_edges(column) && !known.contains(column) && !is_measure(&values.name)
    });
    let ends: Vec<usize> = known.iter().copied().chain(others).collect();
    if ends.len() > 1 && profile.n_rows > 0 {
        let mut ends: Vec<usize> = ends.into_iter().take(2).collect();
        ends.sort_unstable();
        return TableRole::Edges(ends);
    }
    TableRole::Nothing(match profile.n_rows {
        0 => "no rows, and no column with the name of a key, such as `id`".to_owned(),
        _ => "no column of different texts or integers without missing values, which would be a key, and no two columns of keys"
            .to_owned(),
    })
}

/// Returns the ends with those of known keys before others.
fn ordered(columns: Vec<usize>, is_reference: &impl Fn(&usize) -> bool) -> Vec<usize> {
    let n_references = columns.iter().filter(|column| is_reference(column)).count();
    if n_references < 2 {
        return columns;
    }
    let (known, others): (Vec<usize>, Vec<usize>) = columns.into_iter().partition(is_reference);
    known.into_iter().chain(others).collect()
}
