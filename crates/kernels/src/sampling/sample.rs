use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor};
use bytemuck::cast_vec;
use kiln_graph::{Block, LocalId, NodeId};

use crate::device::block::{DeviceBlock, upload};
use crate::sampling::edge_features::DeviceEdgeColumn;

/// The sample of one batch, where a [`DeviceSampler`](crate::DeviceSampler) assembled its blocks: on the device or on the
/// host.
#[derive(Debug, Clone)]
pub struct DeviceSample {
    assembled: Assembled,
    seed_index: Vec<LocalId>,
}

#[derive(Debug, Clone)]
enum Assembled {
    #[cfg(feature = "cube")]
    Device {
        blocks: Vec<DeviceBlock>,
        input_nodes: Box<Tensor<1, Int>>,
    },
    Host {
        blocks: Vec<Block>,
        seeds: Vec<NodeId>,
        device: Device,
    },
}

/// The blocks of one batch, on a device.
#[derive(Debug, Clone)]
pub struct DeviceSampledBlocks {
    /// One block per layer, input layer first.
    pub blocks: Vec<DeviceBlock>,
    /// The row of each seed among the destinations of the last block, in the order of the given seeds.
    pub seed_index: Vec<LocalId>,
    /// The global ids of the nodes whose features are the input, as u32: the sources of the first block, or the
    /// distinct seeds if there are no layers.
    pub input_nodes: Tensor<1, Int>,
}

impl DeviceSample {
    #[cfg(feature = "cube")]
    pub(crate) fn of_device(
        blocks: Vec<DeviceBlock>,
        seed_index: Vec<LocalId>,
        input_nodes: Tensor<1, Int>,
    ) -> Self {
        Self { assembled: Assembled::Device { blocks, input_nodes: Box::new(input_nodes) }, seed_index }
    }

    /// `seeds` are the distinct seeds, which are read only if there are no blocks.
    pub(crate) fn of_host(
        blocks: Vec<Block>,
        seed_index: Vec<LocalId>,
        seeds: Vec<NodeId>,
        device: Device,
    ) -> Self {
        Self { assembled: Assembled::Host { blocks, seeds, device }, seed_index }
    }

    /// Moves the blocks to the device, unless they are there, and adds these columns of their edges.
    ///
    /// # Errors
    /// Returns the errors of [`DeviceEdgeColumn::gather`].
    ///
    /// # Panics
    /// Panics if a block of the host has 2^31 or more edges or sources, or if the device fails.
    pub fn into_blocks(
        self,
        edge_columns: &[Arc<DeviceEdgeColumn>],
    ) -> kiln_feature::Result<DeviceSampledBlocks> {
        let (blocks, input_nodes) = match self.assembled {
            #[cfg(feature = "cube")]
            Assembled::Device { blocks, input_nodes } => {
                (loaded(blocks, |block| with_columns(block, edge_columns))?, *input_nodes)
            }
            Assembled::Host { blocks, seeds, device } => {
                let blocks = loaded(blocks, |block| load_with_columns(block, edge_columns, &device))?;
                let input_nodes = match blocks.first() {
                    Some(block) => block.src_nodes().clone(),
                    None => upload(cast_vec::<_, u32>(seeds), DType::U32, &device),
                };
                (blocks, input_nodes)
            }
        };
        Ok(DeviceSampledBlocks { blocks, seed_index: self.seed_index, input_nodes })
    }
}

fn loaded<B>(
    blocks: Vec<B>,
    load: impl Fn(B) -> kiln_feature::Result<DeviceBlock>,
) -> kiln_feature::Result<Vec<DeviceBlock>> {
    blocks.into_iter().map(load).collect()
}

/// Adds the rows of its edges to a block on the device.
#[cfg(feature = "cube")]
fn with_columns(
    mut block: DeviceBlock,
    columns: &[Arc<DeviceEdgeColumn>],
) -> kiln_feature::Result<DeviceBlock> {
    for column in columns {
        let rows = column.gather(block.edge_ids())?;
        block = block.with_edge_column(Arc::clone(column.name()), rows);
    }
    Ok(block)
}

/// Moves a block of the host to the device, with the rows of its edges. The host gathers the rows, because it has the ids.
fn load_with_columns(
    block: Block,
    columns: &[Arc<DeviceEdgeColumn>],
    device: &Device,
) -> kiln_feature::Result<DeviceBlock> {
    let mut all_rows = Vec::with_capacity(columns.len());
    for column in columns {
        all_rows.push((Arc::clone(column.name()), column.gather_on_host(block.edge_ids())?));
    }
    let block = DeviceBlock::new(block, device);
    Ok(all_rows.into_iter().fold(block, |block, (name, rows)| block.with_edge_column(name, rows)))
}
