//! Running (exclusive prefix) sums of counts: the offsets of many lists that are stored one after the other.
//!
//! ```text
//! out[i] = values[0] + ... + values[i - 1]    for i in 0..=n
//! ```
//!
//! * *Contract.* `out` has one entry more than there are values and is overwritten. Sums saturate at `u32::MAX`, so that
//!   an overflow cannot be mistaken for a small sum. The values are an array, or the kernels compute each where they
//!   read it ([`Values`]), which saves a launch.
//! * *Work distribution.* On devices with planes of 32 units, one cube of [`UNITS`] units sums a tile of [`TILE`]
//!   values. Up to [`MOST_OF_ONE_CUBE`] values, one cube processes all tiles, in one launch. Otherwise, the first launch
//!   computes the sum of each tile; in the second, each cube adds up the sums of the tiles before its own and computes
//!   the running sums of its tile. Within a tile, a plane sums 32 adjacent values by shuffles, and one plane sums the
//!   results of all planes. On CUDA, the units of a plane may stay apart after a branch that only some of them take, so
//!   they are synchronized before each shuffle.
//! * Other devices run kernels without planes, shared memory and barriers: one unit adds a chunk of [`CHUNK`] values,
//!   the sums of the chunks are summed recursively, and one unit per chunk writes the running sums within it. CubeCL's
//!   CPU runtime is such a device; each barrier costs it microseconds.
//! * *Cost.* 12 bytes per value, and the reads that compute it, in one or two launches; without planes, in two launches for each of
//!   `log(n) / log(CHUNK)` levels, except one for the last.

mod planes;
#[cfg(test)]
mod tests;

use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::features::Plane;
use cubecl::prelude::*;
use cubecl::{Device, calculate_cube_count_elemwise};

use self::planes::{PLANE, UNITS, capped_sum, cube_sum, plane_sum_before, plane_sum_up_to};
use crate::cube::launch::{self, launch_kernel, launch_units};

/// The number of values of a tile that one unit reads.
const ROWS: u32 = 8;

/// The number of values that a cube sums at once.
const TILE: u32 = UNITS * ROWS;

/// The number of groups of 32 adjacent values in a tile.
const GROUPS: u32 = TILE / PLANE;

/// The largest number of values that one cube sums in one launch. More values are distributed over many cubes, because
/// a cube takes about a microsecond per two tiles, and a launch a few.
const MOST_OF_ONE_CUBE: usize = 8 * TILE as usize;

/// The largest number of values: the first value of a tile behind the last one must be a u32, too.
const MOST_VALUES: usize = 1 << 31;

/// The number of values that one unit adds on devices without planes.
const CHUNK: u32 = 64;

/// The source of the values that are summed.
#[cube]
pub(super) trait Values: Send + Sync + 'static {
    /// The arrays and numbers from which a value is computed.
    type Inputs: LaunchArg;

    /// Computes the value at a position.
    fn value(inputs: &Self::Inputs, position: usize) -> u32;
}

/// The inputs of [`Values`] as a parameter of kernels.
type Inputs<V> = <V as Values>::Inputs;

/// The inputs of [`Values`] as an argument of launches.
pub(super) type InputsArg<V> = <Inputs<V> as LaunchArg>::RuntimeArg;

/// Values that are stored in an array.
pub(super) struct Stored;

#[derive(CubeType, CubeLaunch)]
pub(super) struct StoredInputs {
    values: Box<[u32]>,
}

#[cube]
impl Values for Stored {
    type Inputs = StoredInputs;

    fn value(inputs: &StoredInputs, position: usize) -> u32 {
        inputs.values[position]
    }
}

/// Computes the sum of each tile. If `stores` is true, also writes the values to `stored`. `syncs` is
/// [`needs_plane_syncs`].
#[cube(launch, address_type = "dynamic")]
fn tile_sums<V: Values>(
    inputs: &Inputs<V>,
    stored: &mut [u32],
    sums: &mut [u32],
    n_values: u32,
    #[comptime] stores: bool,
    #[comptime] syncs: bool,
) {
    let tile = CUBE_POS;
    if tile >= sums.len() {
        terminate!();
    }
    let first = tile as u32 * TILE + UNIT_POS;
    let mut sum = 0u32;
    for row in 0..ROWS {
        let position = (first + row * UNITS) as usize;
        if position < n_values as usize {
            let value = V::value(inputs, position);
            sum = capped_sum(sum, value);
            if comptime!(stores) {
                stored[position] = value;
            }
        }
    }
    let mut of_planes = Shared::<[u32]>::new_slice(comptime!((UNITS / PLANE) as usize));
    let sum = cube_sum(sum, &mut of_planes, syncs);
    if UNIT_POS == 0 {
        sums[tile] = sum;
    }
}

/// Computes the running sums of `n_tiles` tiles per cube. `tile_sums` is read only if `is_one` is false, and then a cube
/// has one tile. `syncs` is [`needs_plane_syncs`].
#[cube(launch, address_type = "dynamic")]
fn sums_in_tiles<V: Values>(
    inputs: &Inputs<V>,
    tile_sums: &[u32],
    out: &mut [u32],
    n_values: u32,
    n_tiles: u32,
    #[comptime] is_one: bool,
    #[comptime] syncs: bool,
) {
    let first_tile = CUBE_POS as u32 * n_tiles;
    if first_tile * TILE >= n_values {
        terminate!();
    }
    let mut before_groups = Shared::<[u32]>::new_slice(comptime!(GROUPS as usize));
    let mut total = Shared::<[u32]>::new_slice(1usize);
    let mut before_tile = 0u32;
    if comptime!(!is_one) {
        let mut sum = 0u32;
        let mut tile = UNIT_POS;
        while tile < first_tile {
            sum = capped_sum(sum, tile_sums[tile as usize]);
            tile += UNITS;
        }
        before_tile = cube_sum(sum, &mut before_groups, syncs);
    }
    let plane = UNIT_POS / PLANE;
    for tile in first_tile..first_tile + n_tiles {
        let first = tile * TILE + UNIT_POS;
        // The values of the unit, then the sums up to them, then those before them. All are read before the first shuffle,
        // and written after the last, because planes are synchronized after branches.
        let mut sums = Array::<u32>::new(comptime!(ROWS as usize));
        #[unroll]
        for row in 0..ROWS {
            let position = first + row * UNITS;
            let mut value = 0u32;
            if position < n_values {
                value = V::value(inputs, position as usize);
            }
            sums[row as usize] = value;
        }
        #[unroll]
        for row in 0..ROWS {
            sums[row as usize] = plane_sum_up_to(sums[row as usize], syncs);
        }
        if UNIT_POS_PLANE == PLANE - 1 {
            #[unroll]
            for row in 0..ROWS {
                before_groups[(row * (UNITS / PLANE) + plane) as usize] = sums[row as usize];
            }
        }
        sync_cube();
        // The first plane replaces the sums of the groups by their running sums: two adjacent groups per unit.
        if plane == 0 {
            let group = 2 * UNIT_POS as usize;
            let one = before_groups[group];
            let both = plane_sum_up_to(capped_sum(one, before_groups[group + 1]), syncs);
            let before = plane_sum_before(both, syncs);
            before_groups[group] = before;
            before_groups[group + 1] = capped_sum(before, one);
            if UNIT_POS == PLANE - 1 {
                total[0] = both;
            }
        }
        sync_cube();
        #[unroll]
        for row in 0..ROWS {
            let before_unit = plane_sum_before(sums[row as usize], syncs);
            let before_group = before_groups[(row * (UNITS / PLANE) + plane) as usize];
            sums[row as usize] = capped_sum(before_tile, capped_sum(before_group, before_unit));
        }
        #[unroll]
        for row in 0..ROWS {
            let position = first + row * UNITS;
            if position < n_values {
                out[position as usize] = sums[row as usize];
            }
        }
        before_tile = capped_sum(before_tile, total[0]);
        if UNIT_POS == 0 && n_values <= (tile + 1) * TILE {
            out[n_values as usize] = before_tile;
        }
        sync_cube();
    }
}

/// Computes the sum of each chunk.
#[cube(launch, address_type = "dynamic")]
fn chunk_sums(values: &[u32], sums: &mut [u32]) {
    let chunk = ABSOLUTE_POS;
    if chunk >= sums.len() {
        terminate!();
    }
    let start = chunk as u32 * CHUNK;
    let end = min(start + CHUNK, values.len() as u32);
    let mut sum = 0u32;
    for position in start..end {
        sum = capped_sum(sum, values[position as usize]);
    }
    sums[chunk] = sum;
}

/// Computes the running sums within each chunk. They start at the chunk's entry of `before_chunk`, or at 0 if
/// `is_one` is true because there is only one chunk.
#[cube(launch, address_type = "dynamic")]
fn sums_in_chunks(values: &[u32], before_chunk: &[u32], out: &mut [u32], #[comptime] is_one: bool) {
    let n_values = values.len() as u32;
    let start = ABSOLUTE_POS as u32 * CHUNK;
    if start >= n_values {
        terminate!();
    }
    let end = min(start + CHUNK, n_values);
    let mut sum = 0u32;
    if comptime!(!is_one) {
        sum = before_chunk[ABSOLUTE_POS];
    }
    for position in start..end {
        out[position as usize] = sum;
        sum = capped_sum(sum, values[position as usize]);
    }
    if end == n_values {
        out[n_values as usize] = sum;
    }
}

/// Writes the values to an array.
#[cube(launch, address_type = "dynamic")]
fn store_values<V: Values>(inputs: &Inputs<V>, stored: &mut [u32]) {
    if ABSOLUTE_POS < stored.len() {
        stored[ABSOLUTE_POS] = V::value(inputs, ABSOLUTE_POS);
    }
}

/// `[n] -> [n + 1]`: for each position, the sum of the values before it; the last entry is the sum of all values.
pub(super) fn running_sums(values: &CubeTensor) -> CubeTensor {
    let n_values = launch::length(values);
    if 0 < n_values && !has_planes(values) {
        return without_planes(values);
    }
    let inputs = || StoredInputsLaunch::new(launch::buffer(values));
    sums_with_planes::<Stored>(values, n_values, Some(values), inputs)
}

/// Same as [`running_sums`], for `n_values` values that kernels compute on the device of `like`.
pub(super) fn running_sums_of<V: Values>(
    like: &CubeTensor,
    n_values: usize,
    inputs: impl Fn() -> InputsArg<V>,
) -> CubeTensor {
    if 0 < n_values && !has_planes(like) {
        let stored = launch::new_array(like, n_values);
        let cubes = launch::units(like, n_values);
        launch_kernel!(store_values[V], like, n_values, cubes, inputs(), launch::buffer(&stored));
        return without_planes(&stored);
    }
    sums_with_planes::<V>(like, n_values, None, inputs)
}

/// Returns true if the device has planes of [`PLANE`] units.
fn has_planes(like: &CubeTensor) -> bool {
    let properties = like.client.properties();
    let sizes = [properties.hardware.plane_size_min, properties.hardware.plane_size_max];
    properties.features.plane.contains(Plane::Ops) && sizes == [PLANE; 2]
}

/// Returns true if the units of a plane must be synchronized before shuffles, as on CUDA. WGSL brings them together at the
/// end of a branch. It has no barrier of a plane: there, `sync_plane` is a barrier of the whole cube, which not all units
/// of a cube reach.
fn needs_plane_syncs(like: &CubeTensor) -> bool {
    matches!(like.device, Device::Cuda(_))
}

/// Returns the running sums of values of the host, for tests.
pub(crate) fn sums_of(anchor: &CubeTensor, values: &[u32]) -> Vec<u32> {
    launch::read([&running_sums(&launch::upload(anchor, values))]).concat()
}

/// `stored` is the array of the values, if they are stored.
fn sums_with_planes<V: Values>(
    like: &CubeTensor,
    n_values: usize,
    stored: Option<&CubeTensor>,
    inputs: impl Fn() -> InputsArg<V>,
) -> CubeTensor {
    if n_values == 0 {
        return launch::upload(like, &[0]);
    }
    assert!(n_values <= MOST_VALUES, "{n_values} values, at most {MOST_VALUES} can be summed");
    let out = launch::new_array(like, n_values + 1);
    let n_tiles = n_values.div_ceil(TILE as usize);
    let n = n_values as u32;
    let syncs = needs_plane_syncs(like);
    // An argument that a kernel does not use must be an array of its own, because WGPU rejects an array that is bound
    // twice.
    let unused = launch::new_array(like, 1);
    if n_values <= MOST_OF_ONE_CUBE {
        launch_kernel!(
            sums_in_tiles[V],
            like,
            n_values,
            cubes(like, 1),
            inputs(),
            launch::buffer(&unused),
            launch::buffer(&out),
            n,
            n_tiles as u32,
            true,
            syncs
        );
    } else {
        let sums = launch::new_array(like, n_tiles);
        let (array, stores) = match stored {
            Some(array) => (array.clone(), false),
            None => (launch::new_array(like, n_values), true),
        };
        launch_kernel!(
            tile_sums[V],
            like,
            n_values,
            cubes(like, n_tiles),
            inputs(),
            launch::buffer(if stores { &array } else { &unused }),
            launch::buffer(&sums),
            n,
            stores,
            syncs
        );
        launch_kernel!(
            sums_in_tiles[Stored],
            like,
            n_values,
            cubes(like, n_tiles),
            StoredInputsLaunch::new(launch::buffer(&array)),
            launch::buffer(&sums),
            launch::buffer(&out),
            n,
            1,
            false,
            syncs
        );
    }
    out
}

/// The number and the size of the cubes that run at least `n_cubes` cubes of [`UNITS`] units.
fn cubes(like: &CubeTensor, n_cubes: usize) -> (CubeCount, CubeDim) {
    let dim = CubeDim::new_1d(UNITS);
    (calculate_cube_count_elemwise(&like.client, n_cubes * UNITS as usize, dim), dim)
}

fn without_planes(values: &CubeTensor) -> CubeTensor {
    let n_values = launch::length(values);
    let n_chunks = n_values.div_ceil(CHUNK as usize);
    let is_one = n_chunks == 1;
    let before_chunk = if is_one {
        values.clone()
    } else {
        let sums = launch::new_array(values, n_chunks);
        launch_units!(chunk_sums, values, n_chunks, launch::buffer(values), launch::buffer(&sums));
        without_planes(&sums)
    };
    let out = launch::new_array(values, n_values + 1);
    let [values_arg, before_arg, out_arg] = [values, &before_chunk, &out].map(launch::buffer);
    launch_units!(sums_in_chunks, values, n_chunks, values_arg, before_arg, out_arg, is_one);
    out
}
