//! `kiln device`.

use std::process::ExitCode;

use kiln::kernels::list_devices;

use crate::output::print_result;

/// Prints each device with its model, memory and driver, and the result of a smoke test. A kind of device that this build
/// or this machine lacks has one line with the reason. Fails if a device exists but does not work.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let mut are_ok = true;
    for device in list_devices() {
        let (status, is_ok) = device.status();
        let memory =
            device.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64));
        let facts =
            [device.model, memory, device.driver].into_iter().flatten().collect::<Vec<_>>().join(", ");
        let colon = if facts.is_empty() { "" } else { ": " };
        print_result(format_args!("{:9} {facts}{colon}{status}", device.name))?;
        are_ok &= is_ok;
    }
    Ok(if are_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
