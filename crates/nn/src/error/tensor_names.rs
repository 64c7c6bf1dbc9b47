use std::fmt;

/// A list of tensor names; a message shows the first six.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorNames(pub Vec<String>);

impl TensorNames {
    pub(crate) fn of(names: &[&str]) -> Self {
        Self(names.iter().map(|name| name.to_string()).collect())
    }
}

impl fmt::Display for TensorNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        let shown: Vec<String> = self.0.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
        match (shown.len(), self.0.len()) {
            (0, _) => write!(f, "no tensors"),
            (shown_len, all) if shown_len < all => {
                write!(f, "{} and {} more", shown.join(", "), all - shown_len)
            }
            _ => write!(f, "{}", shown.join(", ")),
        }
    }
}
