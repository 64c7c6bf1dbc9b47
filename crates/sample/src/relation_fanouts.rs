use std::str::FromStr;

use kiln_graph::{ByRelation, ByRelationError, GraphSchema};

use crate::{Error, Fanout, FanoutsError, Result};

/// The fanouts of the relations of a heterogeneous graph, by name. Of other graphs, there is one list for all edges.
///
/// The text form has lists that are separated by semicolons: one for all relations, and others that begin with the name of a
/// relation and `=`. A list has a number per layer, input layer first; `all` or `-1`, as in DGL and PyG, is all neighbours.
///
/// ```
/// use kiln_sample::{Fanout, RelationFanouts};
/// let fanouts: RelationFanouts = "10,all;buys=5,0".parse()?;
/// assert_eq!(fanouts.of_all, [Fanout::UpTo(10), Fanout::All]);
/// assert_eq!(fanouts.of_relations, [("buys".to_owned(), vec![Fanout::UpTo(5), Fanout::UpTo(0)])]);
/// # Ok::<(), kiln_sample::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelationFanouts {
    /// The fanout of each layer, input layer first, of all relations without their own; empty if all have their own.
    pub of_all: Vec<Fanout>,
    /// The names of other relations and their fanouts.
    pub of_relations: Vec<(String, Vec<Fanout>)>,
}

impl RelationFanouts {
    /// Returns the fanouts with each list of one fanout repeated for all layers.
    #[must_use]
    pub fn repeated(self, n_layers: usize) -> Self {
        let repeat = |fanouts: Vec<Fanout>| match fanouts[..] {
            [fanout] => vec![fanout; n_layers],
            _ => fanouts,
        };
        let of_relations = self.of_relations.into_iter();
        Self {
            of_all: repeat(self.of_all),
            of_relations: of_relations.map(|(name, fanouts)| (name, repeat(fanouts))).collect(),
        }
    }

    /// Returns the fanout of each relation in each layer, `[n_layers][n_relations]`, as
    /// [`HeteroNeighborSampler`](crate::HeteroNeighborSampler) takes them.
    ///
    /// # Errors
    /// Returns [`kiln_graph::SchemaError::NoSuchRelation`] within [`Error::Graph`] for an unknown name,
    /// [`FanoutsError::NoFanouts`] for a relation without fanouts, and [`FanoutsError::LayerFanouts`] if a list does
    /// not have one fanout per layer.
    pub fn by_layer(&self, schema: &GraphSchema, n_layers: usize) -> Result<Vec<Vec<Fanout>>> {
        for (name, _) in &self.of_relations {
            schema.require(name)?;
        }
        let lists = schema.relations().iter().map(|relation| {
            let own = self.of_relations.iter().find(|(name, _)| *name == relation.name);
            let list = own.map_or(&self.of_all, |(_, fanouts)| fanouts);
            match list.len() {
                n_fanouts if n_fanouts == n_layers => Ok(list),
                0 if own.is_none() => {
                    Err(Error::Fanouts(FanoutsError::NoFanouts { relation: relation.name.clone() }))
                }
                got => {
                    let relation = relation.name.clone();
                    Err(Error::Fanouts(FanoutsError::LayerFanouts { relation, got, expected: n_layers }))
                }
            }
        });
        let lists = lists.collect::<Result<Vec<_>>>()?;
        Ok((0..n_layers).map(|layer| lists.iter().map(|list| list[layer]).collect()).collect())
    }
}

impl FromStr for Fanout {
    type Err = Error;

    /// Reads a number, or `all` or `-1` for all neighbours.
    ///
    /// ```
    /// use kiln_sample::Fanout;
    /// assert_eq!("10".parse::<Fanout>()?, Fanout::UpTo(10));
    /// assert_eq!("-1".parse::<Fanout>()?, Fanout::All);
    /// # Ok::<(), kiln_sample::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        match text.trim() {
            "all" | "-1" => Ok(Self::All),
            number => number.parse().map(Self::UpTo).map_err(|_| {
                let expected = "expected a number per layer, separated by commas, such as 10,10; `all` or -1 is all neighbours";
                Error::Fanouts(FanoutsError::InvalidFanouts { reason: expected.to_owned() })
            }),
        }
    }
}

impl From<ByRelationError> for Error {
    fn from(error: ByRelationError) -> Self {
        let reason = match error {
            ByRelationError::TwoOfRelation { relation } => format!("the relation `{relation}` has two lists"),
            _ => "expected one list without a name of a relation".to_owned(),
        };
        Self::Fanouts(FanoutsError::InvalidFanouts { reason })
    }
}

impl FromStr for RelationFanouts {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lists = ByRelation::parse(text, |list| list.split(',').map(str::parse).collect::<Result<_>>())?;
        Ok(Self { of_all: lists.of_all.unwrap_or_default(), of_relations: lists.of_relations })
    }
}

#[cfg(test)]
mod tests {
    use kiln_graph::{NodeTypes, RelationEdges, Relations};

    use super::*;

    fn up_to(numbers: &[u32]) -> Vec<Fanout> {
        numbers.iter().map(|&number| Fanout::UpTo(number)).collect()
    }

    fn schema() -> GraphSchema {
        let edges = |name| RelationEdges::new(name, "node", "node", &[], &[]);
        let types = NodeTypes::new([("node", 2)]).expect("the types should be valid");
        let graph = Relations::from_edges(types, &[edges("a=b"), edges("c")]);
        graph.expect("the graph should be valid").schema().clone()
    }

    #[test]
    fn lists_of_relations_are_read_by_name() -> Result<()> {
        let plain: RelationFanouts = "10, all".parse()?;
        assert_eq!(plain.of_all, [Fanout::UpTo(10), Fanout::All]);
        assert_eq!(plain.of_relations, []);
        let named: RelationFanouts = "10,10; a=b=5,4;c=0".parse()?;
        assert_eq!(named.of_all, up_to(&[10, 10]));
        let expected = [("a=b".to_owned(), up_to(&[5, 4])), ("c".to_owned(), up_to(&[0]))];
        assert_eq!(named.of_relations, expected);
        let all: RelationFanouts = "10,-1; c=-1, all".parse()?;
        assert_eq!(all.of_all, [Fanout::UpTo(10), Fanout::All]);
        assert_eq!(all.of_relations, [("c".to_owned(), vec![Fanout::All; 2])]);
        for bad in ["", "1;2", "a=1;a=2", "a=", "a=1,x", "1,-2", "-1-1"] {
            assert!(bad.parse::<RelationFanouts>().is_err(), "{bad}");
        }
        Ok(())
    }

    #[test]
    fn lists_become_the_fanouts_of_each_layer_and_relation() -> Result<()> {
        let by_layer = |text: &str| text.parse::<RelationFanouts>()?.repeated(2).by_layer(&schema(), 2);
        assert_eq!(by_layer("4,3;c=2,1")?, [up_to(&[4, 2]), up_to(&[3, 1])]);
        assert_eq!(by_layer("4;c=2,1")?, [up_to(&[4, 2]), up_to(&[4, 1])]);
        assert_eq!(by_layer("a=b=6;c=2,1")?, [up_to(&[6, 2]), up_to(&[6, 1])]);
        for (text, expected) in [
            ("c=1,1", "there are no fanouts for the relation `a=b`"),
            ("4,3;d=1,1", "no relation `d`"),
            ("4,3,2", "the relation `a=b` has 3 fanouts, expected 2, one per layer"),
            ("4,3;c=1,1,1", "the relation `c` has 3 fanouts, expected 2, one per layer"),
        ] {
            let error = by_layer(text).expect_err("the fanouts should be rejected").to_string();
            assert!(error.contains(expected), "{error}");
        }
        Ok(())
    }
}
