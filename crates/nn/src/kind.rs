//! Names of kinds of models that contain another model, computed at compile time.

/// The upper bound on the length of a name, in bytes.
const MAX_LEN: usize = 256;

/// The name of a kind of models: a prefix, and the name of the kind of the model within.
pub(crate) struct KindName {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl KindName {
    /// Joins the prefix and the name. A name that is too long does not compile.
    pub(crate) const fn new(prefix: &str, inner: &str) -> Self {
        let mut bytes = [0; MAX_LEN];
        let mut len = 0;
        while len < prefix.len() + inner.len() {
            let is_prefix = len < prefix.len();
            bytes[len] =
                if is_prefix { prefix.as_bytes()[len] } else { inner.as_bytes()[len - prefix.len()] };
            len += 1;
        }
        Self { bytes, len }
    }

    pub(crate) const fn as_str(&self) -> &str {
        match str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(name) => name,
            Err(_) => unreachable!(),
        }
    }
}
