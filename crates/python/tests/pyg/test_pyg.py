"""Batches as PyG's objects, and datasets of them."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, to_hetero
from torch_geometric.utils import trim_to_layer

import kiln


def homogeneous():
    torch.manual_seed(0)
    data = Data(x=torch.randn(50, 4), edge_index=torch.randint(50, (2, 300)), y=torch.randint(3, (50,)))
    data.train_mask = torch.arange(50) < 20
    data.val_mask = torch.arange(50) // 10 == 3
    data.test_mask = torch.arange(50) >= 40
    data.edge_attr = torch.arange(300.0)[:, None]
    return data


def heterogeneous():
    torch.manual_seed(0)
    data = HeteroData()
    data["paper"].x = torch.randn(30, 4)
    data["paper"].y = torch.randint(3, (30,))
    data["paper"].train_mask = torch.arange(30) < 10
    data["author"].num_nodes = 12
    data["author", "writes", "paper"].edge_index = torch.stack([torch.randint(12, (90,)), torch.randint(30, (90,))])
    data["paper", "written by", "author"].edge_index = data["author", "writes", "paper"].edge_index.flip(0)
    return data


def test_a_dataset_of_pyg_has_its_tensors_without_copies():
    data = homogeneous()
    dataset = kiln.Dataset.from_pyg(data)
    assert dataset.x().ctypes.data == data.x.data_ptr()
    assert dataset.edge_index().tolist() == data.edge_index.tolist()
    assert dataset.train.tolist() == list(range(20))
    assert dataset.y().tolist() == data.y.tolist()


def test_a_batch_indexes_the_tensors_of_the_data():
    data = homogeneous()
    loader = kiln.NeighborLoader(data, num_neighbors=[3, 2], input_nodes=data.train_mask, batch_size=8, shuffle=True)
    for batch in loader:
        assert isinstance(batch, Data) and batch.validate()
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.y, data.y[batch.n_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert batch.num_nodes == sum(batch.num_sampled_nodes) and batch.num_edges == sum(batch.num_sampled_edges)
        assert batch.batch_size == batch.num_sampled_nodes[0] == len(batch.input_id)


def test_rows_of_a_batch_are_not_copied_between_gather_and_tensor():
    data = kiln.Dataset.from_pyg(homogeneous())
    loader = kiln.NeighborLoader(data, [3, 2], batch_size=8)
    arrays = next(loader._loader.epoch(0, 0))
    x = arrays["graphs"][0]["nodes"]["node"]["x"]
    address = x.ctypes.data
    # NumPy does not own the memory either: it is that of the vector into which Rust has gathered the rows.
    owner = x if x.base is None else x.base
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    assert not isinstance(owner, np.ndarray)
    batch = loader._convert(arrays)
    assert batch.x.data_ptr() == address


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_have_the_type_of_the_features(dtype):
    data = homogeneous()
    data.x = data.x.to(dtype)
    batch = next(iter(kiln.NeighborLoader(data, [2], batch_size=8)))
    assert batch.x.dtype == dtype and torch.equal(batch.x, data.x[batch.n_id])
    arrays = next(iter(kiln.NeighborLoader(data, [2], batch_size=8, output="numpy")))
    assert np.array_equal(arrays.x, batch.x.float().numpy())


def test_a_heterogeneous_batch_indexes_the_tensors_of_the_data():
    data = heterogeneous()
    loader = kiln.NeighborLoader(data, [3, 2], ("paper", data["paper"].train_mask), batch_size=4, shuffle=True)
    assert loader.data.edge_types == [tuple(edge_type) for edge_type in data.edge_types]
    for batch in loader:
        assert isinstance(batch, HeteroData) and batch.validate()
        assert torch.equal(batch["paper"].x, data["paper"].x[batch["paper"].n_id])
        assert batch["paper"].batch_size == 4 or batch["paper"].batch_size == 2
        assert "x" not in batch["author"] and batch["author"].num_nodes == len(batch["author"].n_id)
        for edge_type in data.edge_types:
            srcs, dsts = batch[edge_type].edge_index
            ends = torch.stack([batch[edge_type[0]].n_id[srcs], batch[edge_type[2]].n_id[dsts]])
            assert torch.equal(ends, data[edge_type].edge_index[:, batch[edge_type].e_id])


def test_a_model_of_pyg_trains_and_trims_layers_to_the_same_outputs():
    data = homogeneous()
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3)
    batch = next(iter(kiln.NeighborLoader(data, [3, 2], data.train_mask, batch_size=8)))
    outputs = model(batch.x, batch.edge_index)[: batch.batch_size]
    trimmed = model(
        batch.x,
        batch.edge_index,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    )[: batch.batch_size]
    assert torch.allclose(outputs, trimmed, atol=1e-6)
    torch.nn.functional.cross_entropy(outputs, batch.y[: batch.batch_size]).backward()
    x, edge_index, _ = trim_to_layer(1, batch.num_sampled_nodes, batch.num_sampled_edges, batch.x, batch.edge_index)
    assert len(x) == sum(batch.num_sampled_nodes[:-1]) and edge_index.shape[1] == batch.num_sampled_edges[0]


def test_all_neighbors_give_the_outputs_of_the_whole_graph():
    data = homogeneous()
    model = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval()
    with torch.no_grad():
        whole = model(data.x, data.edge_index)
        for batch in kiln.NeighborLoader(data, [-1, -1], batch_size=16):
            outputs = model(batch.x, batch.edge_index)[: batch.batch_size]
            assert torch.allclose(outputs, whole[batch.n_id[: batch.batch_size]], atol=1e-5)


def test_links_of_a_heterogeneous_graph_are_those_of_pyg():
    data = heterogeneous()
    edge_type = ("author", "writes", "paper")
    links = data[edge_type].edge_index[:, :20]
    loader = kiln.LinkNeighborLoader(
        data, [2], (edge_type, links), neg_sampling="binary", batch_size=10, rev_edge_type=("paper", "written by", "author")
    )
    for batch in loader:
        store = batch[edge_type]
        ends = torch.stack([batch["author"].n_id[store.edge_label_index[0]], batch["paper"].n_id[store.edge_label_index[1]]])
        assert torch.equal(ends[:, :10], links[:, store.input_id])
        assert store.edge_label.tolist() == [1.0] * 10 + [0.0] * 10
    triplets = kiln.LinkNeighborLoader(data, [2], (edge_type, links), neg_sampling="triplet", batch_size=10)
    batch = next(iter(triplets))
    assert torch.equal(batch["paper"].n_id[batch["paper"].dst_pos_index], links[1, :10])
    assert len(batch["author"].src_index) == len(batch["paper"].dst_neg_index) == 10


def test_attributes_that_a_dataset_does_not_have_are_named():
    data = homogeneous()
    data.pos = torch.zeros(50, 3)
    with pytest.warns(UserWarning, match="pos of the data"):
        kiln.Dataset.from_pyg(data)
    with pytest.raises(ValueError, match="pass target_type"):
        other = heterogeneous()
        other["author"].y = torch.zeros(12, dtype=torch.long)
        kiln.Dataset.from_pyg(other)
    assert kiln.Dataset.from_pyg(other, target_type="author").target_type == "author"


def test_a_transform_changes_each_batch():
    def mark(batch):
        batch.is_marked = True
        return batch

    assert all(batch.is_marked for batch in kiln.NeighborLoader(homogeneous(), [2], batch_size=20, transform=mark))


def train_rank(rank, address, data, results):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(GraphSAGE(4, 8, num_layers=2, out_channels=3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = kiln.NeighborLoader(data, [3, 2], data.train_mask, batch_size=3, shuffle=True, rank=rank, world_size=2)
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            outputs = model(batch.x, batch.edge_index)[batch.seed_index]
            torch.nn.functional.cross_entropy(outputs, batch.y[batch.seed_index]).backward()
            optimizer.step()
    results.put((rank, [parameter.detach().sum().item() for parameter in model.parameters()]))
    dist.destroy_process_group()


def test_ranks_of_distributed_data_parallel_train_the_same_model(tmp_path):
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    args = (f"file://{tmp_path}/store", homogeneous(), results)
    mp.start_processes(train_rank, args, nprocs=2, start_method="spawn")
    first, second = results.get()[1], results.get()[1]
    assert first == second
