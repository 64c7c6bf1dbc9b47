//! Tests of the code of the kernels with planes, which is generated without a device.

use std::sync::Arc;

use cubecl::ir::features::{Features, Plane};
use cubecl::ir::pliron::printable::Printable;
use cubecl::ir::prelude::Op;
use cubecl::ir::settings::{Dim3, ExecutionMode, KernelSettings};
use cubecl::ir::{AddressType, DeviceIdentity, DeviceProperties, HardwareProperties, MemoryDeviceProperties};
use cubecl::prelude::*;
use cubecl::profile::TimingMethod;

use super::*;

/// Properties of a device with planes of 32 units.
fn properties() -> Arc<DeviceProperties> {
    let mut features = Features::default();
    features.plane.insert(Plane::Ops);
    let hardware = HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: PLANE,
        plane_size_max: PLANE,
        max_bindings: 8,
        max_shared_memory_size: 32_768,
        max_cube_count: (65_535, 65_535, 65_535),
        max_units_per_cube: UNITS,
        max_cube_dim: (UNITS, 1, 1),
        num_streaming_multiprocessors: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        max_vector_size: 4,
        cube_mma_reserved_shared_memory: 0,
    };
    let memory = MemoryDeviceProperties::new(1 << 30, 256);
    let identity = DeviceIdentity::default();
    Arc::new(DeviceProperties::new(features, memory, hardware, TimingMethod::System, identity))
}

fn settings() -> KernelSettings {
    let dim = Dim3 { x: UNITS, y: 1, z: 1 };
    KernelSettings::new(dim, ExecutionMode::Checked, AddressType::U32)
}

/// The kernels with planes, in their variants for one cube and for several.
fn kernels(syncs: bool) -> [KernelDefinition; 3] {
    let array = || BufferCompilationArg { inplace: None };
    let inputs = || StoredInputsCompilationArg { values: array() };
    let tiles = |is_one: bool| {
        let (sums, out) = (array(), array());
        sums_in_tiles::SumsInTiles::<Stored>::new(
            settings(),
            properties(),
            Arc::default(),
            inputs(),
            sums,
            out,
            (),
            (),
            is_one,
            syncs,
        )
    };
    let (stored, sums) = (array(), array());
    let of_tiles = tile_sums::TileSums::<Stored>::new(
        settings(),
        properties(),
        Arc::default(),
        inputs(),
        stored,
        sums,
        (),
        true,
        syncs,
    );
    [tiles(true).define(), tiles(false).define(), of_tiles.define()]
}

/// Returns a kernel's intermediate representation.
fn text_of(kernel: KernelDefinition) -> String {
    let module = kernel.body.state().module.get_operation();
    let context = kernel.body.into_context().expect("nothing else should use the kernel's code");
    module.disp(&context).to_string()
}

/// Returns the numbers of synchronizations of a cube and of a plane.
fn n_syncs(kernel: KernelDefinition) -> [usize; 2] {
    let text = text_of(kernel);
    ["cube.sync_scope Cube", "cube.sync_scope Plane"].map(|scope| text.matches(scope).count())
}

#[test]
fn only_kernels_for_cuda_synchronize_planes() {
    assert_eq!(kernels(true).map(n_syncs), [[3, 18], [5, 19], [2, 1]]);
    assert_eq!(kernels(false).map(n_syncs), [[3, 0], [5, 0], [2, 0]]);
}

#[test]
fn no_branch_is_between_a_synchronization_and_a_shuffle() {
    for text in kernels(true).map(text_of) {
        let mut n_shuffles = 0;
        let mut are_together = false;
        for line in text.lines() {
            if line.contains("sync.sync") {
                are_together = true;
            } else if line.contains("branch.") || line.trim_start().starts_with('^') {
                are_together = false;
            } else if line.contains("shuffle") {
                assert!(are_together, "{line} in {text}");
                n_shuffles += 1;
            }
        }
        assert_ne!(n_shuffles, 0, "{text}");
    }
}

/// In WGSL, a synchronization of planes is a barrier of the cube. The first plane would wait there for the others.
#[test]
#[cfg(feature = "wgpu")]
fn kernels_in_wgsl_have_the_barriers_of_the_cube_only() {
    use cubecl::Compiler;
    use cubecl::wgpu::WgslCompiler;
    let text_of = |kernel: KernelDefinition| {
        let shader = WgslCompiler.compile(kernel, &Default::default()).expect("the kernel should compile");
        shader.to_string()
    };
    let is_barrier = |line: &&str| line.contains("workgroupBarrier()");
    let n_barriers = |text: &String| text.lines().filter(is_barrier).count();
    let [plain, synced] = [false, true].map(|syncs| kernels(syncs).map(text_of));
    assert_eq!(plain.each_ref().map(n_barriers), [3, 5, 2]);
    assert_eq!(synced.each_ref().map(n_barriers), [3 + 18, 5 + 19, 2 + 1]);
    // The barriers are the only difference, besides the names, which contain a hash of the parameters.
    let code = |line: &str| match line.strip_prefix("fn ").and_then(|head| head.split_once('(')) {
        Some((_, parameters)) => parameters.to_owned(),
        None => line.to_owned(),
    };
    let rest = |text: &String| text.lines().filter(|line| !is_barrier(line)).map(code).collect::<Vec<_>>();
    assert_eq!(plain.each_ref().map(rest), synced.each_ref().map(rest));
}
