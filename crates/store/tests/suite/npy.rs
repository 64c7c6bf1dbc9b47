//! `.npy` arrays: compatibility with NumPy, round trips, and invalid files.

use kiln_store::npy::{self, Array, Error};

/// Returns the bytes that `numpy.save` (NumPy 1.26) writes for `numpy.array([[1, 2, 3], [4, 5, 6]], dtype="<u2")`.
fn numpys_bytes() -> Vec<u8> {
    let header = "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }";
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend_from_slice(format!("{header:<117}\n").as_bytes());
    bytes.extend_from_slice(&[1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]);
    bytes
}

#[test]
fn writes_and_reads_the_bytes_of_numpy_save() {
    assert_eq!(npy::write(&[1u16, 2, 3, 4, 5, 6], &[2, 3]), numpys_bytes());
    let array = npy::read::<u16>(&numpys_bytes()).expect("the bytes of numpy.save should be readable");
    assert_eq!(array, Array { shape: vec![2, 3], values: vec![1, 2, 3, 4, 5, 6] });
}

#[test]
fn arrays_round_trip() {
    let floats = [0.5f32, -1.0, f32::MIN_POSITIVE];
    for shape in [vec![3], vec![3, 1], vec![1, 3, 1]] {
        let array = npy::read::<f32>(&npy::write(&floats, &shape)).expect("the array should be readable");
        assert_eq!((array.shape, array.values), (shape, floats.to_vec()));
    }
    let wide_nothing = npy::read::<i8>(&npy::write::<i8>(&[], &[usize::MAX, 2, 0]));
    assert_eq!(wide_nothing.expect("an empty array should be readable").shape, [usize::MAX, 2, 0]);
    let none = npy::read::<i8>(&npy::write::<i8>(&[], &[0])).expect("an empty array should be readable");
    assert_eq!((none.shape, none.values), (vec![0], vec![]));
    let one = npy::read::<u32>(&npy::write(&[7u32], &[])).expect("a scalar should be readable");
    assert_eq!((one.shape, one.values), (vec![], vec![7]));
}

/// Returns the bytes of `numpys_bytes`, with `from` in the header replaced by `to`.
fn with(from: &str, to: &str) -> Vec<u8> {
    let bytes = numpys_bytes();
    let header = String::from_utf8_lossy(&bytes[10..128]).into_owned();
    assert!(header.contains(from), "{header}");
    let changed = header.replacen(from, to, 1);
    let mut all = bytes[..8].to_vec();
    all.extend_from_slice(&(changed.len() as u16).to_le_bytes());
    all.extend_from_slice(changed.as_bytes());
    all.extend_from_slice(&bytes[128..]);
    all
}

#[test]
fn errors_state_how_to_fix_the_file() {
    let said = |bytes: &[u8]| npy::read::<u16>(bytes).expect_err("invalid bytes should fail").to_string();
    let cut = said(&numpys_bytes()[..139]);
    assert!(cut.ends_with("expected 12: the file is truncated or damaged: copy or save it again"), "{cut}");
    let other = said(b"PK\x03\x04 a zip file");
    assert!(other.ends_with("truncated or not from numpy.save: copy or save it again"), "{other}");
    let structured = said(&with("'<u2'", "[('a', '<u2')]"));
    assert!(
        structured
            .contains("no valid descr: save an array of plain numbers (not structured) with numpy.save"),
        "{structured}"
    );
}

#[test]
fn rejects_invalid_arrays() {
    let read = |bytes: &[u8]| npy::read::<u16>(bytes).expect_err("invalid bytes should fail");
    assert_eq!(read(b""), Error::NotNpy);
    assert_eq!(read(b"PK\x03\x04 a zip file"), Error::NotNpy);
    assert_eq!(read(b"\x93NUMPY\x09\x00\x10\x00"), Error::NotNpy);
    for length in 0..128 {
        assert_eq!(read(&numpys_bytes()[..length]), Error::NotNpy, "{length} bytes");
    }
    let wrong = |got: &str| Error::WrongType { expected: "<u2".into(), got: got.into() };
    assert_eq!(read(&with("<u2", "<i8")), wrong("<i8"));
    assert_eq!(read(&with("<u2", ">u2")), Error::BigEndian { got: ">u2".into(), little: "<u2".into() });
    assert_eq!(read(&with("<u2", "|O")), Error::Objects);
    let words = Error::WrongType { expected: "a numeric type".into(), got: "<U7".into() };
    assert_eq!(read(&with("<u2", "<U7")), words);
    assert_eq!(read(&with("False", "True")), Error::FortranOrder);
    for (from, to, key) in [
        ("'descr'", "'type'", "descr"),
        ("'<u2'", "[('a', '<u2')]", "descr"),
        ("'fortran_order'", "'order'", "fortran_order"),
        ("False", "maybe", "fortran_order"),
        ("False", "Falsehood", "fortran_order"),
        ("'shape'", "'form'", "shape"),
        ("(2, 3)", "(2, -3)", "shape"),
        ("(2, 3)", "(2, 99999999999999999999999)", "shape"),
        ("(2, 3), }", "(2, 3", "shape"),
        ("(2, 3)", &format!("(2, 3{})", ", 1".repeat(63)), "shape"),
    ] {
        let error = read(&with(from, to));
        assert!(matches!(&error, Error::BadHeader { key: at, .. } if *at == key), "{to}: {error}");
    }
    let cut = read(&numpys_bytes()[..139]);
    assert_eq!(cut, Error::WrongLength { shape: vec![2, 3], expected: 12, got: 11 });
    let nothing = with("(2, 3)", "(4294967296, 4294967296, 0)");
    assert!(npy::read::<u16>(&nothing[..nothing.len() - 12]).is_ok_and(|array| array.values.is_empty()));
    let long = [b"\x93NUMPY\x02\x00".as_slice(), &20_000_u32.to_le_bytes(), &[b' '; 20_000]].concat();
    assert_eq!(read(&long), Error::NotNpy);
    let overflow = read(&with("(2, 3)", "(4294967296, 4294967296, 2)"));
    assert!(matches!(overflow, Error::WrongLength { expected: u64::MAX, .. }), "{overflow}");
}
