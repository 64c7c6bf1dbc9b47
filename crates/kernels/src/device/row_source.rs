use kiln_feature::{EdgeFeatures, FeatureBuffer, FeatureDType, FeatureStore, Result};
use kiln_graph::{EdgeId, NodeId};

/// Feature rows in the host's memory that are sent to a device: those of nodes ([`NodeRows`]) or of edges
/// ([`EdgeFeatures`]).
#[cfg_attr(
    not(feature = "cube"),
    allow(dead_code, reason = "only devices with CubeCL kernels hold tables of rows")
)]
pub(crate) trait RowSource {
    /// The id of a row.
    type Id: Copy;

    /// The name of a table of these rows in errors.
    const TABLE: &'static str;

    /// True if layers read the rows as their input, in the precision of products.
    const ARE_INPUTS: bool;

    /// What to do if a device cannot hold the table, for errors.
    const INSTEAD: &'static str;

    /// Returns the id of row `row`.
    fn id(row: usize) -> Self::Id;

    /// Returns the number of columns.
    fn dim(&self) -> usize;

    /// Returns the number of rows.
    fn n_rows(&self) -> usize;

    /// Returns the element type of a row.
    fn dtype(&self) -> FeatureDType;

    /// See [`FeatureStore::gather`].
    fn gather(&self, ids: &[Self::Id], out: &mut FeatureBuffer) -> Result<()>;

    /// See [`FeatureStore::gather_bytes`].
    fn gather_bytes(&self, ids: &[Self::Id], out: &mut [u8]) -> Result<()>;
}

/// The rows of a store of node features.
pub(crate) struct NodeRows<'a, F: ?Sized>(pub(crate) &'a F);

impl<F: FeatureStore + ?Sized> RowSource for NodeRows<'_, F> {
    type Id = NodeId;

    const TABLE: &'static str = "the feature rows";
    const ARE_INPUTS: bool = true;
    const INSTEAD: &'static str = "cache fewer feature rows, or keep them on the host";

    fn id(row: usize) -> NodeId {
        NodeId(row as u32)
    }

    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn n_rows(&self) -> usize {
        self.0.n_rows()
    }

    fn dtype(&self) -> FeatureDType {
        self.0.dtype()
    }

    fn gather(&self, ids: &[NodeId], out: &mut FeatureBuffer) -> Result<()> {
        self.0.gather(ids, out)
    }

    fn gather_bytes(&self, ids: &[NodeId], out: &mut [u8]) -> Result<()> {
        self.0.gather_bytes(ids, out)
    }
}

impl RowSource for EdgeFeatures {
    type Id = EdgeId;

    const TABLE: &'static str = "the rows of edge features";
    const ARE_INPUTS: bool = false;
    const INSTEAD: &'static str = "keep them and the edges on the host (--graph-mode zero-copy or host)";

    fn id(row: usize) -> EdgeId {
        EdgeId(row as u64)
    }

    fn dim(&self) -> usize {
        self.dim()
    }

    fn n_rows(&self) -> usize {
        self.n_edges() as usize
    }

    fn dtype(&self) -> FeatureDType {
        self.dtype()
    }

    fn gather(&self, ids: &[EdgeId], out: &mut FeatureBuffer) -> Result<()> {
        self.gather(ids, out)
    }

    fn gather_bytes(&self, ids: &[EdgeId], out: &mut [u8]) -> Result<()> {
        self.gather_bytes(ids, out)
    }
}
