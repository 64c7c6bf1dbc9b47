/// The format of a weights file: the library whose tensor names and layouts it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// The format of PyG's `SAGEConv`, `GCNConv`, `GATConv`, `GATv2Conv`, `RGCNConv`, `GINConv` and `GINEConv`.
    Pyg,
    /// The format of DGL's `SAGEConv`, `GraphConv`, `GATConv`, `GATv2Conv`, `RelGraphConv`, `GINConv` and `GINEConv`.
    Dgl,
}
