"""Loaders: the content of batches, ranks, resume, memory."""

import gc
import itertools
import os
import resource

import numpy as np
import pytest

import kiln

# Node v has in-edges from v + 1, v + 2 and v + 3.
N = 40
DSTS = np.repeat(np.arange(N), 3)
SRCS = (DSTS + np.tile([1, 2, 3], N)) % N


def ring(**arrays):
    order = np.random.default_rng(0).permutation(3 * N)
    x = np.arange(N, dtype=np.float32)[:, None]
    return kiln.Dataset.from_arrays(
        np.stack([SRCS, DSTS])[:, order], x=x, y=np.arange(N) % 4, edge_attr=order.astype(np.float32), train=np.arange(20), **arrays
    )


def batches(loader):
    return [{key: np.asarray(value).tolist() for key, value in batch.items()} for batch in loader]


def test_a_batch_has_rows_and_edges_of_its_nodes():
    data = ring()
    edge_index, attributes = data.edge_index(), data.edge_attributes()["edge_attr"]
    for batch in kiln.NeighborLoader(data, [2, -1], data.train, batch_size=6, shuffle=True, output="numpy"):
        assert batch.n_id[batch.seed_index].tolist() == data.train[batch.input_id].tolist()
        assert np.array_equal(batch.x[:, 0], batch.n_id)
        assert np.array_equal(batch.y, batch.n_id % 4)
        assert np.array_equal(batch.n_id[batch.edge_index], edge_index[:, batch.e_id])
        assert np.array_equal(batch.edge_attr, attributes[batch.e_id])
        assert sum(batch.num_sampled_nodes) == len(batch.n_id) == len(set(batch.n_id))
        assert sum(batch.num_sampled_edges) == len(batch.e_id)
        # The seeds have two edges, in the first hop, and the nodes of the first hop all edges, in the second.
        n_seeds, n_first, _ = batch.num_sampled_nodes
        degrees = np.bincount(batch.edge_index[1], minlength=len(batch.n_id))
        assert degrees[:n_seeds].tolist() == [2] * n_seeds
        assert degrees[n_seeds : n_seeds + n_first].tolist() == [3] * n_first
        assert batch.edge_index[1, : batch.num_sampled_edges[0]].max() < n_seeds
        assert batch.batch_size == n_seeds


def test_blocks_pick_neighbors_of_all_nodes_in_each_layer():
    loader = kiln.NeighborLoader(ring(), [2, 3], [0, 7], batch_size=2, output="blocks")
    (batch,) = loader
    outer, inner = batch.blocks
    assert np.bincount(inner.edge_index[1]).tolist() == [2, 2]
    assert np.bincount(outer.edge_index[1]).tolist() == [3] * len(inner.n_id)
    assert outer.n_id[: len(inner.n_id)].tolist() == inner.n_id.tolist()
    assert batch.x[:, 0].tolist() == outer.n_id.tolist()
    assert batch.y.tolist() == [0, 3]


def test_epochs_differ_and_evaluations_do_not():
    loader = kiln.NeighborLoader(ring(), [2], batch_size=8, shuffle=True, output="numpy")
    assert batches(loader) != batches(loader)
    loader.set_epoch(0)
    again = kiln.NeighborLoader(ring(), [2], batch_size=8, shuffle=True, output="numpy")
    assert batches(loader) == batches(again)
    validation = kiln.NeighborLoader(ring(), [2], batch_size=8, phase="validation", output="numpy")
    assert batches(validation) == batches(validation)


def test_ranks_share_the_nodes_of_a_step():
    settings = dict(num_neighbors=[2], shuffle=True, seed=5, output="numpy")
    whole = list(kiln.NeighborLoader(ring(), batch_size=8, **settings))
    parts = [list(kiln.NeighborLoader(ring(), batch_size=4, rank=rank, world_size=2, **settings)) for rank in range(2)]
    for step, batch in enumerate(whole):
        own = [part[step] for part in parts]
        assert np.concatenate([part.input_id for part in own]).tolist() == batch.input_id.tolist()
        edges = set(batch.e_id[: batch.num_sampled_edges[0]].tolist())
        assert set(np.concatenate([part.e_id for part in own]).tolist()) == edges


def test_uneven_last_steps_are_padded_dropped_or_joined():
    def sizes(uneven):
        ranks = []
        for rank in range(4):
            loader = kiln.NeighborLoader(ring(), [1], range(10), batch_size=2, rank=rank, world_size=4, uneven=uneven, output="numpy")
            ranks.append([len(batch.input_id) for batch in loader])
            assert len(loader) == len(ranks[-1])
        return ranks

    assert sizes("pad") == [[2, 1]] * 4
    assert sizes("drop") == [[2]] * 4
    assert sorted(sizes("join")) == [[2, 0], [2, 0], [2, 1], [2, 1]]


@pytest.mark.parametrize("n_taken", [0, 2, 5])
def test_a_loaded_state_continues_with_the_same_batches(n_taken):
    def loader(**changes):
        return kiln.NeighborLoader(ring(), [2, 2], shuffle=True, output="numpy", **{"batch_size": 8, **changes})

    first = loader()
    list(first)
    epoch = iter(first)
    for _ in range(n_taken):
        next(epoch)
    state = first.state_dict()
    rest = batches(epoch)
    after = batches(first)
    resumed = loader()
    resumed.load_state_dict(state)
    # After its last batch, a state is the start of the next epoch.
    assert batches(resumed) == (rest if n_taken < 5 else after)
    if n_taken < 5:
        assert batches(resumed) == after
    with pytest.raises(ValueError, match="num_neighbors|fanouts"):
        kiln.NeighborLoader(ring(), [2, 3], shuffle=True, batch_size=8, output="numpy").load_state_dict(state)
    loader(batch_size=4, world_size=2).load_state_dict(state)


def test_duplicate_nodes_share_a_row():
    (batch,) = kiln.NeighborLoader(ring(), [1], [3, 5, 3], batch_size=3, output="numpy")
    assert (batch.batch_size, batch.n_id[:2].tolist(), batch.seed_index.tolist()) == (2, [3, 5], [0, 1, 0])


def test_relations_have_fanouts_of_their_own():
    edges = {("user", "rates", "item"): [[0, 1, 2], [0, 0, 0]], ("item", "to", "item"): [[1, 2], [0, 0]]}
    data = kiln.Dataset.from_arrays(edges, num_nodes={"user": 3, "item": 3}, x={"item": np.eye(3)})
    fanouts = {("user", "rates", "item"): [2], ("item", "to", "item"): [0]}
    (batch,) = kiln.NeighborLoader(data, fanouts, ("item", [0]), output="numpy")
    assert batch.num_sampled_edges == {("user", "rates", "item"): [2], ("item", "to", "item"): [0]}
    assert batch.num_sampled_nodes == {"user": [0, 2], "item": [1, 0]}
    assert batch.x["item"].tolist() == [[1, 0, 0]]


def test_links_have_negatives_and_are_not_messages_of_their_step():
    data = ring()
    loader = kiln.LinkNeighborLoader(data, [-1], batch_size=30, shuffle=True, neg_sampling="binary", neg_sampling_ratio=2, output="numpy")
    edge_index = data.edge_index()
    for batch in loader:
        links = batch.n_id[batch.edge_label_index]
        assert batch.edge_label.tolist() == [1.0] * 30 + [0.0] * 60
        assert np.array_equal(links[:, :30], edge_index[:, batch.input_id])
        assert not {tuple(link) for link in links[:, :30].T} & {tuple(edge) for edge in batch.n_id[batch.edge_index].T}
    kept = kiln.LinkNeighborLoader(data, [-1], batch_size=3 * N, exclude="none", output="numpy")
    assert sorted(next(iter(kept)).e_id.tolist()) == list(range(3 * N))


def test_links_of_a_relation_have_labels():
    edges = {("user", "rates", "item"): [[0, 1, 2], [0, 1, 0]], ("item", "rated", "user"): [[0, 1, 0], [0, 1, 2]]}
    data = kiln.Dataset.from_arrays(edges)
    loader = kiln.LinkNeighborLoader(
        data, [2], ("user", "rates", "item"), [5, 6, 7], batch_size=2, rev_edge_type=("item", "rated", "user"), output="numpy"
    )
    first, second = loader
    assert first.edge_label.tolist() == [5, 6] and second.edge_label.tolist() == [7]
    assert first.n_id["user"][first.edge_label_index[0]].tolist() == [0, 1]
    assert first.n_id["item"][first.edge_label_index[1]].tolist() == [0, 1]
    # Each link of the step and its reverse are left out: item 0 is rated by user 2 only.
    assert first.e_id[("user", "rates", "item")].tolist() == [2]


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell the memory of a process")
def test_memory_does_not_grow_over_10_000_batches():
    data = kiln.Dataset.open("debian-packages")
    loader = kiln.NeighborLoader(data, [3, 3], batch_size=32, shuffle=True, output="numpy")

    def run(n_batches):
        for _, batch in zip(range(n_batches), itertools.chain.from_iterable(itertools.repeat(loader))):
            assert len(batch.x)
        gc.collect()
        return resident_bytes()

    # The allocator keeps memory for each thread of an epoch, some tens of MiB in all, depending on the load of the machine.
    before = run(3_000)
    # The batches have more than 1 GiB of rows.
    assert run(10_000) - before < 128 << 20


def test_settings_change_batches_as_they_say():
    def load(**settings):
        return list(kiln.NeighborLoader(ring(), [8], np.arange(10), batch_size=4, output="numpy", **settings))

    assert [len(batch.input_id) for batch in load()] == [4, 4, 2]
    assert [len(batch.input_id) for batch in load(drop_last=True)] == [4, 4]
    # A node has three neighbours, all of which are picked once without replacement.
    assert load()[0].num_sampled_edges == [12]
    assert load(replace=True)[0].num_sampled_edges == [32]
    assert load(transform=lambda batch: batch.batch_size) == [4, 4, 2]
    small_queue = load(queue_bytes=0, num_workers=3)
    assert [batch.n_id.tolist() for batch in small_queue] == [batch.n_id.tolist() for batch in load()]


def test_a_state_continues_in_a_loop_over_epochs_that_sets_them():
    data = kiln.Dataset.from_arrays(np.array([[0, 1, 2, 3], [1, 2, 3, 0]]))

    def loader(nodes=None):
        return kiln.NeighborLoader(data, [1], nodes, batch_size=1, shuffle=True, output="numpy")

    whole = loader()
    whole.set_epoch(3)
    expected = [batch.input_id.tolist() for batch in whole]
    part = loader()
    part.set_epoch(3)
    assert part.state_dict()["epoch"] == 3
    batches = iter(part)
    first = [next(batches).input_id.tolist() for _ in range(2)]
    state = part.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    resumed.set_epoch(3)
    assert first + [batch.input_id.tolist() for batch in resumed] == expected
    resumed.set_epoch(4)
    assert len(list(resumed)) == 4
    with pytest.raises(ValueError, match="items"):
        loader(np.array([0, 1])).load_state_dict(state)


def test_reverses_of_links_between_two_types_are_left_out_or_asked_for():
    edges = np.array([[0, 1, 2], [2, 1, 0]])

    def loader(back, **arguments):
        relations = {("user", "rates", "item"): edges, ("item", back, "user"): edges[::-1].copy()}
        data = kiln.Dataset.from_arrays(relations, num_nodes={"user": 3, "item": 3})
        return kiln.LinkNeighborLoader(data, [-1], ("user", "rates", "item"), batch_size=3, output="numpy", **arguments)

    (batch,) = loader("rev_rates")
    assert all(len(ids) == 0 for ids in batch.e_id.values())
    with pytest.raises(ValueError, match="rev_edge_type"):
        loader("rated")
    (batch,) = loader("rated", exclude="directed")
    assert len(batch.e_id[("item", "rated", "user")]) == 3
