"""Batches are those of the loader in Rust: `crates/loader/tests/suite/digests.rs` computes the same digests with it."""

import hashlib

import numpy as np
import pytest

import kiln

SUBGRAPHS = "f69d7c51050e971f594ef1178d3cc28cf1a859f760e05b68437728f0731f202d"
BLOCKS = "db903662d3669cbe43403b314de867df7f64db9e49e512260db7f2f5b57778a7"
RELATIONS = "b86831cad1fb73f02d74f064eea38299d98567170ff963170ad987f12415c71a"
LINKS = "359d1824e62296ca8388d6832bf364868fb201fba48a2f28a3b36a991bfbd734"

# The fanouts of the test in Rust, [4, 5], begin at the input layer; these begin at the seeds.
SETTINGS = dict(num_neighbors=[5, 4], batch_size=300, shuffle=True, seed=7, rank=1, world_size=2)


class Hash:
    def __init__(self):
        self.sha256 = hashlib.sha256()

    def put(self, *arrays):
        for array in arrays:
            self.sha256.update(np.ascontiguousarray(array, np.int64).tobytes())

    def put_rows(self, rows):
        self.sha256.update(np.ascontiguousarray(rows, np.float32).tobytes())

    def digest(self):
        return self.sha256.hexdigest()


@pytest.fixture(scope="module")
def packages():
    return kiln.Dataset.open("debian-packages")


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_subgraphs_are_those_of_rust_for_any_number_of_threads(packages, num_workers):
    loader = kiln.NeighborLoader(packages, input_nodes=packages.train, output="numpy", num_workers=num_workers, **SETTINGS)
    loader.set_epoch(3)
    found = Hash()
    for batch in loader:
        found.put(batch.n_id, *batch.edge_index, batch.e_id)
        found.put_rows(batch.x)
        found.put(batch.y[batch.seed_index], batch.seed_index)
    assert found.digest() == SUBGRAPHS


def test_blocks_are_those_of_rust(packages):
    loader = kiln.NeighborLoader(packages, input_nodes=packages.train, output="blocks", **SETTINGS)
    loader.set_epoch(3)
    found = Hash()
    for batch in loader:
        for block in batch.blocks:
            found.put(block.n_id, *block.edge_index, block.e_id)
        found.put_rows(batch.x)
        found.put(batch.y[batch.seed_index], batch.seed_index)
    assert found.digest() == BLOCKS


def test_relations_are_those_of_rust():
    data = kiln.Dataset.open("debian-archive")
    loader = kiln.NeighborLoader(data, input_nodes=(data.target_type, data.train), output="numpy", **SETTINGS)
    loader.set_epoch(3)
    found = Hash()
    for batch in loader:
        found.put(*batch.n_id.values())
        for (src, name, dst), (srcs, dsts) in batch.edge_index.items():
            edges = (batch.n_id[src][srcs], batch.n_id[dst][dsts], batch.e_id[src, name, dst])
            found.put(np.stack(edges, axis=1))
        for rows in batch.x.values():
            found.put_rows(rows)
    assert found.digest() == RELATIONS


def test_links_are_those_of_rust(packages):
    links = packages.edge_index()[:, :5000]
    loader = kiln.LinkNeighborLoader(
        packages, edge_label_index=links, neg_sampling="triplet", neg_sampling_ratio=2, output="numpy", **SETTINGS
    )
    loader.set_epoch(3)
    found = Hash()
    for batch in loader:
        dsts = np.concatenate([batch.dst_pos_index[:, None], batch.dst_neg_index], axis=1)
        found.put(batch.input_id, batch.src_index, dsts, batch.n_id, *batch.edge_index, batch.e_id)
    assert found.digest() == LINKS
