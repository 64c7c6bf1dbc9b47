//! Tests of the messages: what is sent is what is received, and bytes of other peers are errors.

use super::*;

fn joined(chunks: impl IntoIterator<Item = Bytes>) -> Vec<u8> {
    chunks.into_iter().flatten().collect()
}

fn edges() -> Edges {
    let indptr: Vec<u64> = vec![0, 2, 2, 5];
    let indices = [7, 9, 1, 2, 3].map(NodeId).to_vec();
    let graph = Csc::new(indptr.into(), indices.into()).unwrap();
    let graph = graph.with_weights(vec![0.5, 1.5, 2.5, 3.5, 4.5].into()).unwrap();
    Edges {
        graph: Arc::new(graph),
        nodes: vec![NodeId(4), NodeId(5), NodeId(8)].into(),
        first_edges: vec![10, 12, 1 << 40].into(),
        positions: None,
    }
}

fn hop(weights: EdgeWeights, edge_types: bool) -> HopRequest {
    HopRequest { edge_types, ..HopRequest::new(RngKey::new(0), 0, Fanout::All, weights) }
}

#[test]
fn decodes_sampled_edges_in_one_or_more_ranges() {
    let request = hop(EdgeWeights::Stored, true);
    let rows = [PartitionRow(2), PartitionRow(0)];
    let frontier = Frontier {
        indptr: vec![0, 2, 3],
        srcs: [2, 3, 9].map(NodeId).to_vec(),
        edge_ids: vec![EdgeId((1 << 40) + 1), EdgeId((1 << 40) + 2), EdgeId(11)],
        weights: Some(vec![3.5, 4.5, 1.5]),
        edge_types: Some(vec![7, 0, 255]),
    };
    let mut range = SampledRange::default();
    range.push(&edges(), &rows, &frontier);
    assert_eq!(range.n_bytes(), 2 * 12 + 3 * (8 + 4 + 1));
    let bytes = joined(chunks(range.into_arrays()));
    assert_eq!(super::frontier(&bytes, 2, &request), Ok(frontier.clone()));
    for cut in 0..bytes.len() {
        assert!(super::frontier(&bytes[..cut], 2, &request).is_err(), "{cut} bytes");
    }
    for other in
        [hop(EdgeWeights::None, true), hop(EdgeWeights::Stored, false), hop(EdgeWeights::None, false)]
    {
        assert!(super::frontier(&bytes, 2, &other).is_err(), "{other:?}");
    }
    assert!(super::frontier(&bytes, 1, &request).is_err());
    let without = Frontier { edge_types: None, ..frontier.clone() };
    let mut range = SampledRange::default();
    range.push(&edges(), &rows, &without);
    let shorter = joined(chunks(range.into_arrays()));
    assert_eq!(shorter.len(), bytes.len() - 3, "types that are not requested should take no bytes");
    assert_eq!(super::frontier(&shorter, 2, &hop(EdgeWeights::Stored, false)), Ok(without));
    assert!(super::frontier(&shorter, 2, &request).is_err());
    // The same edges are now sent in two ranges.
    let mut bytes = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let picked = frontier.indptr[at] as usize..frontier.indptr[at + 1] as usize;
        let one = Frontier {
            indptr: vec![0, picked.len() as u32],
            srcs: frontier.srcs[picked.clone()].to_vec(),
            edge_ids: frontier.edge_ids[picked.clone()].to_vec(),
            weights: frontier.weights.as_ref().map(|weights| weights[picked.clone()].to_vec()),
            edge_types: frontier.edge_types.as_ref().map(|types| types[picked].to_vec()),
        };
        let mut range = SampledRange::default();
        range.push(&edges(), &[*row], &one);
        bytes.extend(joined(chunks(range.into_arrays())));
    }
    assert_eq!(super::frontier(&bytes, 2, &request), Ok(frontier));
    // Ranges without rows are rejected. Servers do not send them, and any number of them would decode no node.
    assert!(
        super::frontier(&[0; 8], 1, &hop(EdgeWeights::None, false))
            .unwrap_err()
            .contains("a range of 1 to 1 rows")
    );
}

#[test]
fn rejects_invalid_edges_to_leave_out() {
    let bytes = |edges: Vec<ExcludedEdge>| bytes_of(edges);
    assert_eq!(excluded(&bytes(vec![[0, 9], [1, 4]]), 2), Ok(vec![[0, 9], [1, 4]]));
    let error = |bytes: &[u8], n_rows| excluded(bytes, n_rows).unwrap_err();
    assert!(error(&[0; 7], 2).contains("8 bytes each"));
    assert!(error(&bytes(vec![[0, 9], [2, 4]]), 2).contains("row 2 of a request for 2 rows"));
    assert!(error(&bytes(vec![[0, 0]; MAX_EXCLUDED + 1]), 2).contains("expected at most 131072"));
}

#[test]
fn decodes_neighbor_lists() {
    let rows = [2, 1, 0].map(PartitionRow);
    let nodes = [8, 5, 4].map(NodeId);
    let edges = edges();
    let ranges = edges.ranges(&rows).unwrap();
    let bytes = joined(of_lists(&edges, &rows, &ranges, MessageEdges::All));
    let weighted = ListedArrays { weights: true, ..Default::default() };
    let got = lists(&bytes, &nodes, weighted).unwrap();
    assert_eq!(got.graph.indices(), [1, 2, 3, 7, 9].map(NodeId));
    assert_eq!(got.graph.weights(), Some(&[2.5, 3.5, 4.5, 0.5, 1.5][..]));
    assert_eq!(got.first_edges[..], [1 << 40, 12, 10]);
    assert!(lists(&bytes, &nodes, ListedArrays::default()).is_err());
    // With a time, positions follow, also of a partition that has no later edges.
    let expected = [(None, [0, 1, 2, 0, 1]), (Some([7, 9, 1, 5, 6]), [1, 5, 6, 7, 9])];
    for (positions, expected) in expected {
        let edges = Edges { positions: positions.map(|all| Arc::from(all.to_vec())), ..edges.clone() };
        let bytes = joined(of_lists(&edges, &rows, &ranges, MessageEdges::Before(7)));
        let got = lists(&bytes, &nodes, ListedArrays { positions: true, ..weighted }).unwrap();
        assert_eq!(got.positions.as_deref(), Some(&expected[..]));
        assert!(lists(&bytes, &nodes, weighted).is_err());
    }
}

#[test]
fn decodes_the_times_of_listed_edges() {
    let rows = [2, 0].map(PartitionRow);
    let nodes = [8, 4].map(NodeId);
    let graph = Csc::clone(&edges().graph).with_edge_times(vec![5, -3, 9, 8, 7]).unwrap();
    let edges = edges().with_graph(graph);
    let ranges = edges.ranges(&rows).unwrap();
    let bytes = joined(of_lists(&edges, &rows, &ranges, MessageEdges::ByTime));
    let timed = ListedArrays { weights: true, times: true, ..Default::default() };
    let got = lists(&bytes, &nodes, timed).unwrap();
    assert_eq!(got.graph.edge_times().unwrap().times(), [9, 8, 7, 5, -3]);
    for cut in 0..bytes.len() {
        assert!(lists(&bytes[..cut], &nodes, timed).is_err(), "{cut} bytes");
    }
    assert!(lists(&bytes, &nodes, ListedArrays { times: false, ..timed }).is_err());
    // Times are sent only if they are requested.
    let untimed = joined(of_lists(&edges, &rows, &ranges, MessageEdges::All));
    assert_eq!(untimed.len(), bytes.len() - 5 * size_of::<i64>());
}

#[test]
fn long_lists_are_copied_in_chunks() {
    let values: Vec<u32> = (0..3 * CHUNK_BYTES as u32 / 4 + 5).collect();
    let ranges = [7..values.len(), 2..2, 0..3, 1..values.len() / 2];
    let chunks: Vec<Bytes> = values_of(&ranges, &values).collect();
    assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK_BYTES));
    let expected: Vec<u32> = ranges.iter().flat_map(|range| values[range.clone()].to_vec()).collect();
    assert_eq!(pod_collect_to_vec::<u8, u32>(&joined(chunks)), expected);
}

#[test]
fn long_arrays_are_sent_in_copied_chunks() {
    let pieces: Vec<Bytes> =
        chunks([bytes_of(vec![1_u8; CHUNK_BYTES + 3]), bytes_of::<u32>(Vec::new())]).collect();
    assert_eq!(pieces.iter().map(Bytes::len).collect::<Vec<_>>(), [CHUNK_BYTES, 3]);
    let mut pieces = chunks([bytes_of(vec![1_u8; 2 * CHUNK_BYTES])]);
    let first = pieces.next().expect("there should be two chunks");
    assert!(first.is_unique(), "a waiting chunk should not keep the whole array");
}
