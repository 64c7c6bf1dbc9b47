//! The CUDA driver and toolkit of this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cudarc::driver::{result, sys};

use crate::device::error::DeviceError;

/// The path of libdevice in a CUDA toolkit. CubeCL links this library into kernels that compute exponentials or
/// logarithms.
const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";

/// The folders in which CubeCL looks for a toolkit if `CUDA_PATH` is not set.
const TOOLKITS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

/// Checks that the part of the CUDA toolkit that kernels need is installed.
///
/// # Errors
/// Returns [`DeviceError::NoLibdevice`] if it is missing.
pub(crate) fn check_toolkit(name: &str) -> Result<(), DeviceError> {
    // The only environment variable that the crate reads, because CubeCL will read it.
    find_libdevice(std::env::var_os("CUDA_PATH"), &TOOLKITS.map(Path::new)).map_err(|looked_in| {
        DeviceError::NoLibdevice {
            name: name.to_owned(),
            looked_in: looked_in.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
        }
    })
}

/// Looks for libdevice as CubeCL does: in `CUDA_PATH`, or else in the first toolkit with a folder for it. Returns the
/// folders in which it was looked for if it was not found.
fn find_libdevice(cuda_path: Option<OsString>, toolkits: &[&Path]) -> Result<(), Vec<PathBuf>> {
    let folders = match (
        cuda_path,
        toolkits.iter().find(|toolkit: &&&Path| toolkit.join(LIBDEVICE).parent().is_some_and(Path::is_dir)),
    ) {
        (Some(folder), _) => vec![PathBuf::from(folder)],
        (None, Some(folder)) => vec![folder.to_path_buf()],
        (None, None) => toolkits.iter().map(|folder| folder.to_path_buf()).collect(),
    };
    let is_found = folders.iter().any(|folder| folder.join(LIBDEVICE).is_file());
    if is_found { Ok(()) } else { Err(folders) }
}

/// The name and the memory of a CUDA device.
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) memory_bytes: u64,
}

/// Returns the name and the memory of the device with this index, or `None` if the driver does not report them.
pub(crate) fn model(index: usize) -> Option<Model> {
    result::init().ok()?;
    // No context is created, because that fails on a GPU without free memory.
    let device = result::device::get(i32::try_from(index).ok()?).ok()?;
    // SAFETY: `device` comes from `cuDeviceGet`.
    let memory_bytes = unsafe { result::device::total_mem(device) }.ok()? as u64;
    Some(Model { name: result::device::get_name(device).ok()?, memory_bytes })
}

/// Returns the version of CUDA that the driver supports, such as `CUDA 13.0`, or `None` without a driver.
pub(crate) fn driver_version() -> Option<String> {
    // SAFETY: the function only tries to open the library.
    if !unsafe { sys::is_culib_present() } {
        return None;
    }
    let mut version = 0;
    // SAFETY: the pointer is valid for the call.
    let result = unsafe { sys::cuDriverGetVersion(&mut version) };
    (result == sys::CUresult::CUDA_SUCCESS)
        .then(|| format!("CUDA {}.{}", version / 1000, version % 1000 / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libdevice_is_found_in_cuda_path_or_else_in_the_toolkits() {
        let folder = tempfile::tempdir().expect("a folder should be created");
        let with = folder.path().join("with");
        let without = folder.path().join("without");
        std::fs::create_dir_all(with.join(LIBDEVICE).parent().expect("the path has a parent"))
            .expect("create");
        std::fs::write(with.join(LIBDEVICE), "BC").expect("write");
        assert_eq!(find_libdevice(None, &[&without, &with]), Ok(()));
        assert_eq!(find_libdevice(None, &[&without]), Err(vec![without.clone()]));
        // CubeCL takes the first toolkit that has the folder, also if the folder is empty.
        let empty = folder.path().join("empty");
        std::fs::create_dir_all(empty.join(LIBDEVICE).parent().expect("the path has a parent"))
            .expect("create");
        assert_eq!(find_libdevice(None, &[&without, &empty, &with]), Err(vec![empty]));
        assert_eq!(find_libdevice(Some(with.clone().into()), &[]), Ok(()));
        // CubeCL does not look elsewhere if CUDA_PATH is set.
        assert_eq!(find_libdevice(Some(without.clone().into()), &[&with]), Err(vec![without]));
    }
}
