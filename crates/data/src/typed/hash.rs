use crate::hash::ArrayHasher;
use crate::{HashedPart, Result, TypedDataset, TypedLinks};

impl TypedDataset {
    /// Returns the SHA-256, in lower-case hexadecimal, of all training data: the names, the order and the sizes of node
    /// types and relations, the topology and the weights, features with their stored element type, targets and split.
    /// The name of the set, the notes and the names of nodes and classes are not hashed, and mapped and in-memory arrays
    /// have the same hash.
    ///
    /// The hashed bytes have the form of [`Dataset::hash`](crate::Dataset::hash): the line `kiln data 1`, then
    /// `type_offsets u32 T+1`, and for each node type `node_type u8 L`, its name in UTF-8, followed by its features, if it
    /// has any; for each relation `relation u8 L`, its name, `relation_types u32 2`, the types of its sources and
    /// destinations, and its `indptr`, `indices` and `weights`; and if there are targets, `target_type u32 1`, and the
    /// targets and the split as there. If the set has links, `link_relations u32 1` or `2` follows, their relation and its
    /// reverse, if there is one, and the links as there.
    ///
    /// # Errors
    /// Returns the errors of [`Dataset::hash`](crate::Dataset::hash). Values are not checked.
    pub fn hash(&self) -> Result<String> {
        self.hash_of(HashedPart::All(&mut || Ok(())))
    }

    /// Returns the hash of all values as [`TypedDataset::hash`] does, but with checks on the way, or the hash of a sample.
    ///
    /// # Errors
    /// Returns the errors of [`TypedDataset::hash`] and of the check.
    pub fn hash_of(&self, part: HashedPart<'_>) -> Result<String> {
        let (mut hasher, types) = (ArrayHasher::new(part), self.graph.types());
        hasher.array("type_offsets", "u32", types.offsets().len(), types.offsets())?;
        for (name, features) in types.names().iter().zip(&self.features) {
            hasher.array("node_type", "u8", name.len(), name.as_bytes())?;
            if let Some(features) = features {
                hasher.features(&**features)?;
            }
        }
        for relation in self.graph.iter() {
            hasher.array("relation", "u8", relation.name.len(), relation.name.as_bytes())?;
            let types = [relation.src_type as u32, relation.dst_type as u32];
            hasher.array("relation_types", "u32", types.len(), &types)?;
            hasher.graph(&relation.graph)?;
        }
        if let Some(targets) = &self.targets {
            hasher.array("target_type", "u32", 1, &[targets.node_type as u32])?;
            hasher.targets(&targets.values)?;
            hasher.split(&targets.split)?;
        }
        if let Some(TypedLinks { relation, reverse, targets }) = &self.links {
            let relations: Vec<u32> =
                [Some(*relation), *reverse].into_iter().flatten().map(|at| at as u32).collect();
            hasher.array("link_relations", "u32", relations.len(), &relations)?;
            hasher.links(targets)?;
        }
        hasher.finish()
    }
}
