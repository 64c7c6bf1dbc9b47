//! The description of the heterogeneous graph of a saved model.

use kiln_graph::{GraphSchema, Metagraph, NodeTypes, RelationSchema};
use kiln_sample::Fanout;
use serde::{Deserialize, Serialize};

use crate::saved::model_file::ModelTask;
use crate::saved::stored_fanout::{fanout_of, limit_of};

/// The types of nodes and the relations of the graph that a model was trained on, in their order, by which data for
/// predictions is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaInfo {
    /// The types of nodes.
    pub node_types: Vec<NodeTypeInfo>,
    /// The relations.
    pub relations: Vec<RelationInfo>,
    /// The type of the nodes that have targets; of a model of links, that of their destinations.
    pub target_type: String,
    /// The relation whose edges are the links of a model of links; absent for other models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
}

/// A type of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTypeInfo {
    /// The name.
    pub name: String,
    /// The number of nodes in the training data.
    pub n_nodes: usize,
    /// The number of feature columns; `None` for a type without features, whose nodes have trainable rows.
    pub n_features: Option<usize>,
}

/// A relation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationInfo {
    /// The name.
    pub name: String,
    /// The type of the sources.
    pub src_type: String,
    /// The type of the destinations.
    pub dst_type: String,
    /// The fanout of each layer, input layer first; `null` takes all neighbours.
    pub fanouts: Vec<Option<u32>>,
    /// True if the model read weights of the relation's edges; absent if it did not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_weighted: bool,
}

impl SchemaInfo {
    /// Describes a graph. `widths` are the feature columns of each type, and `fanouts` those of each layer, for each relation.
    pub fn new(
        schema: &GraphSchema,
        widths: &[Option<usize>],
        target_type: usize,
        fanouts: &[Vec<Fanout>],
    ) -> Self {
        let types = schema.types();
        let relation = |(position, relation): (usize, &RelationSchema)| RelationInfo {
            name: relation.name.clone(),
            src_type: types.names()[relation.src_type].clone(),
            dst_type: types.names()[relation.dst_type].clone(),
            fanouts: fanouts.iter().map(|of_layer| limit_of(&of_layer[position])).collect(),
            is_weighted: false,
        };
        Self {
            node_types: types
                .names()
                .iter()
                .enumerate()
                .map(|(position, name): (usize, &String)| NodeTypeInfo {
                    name: name.clone(),
                    n_nodes: types.range(position).len(),
                    n_features: widths.get(position).copied().flatten(),
                })
                .collect(),
            relations: schema.relations().iter().enumerate().map(relation).collect(),
            target_type: types.names()[target_type].clone(),
            relation: None,
        }
    }

    /// Sets which relations have weights that the model reads, by their positions.
    #[must_use]
    pub fn with_weighted(mut self, are_weighted: &[bool]) -> Self {
        for (relation, is_weighted) in self.relations.iter_mut().zip(are_weighted) {
            relation.is_weighted = *is_weighted;
        }
        self
    }

    /// Sets the position of the relation whose edges are the links of a model of links.
    ///
    /// # Panics
    /// Panics if there is no such relation.
    #[must_use]
    pub fn with_link_relation(self, relation: usize) -> Self {
        let of_links = &self.relations[relation];
        let target_type = of_links.dst_type.clone();
        let relation = Some(of_links.name.clone());
        Self { target_type, relation, ..self }
    }

    /// Returns the position of the relation whose edges are the links of a model of links.
    pub(crate) fn link_relation(&self) -> Option<usize> {
        let name = self.relation.as_ref()?;
        self.relations.iter().position(|known| known.name == *name)
    }

    /// Returns the number of feature columns of each type; `None` for a type with trainable rows.
    pub fn widths(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        self.node_types.iter().map(|node_type| node_type.n_features)
    }

    /// Returns the fanout of each relation in each layer, `[n_layers][n_relations]`, input layer first.
    pub(crate) fn fanouts(&self, n_layers: usize) -> Vec<Vec<Fanout>> {
        let of_relation = |layer: usize| move |relation: &RelationInfo| fanout_of(&relation.fanouts[layer]);
        (0..n_layers).map(|layer| self.relations.iter().map(of_relation(layer)).collect()).collect()
    }

    /// Returns the position of the type of nodes that have targets.
    pub fn target_position(&self) -> Option<usize> {
        self.position(&self.target_type)
    }

    fn position(&self, node_type: &str) -> Option<usize> {
        self.node_types.iter().position(|known| known.name == node_type)
    }

    /// Returns the metagraph, or `None` if a relation is between types that do not exist.
    pub(crate) fn metagraph(&self) -> Option<Metagraph> {
        let relations = self
            .relations
            .iter()
            .map(|relation: &RelationInfo| {
                Some([self.position(&relation.src_type)?, self.position(&relation.dst_type)?])
            })
            .collect::<Option<_>>()?;
        Metagraph::new(self.node_types.len(), relations).ok()
    }

    /// Returns the first value that is valid JSON but not possible, for a model of this task with this number of fanouts.
    pub(crate) fn fault(&self, task: ModelTask, n_layers: Option<usize>) -> Option<String> {
        let types = self.node_types.iter().map(|node_type| (node_type.name.clone(), node_type.n_nodes));
        if let Err(error) = NodeTypes::new(types) {
            return Some(error.to_string());
        }
        if let Some(of_type) = self.node_types.iter().find(|of_type| of_type.n_features == Some(0)) {
            return Some(format!("`n_features` of {:?} is 0, expected at least 1 or null", of_type.name));
        }
        let Self { relations, target_type, .. } = self;
        if self.metagraph().is_none() || self.target_position().is_none() {
            return Some(format!(
                "a relation or the target type {target_type:?} names a type that is not in `node_types`"
            ));
        }
        match (task, &self.relation, self.link_relation()) {
            (ModelTask::Links | ModelTask::Edges, None, _) => {
                return Some(format!("`relation` is missing for a model of {task}"));
            }
            (ModelTask::Links | ModelTask::Edges, Some(name), None) => {
                return Some(format!("the relation {name:?} of the {task} is not in `relations`"));
            }
            (ModelTask::Nodes | ModelTask::Graphs, Some(_), _) => {
                return Some(format!("`relation` does not apply to a model of {task}"));
            }
            _ => (),
        }
        if let Some(position) = self.link_relation()
            && relations[position].dst_type != *target_type
        {
            let name = &relations[position].name;
            let dst_type = &relations[position].dst_type;
            return Some(format!(
                "the target type is {target_type:?}, but the links of {name:?} end at {dst_type:?}"
            ));
        }
        let other = relations.iter().find(|relation| Some(relation.fanouts.len()) != n_layers);
        other.map(|relation| format!("{:?} has {} fanouts", relation.name, relation.fanouts.len()))
    }

    /// Returns true if the other graph has the same types with the same feature columns, and the same relations, in the same
    /// order. Numbers of nodes and fanouts may differ.
    pub(crate) fn has_schema_of(&self, other: &Self) -> bool {
        let of_type = |of_type: &NodeTypeInfo| (of_type.name.clone(), of_type.n_features);
        let of_relation = |relation: &RelationInfo| {
            (relation.name.clone(), relation.src_type.clone(), relation.dst_type.clone())
        };
        self.node_types.iter().map(of_type).eq(other.node_types.iter().map(of_type))
            && self.relations.iter().map(of_relation).eq(other.relations.iter().map(of_relation))
    }

    /// Returns the types and relations as text, for messages: `user [3], item; user buys item`.
    pub fn schema(&self) -> String {
        let types: Vec<String> = self
            .node_types
            .iter()
            .map(|of_type: &NodeTypeInfo| match of_type.n_features {
                Some(width) => format!("{} [{width}]", of_type.name),
                None => of_type.name.clone(),
            })
            .collect();
        let relations: Vec<String> = self
            .relations
            .iter()
            .map(|relation: &RelationInfo| {
                format!("{} {} {}", relation.src_type, relation.name, relation.dst_type)
            })
            .collect();
        format!("{}; {}", types.join(", "), relations.join(", "))
    }
}
