//! Writes the random graph of the GCN bench to a folder, for benches of other libraries: `write_fake FOLDER`.

use kiln_benches::{Result, fake};
use kiln_data::format;

fn main() -> Result {
    let mut args = std::env::args().skip(1);
    let (Some(folder), None) = (args.next(), args.next()) else {
        return Err("expected one argument: the output folder".into());
    };
    format::write(&fake()?, folder)?;
    Ok(())
}
