use super::*;

#[test]
fn the_precision_of_products_is_printed_for_bf16_only() {
    let line = |chosen, actual| precision_line(chosen, actual).unwrap_or_default();
    assert_eq!(line(MatmulPrecision::F32, MatmulPrecision::F32), "");
    assert_eq!(line(MatmulPrecision::Tf32, MatmulPrecision::Tf32), "");
    assert!(line(MatmulPrecision::Bf16, MatmulPrecision::Bf16).contains("bf16 with sums in f32"));
    assert!(line(MatmulPrecision::Bf16, MatmulPrecision::F32).contains("this processor lacks AVX512-BF16"));
}
