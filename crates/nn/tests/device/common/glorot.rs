//! A check of initial weights in the range of Glorot and Bengio.

/// Checks the initial parameters of a model with widths 5, 7 and 3: the biases are zero, and the largest magnitude of a
/// weight is 80 % to 100 % of the bound of Glorot and Bengio 2010, equation 16, times the gain.
pub(crate) fn check_initial_range(parameters: &[(String, Vec<f32>)], gain: f32) {
    for (name, all) in parameters {
        let [d_in, d_out]: [f32; 2] = if name.contains(".0.") { [5.0, 7.0] } else { [7.0, 3.0] };
        let bound = gain * (6.0 / (d_in + d_out)).sqrt();
        let largest = all.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        if name.ends_with("bias") {
            assert_eq!(largest, 0.0);
        } else {
            assert!(largest <= bound && 0.8 * bound < largest, "{name}: {largest} of {bound}");
        }
    }
}
