//! The depth of the schema in the metadata of a Parquet file, before the library reads it: the library builds the schema by
//! recursion, which a schema of some thousand nested groups in a few kilobytes would make overflow the stack.
//!
//! The metadata is a structure of `parquet.thrift` of Apache Parquet.

use std::io::Read;

use kiln_store::SourceReader;

use super::parquet_thrift::{Kind, Walk};

/// The maximum depth of groups in a schema. A list of structures of lists takes three groups per level.
const MOST_GROUPS: usize = 128;

/// The length of the metadata and the magic bytes, which end a file.
const TAIL_BYTES: u64 = 8;

const MAGIC: &[u8] = b"PAR1";

/// The number of the schema in the metadata, and that of the number of children in an element of the schema.
const SCHEMA: i16 = 2;
const NUM_CHILDREN: i16 = 5;

/// The types of the fields of the metadata, of an element of the schema and of the logical types that have fields, by their
/// numbers (`parquet.thrift`). The library reads a field that it knows as its type, whatever the file says: another one would
/// hide what follows.
const METADATA: &[(i16, Kind)] = &[
    (1, Kind::Integer),
    (2, Kind::List),
    (3, Kind::Integer),
    (4, Kind::List),
    (5, Kind::List),
    (6, Kind::Binary),
    (7, Kind::List),
    (8, Kind::Struct),
    (9, Kind::Binary),
];
const ELEMENT: &[(i16, Kind)] = &[
    (1, Kind::Integer),
    (2, Kind::Integer),
    (3, Kind::Integer),
    (4, Kind::Binary),
    (5, Kind::Integer),
    (6, Kind::Integer),
    (7, Kind::Integer),
    (8, Kind::Integer),
    (9, Kind::Integer),
    (LOGICAL_TYPE, Kind::Struct),
];
const LOGICAL_TYPE: i16 = 10;
const DECIMAL: &[(i16, Kind)] = &[(1, Kind::Integer), (2, Kind::Integer)];
const TIME: &[(i16, Kind)] = &[(1, Kind::Bool), (TIME_UNIT, Kind::Struct)];
const TIME_UNIT: i16 = 2;
const INTEGER: &[(i16, Kind)] = &[(1, Kind::Byte), (2, Kind::Bool)];
const VARIANT: &[(i16, Kind)] = &[(1, Kind::Byte)];
const GEOMETRY: &[(i16, Kind)] = &[(1, Kind::Binary)];
const GEOGRAPHY: &[(i16, Kind)] = &[(1, Kind::Binary), (2, Kind::Integer)];

/// Returns the fields of a logical type by its number.
fn fields_of_logical_type(id: i16) -> &'static [(i16, Kind)] {
    match id {
        5 => DECIMAL,
        7 | 8 => TIME,
        10 => INTEGER,
        16 => VARIANT,
        17 => GEOMETRY,
        18 => GEOGRAPHY,
        _ => &[],
    }
}

/// Checks the depth of the schema of a file. A file that is no Parquet file passes: the library has a message for it.
pub(super) fn check_depth(source: &SourceReader) -> Result<(), String> {
    let damaged = |_| "its metadata cannot be read".to_owned();
    let n_bytes = source.n_bytes();
    let Some(tail_start) = n_bytes.checked_sub(TAIL_BYTES) else { return Ok(()) };
    let mut tail = Vec::new();
    source.from(tail_start).take(TAIL_BYTES).read_to_end(&mut tail).map_err(damaged)?;
    let Some((length, MAGIC)) = tail.split_first_chunk::<4>() else { return Ok(()) };
    let Some(start) = tail_start.checked_sub(u32::from_le_bytes(*length).into()) else { return Ok(()) };
    let mut metadata = Vec::new();
    source.from(start).take(tail_start - start).read_to_end(&mut metadata).map_err(damaged)?;
    match depth_of_schema(&metadata) {
        Some(depth) if depth <= MOST_GROUPS => Ok(()),
        Some(depth) => Err(format!("its schema has {depth} nested groups, expected at most {MOST_GROUPS}")),
        None => Err("its metadata is damaged".to_owned()),
    }
}

/// Returns the largest number of groups within each other; `None` for bytes that are no metadata.
fn depth_of_schema(metadata: &[u8]) -> Option<usize> {
    let mut walk = Walk { bytes: metadata };
    let mut last = 0;
    let mut depth = None;
    while let Some((id, kind)) = walk.known_field(&mut last, METADATA)? {
        // The library builds the first schema and skips others. Lists that state more values than there are bytes end the walk.
        match (id, depth) {
            (SCHEMA, None) => depth = Some(walk.depth_of_elements()?),
            _ => walk.skip(kind, false)?,
        }
    }
    depth
}

impl Walk<'_> {
    /// Returns the depth of the groups of the schema's elements, which are in depth-first order.
    fn depth_of_elements(&mut self) -> Option<usize> {
        let (of, n_elements) = self.list()?;
        // The number of children that are left of each group that contains the next element.
        let mut left: Vec<i32> = Vec::new();
        let mut deepest = 0;
        for _ in 0..n_elements {
            if of != Kind::Struct {
                return None;
            }
            while left.pop_if(|n_left| *n_left == 0).is_some() {}
            if let Some(n_left) = left.last_mut() {
                *n_left -= 1;
            }
            let n_children = self.n_children()?;
            if 0 < n_children {
                left.push(n_children);
                deepest = deepest.max(left.len());
            }
        }
        Some(deepest)
    }

    /// Reads an element of the schema and returns the number of its children.
    fn n_children(&mut self) -> Option<i32> {
        let mut n_children = 0;
        let mut last = 0;
        while let Some((id, kind)) = self.known_field(&mut last, ELEMENT)? {
            match id {
                NUM_CHILDREN => n_children = self.zigzag()? as i32,
                LOGICAL_TYPE => self.logical_type()?,
                _ => self.skip(kind, false)?,
            }
        }
        Some(n_children)
    }

    /// Reads a logical type: a structure with a field, which is a structure.
    fn logical_type(&mut self) -> Option<()> {
        let mut last = 0;
        while let Some((id, kind)) = self.field(&mut last)? {
            if kind != Kind::Struct {
                return None;
            }
            let known = fields_of_logical_type(id);
            let mut last = 0;
            while let Some((id, kind)) = self.known_field(&mut last, known)? {
                match (id, kind) {
                    (TIME_UNIT, Kind::Struct) => self.time_unit()?,
                    _ => self.skip(kind, false)?,
                }
            }
        }
        Some(())
    }

    /// Reads a unit of time: a structure with a field, which is a structure.
    fn time_unit(&mut self) -> Option<()> {
        let mut last = 0;
        while let Some((_, kind)) = self.field(&mut last)? {
            if kind != Kind::Struct {
                return None;
            }
            self.skip(kind, false)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns metadata with groups within each other, and an unknown field of every type before the schema.
    fn metadata(n_groups: usize) -> Vec<u8> {
        let mut bytes = vec![0x15, 2];
        for (kind, value) in [
            (1, &b""[..]),
            (3, b"x"),
            (7, b"12345678"),
            (8, b"\x02ab"),
            // A list of three truth values, a map of two texts to integers, a structure with a list, and a UUID.
            (9, b"\x31\x01\x02\x01"),
            (11, b"\x02\x85\x01a\x02\x01b\x04"),
            (12, b"\x19\x15\x04\x00"),
            (13, b"0123456789abcdef"),
        ] {
            // The number 100, without a difference to the number before.
            bytes.extend([kind, 0xc8, 1]);
            bytes.extend(value);
        }
        bytes.extend([9, 4, 0xfc]);
        let mut length = n_groups as u64 + 1;
        while 0x80 <= length {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        for _ in 0..n_groups {
            bytes.extend([0x48, 1, b'g', 0x15, 2, 0]);
        }
        // A leaf with a type, a name, and a time of milliseconds as its logical type.
        bytes.extend([0x15, 0, 0x38, 1, b'a', 0x6c, 0x7c, 0x11, 0x1c, 0x1c, 0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn depth_is_that_of_the_groups() {
        for n_groups in [0, 1, 5, 200, 100_000] {
            assert_eq!(depth_of_schema(&metadata(n_groups)), Some(n_groups), "{n_groups}");
        }
        // Two groups beside each other within a third one.
        let flat = [0x29, 0x5c, 0x55, 4, 0, 0x55, 2, 0, 0, 0x55, 2, 0, 0, 0];
        assert_eq!(depth_of_schema(&flat), Some(2));
    }

    #[test]
    fn damaged_metadata_is_found_without_recursion() {
        let bytes = metadata(3);
        for end in 0..bytes.len() {
            assert_eq!(depth_of_schema(&bytes[..end]), None, "{end}");
        }
        // Fields whose type is not that by which the library reads them: a schema that is a text, a number of children that is
        // a byte, and a scale that is a text.
        for hidden in
            [&[0x28, 1, b'x', 0][..], &[0x29, 0x1c, 0x53, 1, 0, 0], &[0x29, 0x1c, 0xac, 0x5c, 0x18, 1]]
        {
            assert_eq!(depth_of_schema(hidden), None, "{hidden:?}");
        }
        // The first schema counts; numbers of fields and of children are those of 16 and 32 bits.
        let twice = [&[0x29, 0x1c, 0x55, 2, 0][..], &[0x09, 4, 0x1c, 0, 0]].concat();
        assert_eq!(depth_of_schema(&twice), Some(1));
        let wide = [0x29, 0x1c, 0x05, 0x8a, 0x80, 0x08, 0x81, 0x80, 0x80, 0x80, 0x20, 0];
        assert_eq!(
            depth_of_schema(&wide),
            depth_of_schema(&[0x29, 0x1c, 0x55, 0x81, 0x80, 0x80, 0x80, 0x20, 0])
        );
        // Structures within each other, in a field that is skipped.
        assert_eq!(depth_of_schema(&vec![0x1c; 1 << 20]), None);
        // A list of 2^63 values in ten bytes.
        let mut endless = vec![0x19, 0xf5];
        endless.extend([0xff; 9]);
        endless.push(1);
        assert_eq!(depth_of_schema(&endless), None);
    }
}
