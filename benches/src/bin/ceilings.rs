//! Measures the ceilings of this machine, and prints a JSON object for each number of threads: `ceilings 1 2`.

use kiln_benches::Result;
use kiln_benches::ceilings::{Ceilings, array_bytes};

fn main() -> Result {
    let threads =
        std::env::args().skip(1).map(|text| text.parse()).collect::<std::result::Result<Vec<usize>, _>>();
    let threads = threads.map_err(|error| format!("expected numbers of threads, each above 0: {error}"))?;
    if threads.is_empty() || threads.contains(&0) {
        return Err("expected numbers of threads, each above 0".into());
    }
    for ceilings in Ceilings::measure(&threads, array_bytes()) {
        println!("{}", serde_json::to_string(&ceilings)?);
    }
    Ok(())
}
