//! The store of compiled kernels in the user's cache folder, which later processes read instead of compiling.

use std::sync::Once;

use cubecl::config::cache::CacheConfig;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

/// Lets CubeCL store the kernels that it compiles, unless the program has already used CubeCL or configured it. CubeCL
/// reads its configuration once, so this is called before the first device is looked for.
///
/// The store is the file `cubecl/default.db` in the user's cache folder, unless a file `cubecl.toml` names another folder.
/// Several processes may read and write it at the same time. A kernel is stored by the architecture of the device, the
/// version of PTX that the driver supports, and the build of the program.
pub(crate) fn enable() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // CubeCL tells the kernels of two builds apart by the build id only. Without one, a program would load kernels that
        // another build has compiled from other code.
        if buildid::build_id().is_none() {
            return;
        }
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.compilation.cache = true;
        if matches!(config.environment.path, CacheConfig::Target) {
            config.environment.path = CacheConfig::Global;
        }
        CubeClRuntimeConfig::try_set(config);
    });
}
