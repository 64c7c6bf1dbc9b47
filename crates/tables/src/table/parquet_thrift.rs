//! The compact protocol of Thrift (`thrift-compact-protocol.md` of Apache Thrift), in which Parquet writes its metadata. It is walked
//! without recursion.

/// The maximum depth of values within each other.
const MOST_NESTED: usize = 64;

/// The types of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Byte,
    Integer,
    Double,
    Binary,
    List,
    Map,
    Struct,
    Uuid,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 | 2 => Self::Bool,
            3 => Self::Byte,
            4..=6 => Self::Integer,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            11 => Self::Map,
            12 => Self::Struct,
            13 => Self::Uuid,
            _ => return None,
        })
    }
}

/// A value that contains others, of which some are left.
#[derive(Debug, Clone, Copy)]
enum Open {
    Struct,
    List {
        of: Kind,
        n_left: u64,
    },
    /// Keys and values are counted one by one.
    Map {
        of: [Kind; 2],
        n_left: u64,
    },
}

/// The bytes that are left.
pub(super) struct Walk<'a> {
    pub(super) bytes: &'a [u8],
}

impl Walk<'_> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*byte)
    }

    fn advance(&mut self, n_bytes: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(n_bytes).ok()?..)?;
        Some(())
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Returns the number and the type of the next field of a structure; the inner `None` at its end. `last` is the number of the
    /// field before. Numbers have 16 bits.
    pub(super) fn field(&mut self, last: &mut i16) -> Option<Option<(i16, Kind)>> {
        let header = self.byte()?;
        if header & 15 == 0 {
            return Some(None);
        }
        *last = match header >> 4 {
            0 => self.zigzag()? as i16,
            delta => last.checked_add(delta.into())?,
        };
        Some(Some((*last, Kind::of(header & 15)?)))
    }

    /// Returns the next field as [`Walk::field`] does, if it has its type, which `known` lists.
    pub(super) fn known_field(
        &mut self,
        last: &mut i16,
        known: &[(i16, Kind)],
    ) -> Option<Option<(i16, Kind)>> {
        let field = self.field(last)?;
        let Some((id, kind)) = field else { return Some(None) };
        match known.iter().find(|(known, _)| *known == id) {
            Some((_, expected)) if *expected != kind => None,
            _ => Some(field),
        }
    }

    /// Returns the type and the number of the values of a list.
    pub(super) fn list(&mut self) -> Option<(Kind, u64)> {
        let header = self.byte()?;
        let n_values = match header >> 4 {
            15 => self.varint()?,
            n_values => n_values.into(),
        };
        // A list of no values may have no type.
        let of = if n_values == 0 { Kind::Bool } else { Kind::of(header & 15)? };
        Some((of, n_values))
    }

    /// Reads a value. A truth value is a byte in a list, and a part of the header in a structure.
    pub(super) fn skip(&mut self, kind: Kind, is_in_list: bool) -> Option<()> {
        let mut open = Vec::new();
        self.enter(kind, is_in_list, &mut open)?;
        while let Some(last) = open.last_mut() {
            let next = match last {
                Open::Struct => self.field(&mut 0)?.map(|(_, kind)| (kind, false)),
                Open::List { n_left: 0, .. } | Open::Map { n_left: 0, .. } => None,
                Open::List { of, n_left } => {
                    *n_left -= 1;
                    Some((*of, true))
                }
                Open::Map { of: [key, value], n_left } => {
                    let kind = if n_left.is_multiple_of(2) { *key } else { *value };
                    *n_left -= 1;
                    Some((kind, true))
                }
            };
            match next {
                Some((kind, is_in_list)) => self.enter(kind, is_in_list, &mut open)?,
                None => drop(open.pop()),
            }
            if MOST_NESTED < open.len() {
                return None;
            }
        }
        Some(())
    }

    /// Reads a value that contains no others, or begins one that does.
    fn enter(&mut self, kind: Kind, is_in_list: bool, open: &mut Vec<Open>) -> Option<()> {
        match kind {
            Kind::Bool => self.advance(is_in_list.into()),
            Kind::Byte => self.advance(1),
            Kind::Integer => self.varint().map(drop),
            Kind::Double => self.advance(8),
            Kind::Uuid => self.advance(16),
            Kind::Binary => {
                let n_bytes = self.varint()?;
                self.advance(n_bytes)
            }
            Kind::Struct => {
                open.push(Open::Struct);
                Some(())
            }
            Kind::List => {
                let (of, n_left) = self.list()?;
                open.push(Open::List { of, n_left });
                Some(())
            }
            Kind::Map => {
                let n_left = self.varint()?;
                let kinds = if n_left == 0 { 0x11 } else { self.byte()? };
                let of = [Kind::of(kinds >> 4)?, Kind::of(kinds & 15)?];
                open.push(Open::Map { of, n_left: n_left.checked_mul(2)? });
                Some(())
            }
        }
    }
}
