//! Assignment of the tensors of a file to layers and parameters by their names.

use std::collections::BTreeMap;

use super::format::WeightFormat;
use crate::error::TensorNames;
use crate::{Error, Result, WeightsError};

/// A parameter of a layer in a library's files.
#[derive(Debug)]
pub struct Slot {
    /// The suffixes of the tensor's name: that of the library's current version, then those of earlier versions. Empty
    /// if the library's layer does not have the parameter.
    pub(super) names: &'static [&'static str],
    /// True if the file has the transpose of the parameter, which is a matrix.
    pub(super) transposed: bool,
    /// The values if the file does not have the tensor; `None` if it must.
    pub(super) default: Option<DefaultValues>,
}

/// The values of a parameter without a tensor.
#[derive(Debug, Clone, Copy)]
pub(super) enum DefaultValues {
    /// Zeros.
    Zeros,
    /// The identity matrix. A matrix that is not square has no default.
    Identity,
    /// The values of the model.
    Own,
}

impl Slot {
    /// A weight that is stored in the shape of the parameter.
    pub(super) const fn weight(names: &'static [&'static str]) -> Self {
        Self { names, transposed: false, default: None }
    }

    /// A weight matrix `[d_in, d_out]` that is stored as `[d_out, d_in]`.
    pub(super) const fn transposed(names: &'static [&'static str]) -> Self {
        Self { transposed: true, ..Self::weight(names) }
    }

    /// A bias, which may be missing.
    pub(super) const fn bias(names: &'static [&'static str]) -> Self {
        Self::optional(names, DefaultValues::Zeros)
    }

    /// A parameter that may be missing.
    pub(super) const fn optional(names: &'static [&'static str], default: DefaultValues) -> Self {
        Self { default: Some(default), ..Self::weight(names) }
    }

    /// Returns the shape in the file of a parameter of this shape.
    pub(super) fn shape(&self, shape: &[usize]) -> Vec<usize> {
        if self.transposed { shape.iter().rev().copied().collect() } else { shape.to_vec() }
    }

    /// Returns the values of a parameter of this shape without a tensor, or `None` if it must have one. `own` returns the
    /// values of the model.
    pub(super) fn default_values(&self, shape: &[usize], own: impl FnOnce() -> Vec<f32>) -> Option<Vec<f32>> {
        let zeros = || vec![0.0; shape.iter().product()];
        match self.default? {
            DefaultValues::Zeros => Some(zeros()),
            DefaultValues::Identity if shape[0] != shape[1] => None,
            DefaultValues::Identity => {
                let mut values = zeros();
                values.iter_mut().step_by(shape[1] + 1).for_each(|value| *value = 1.0);
                Some(values)
            }
            DefaultValues::Own => Some(own()),
        }
    }
}

/// The tensors of a layer in a file.
#[derive(Debug)]
pub(super) struct LayerNames<'n> {
    /// The part of the names before the suffixes.
    pub(super) prefix: &'n str,
    /// The tensor name of each slot; `None` if the file does not have it.
    pub(super) tensors: Vec<Option<&'n str>>,
}

/// Returns the library whose names the file's weights have. Tensors that may be missing, such as biases, do not count.
///
/// If a name ends in suffixes of both libraries, the longer suffix decides: `convs.0.lin.weight` is the weight of the
/// layer `convs.0`, not of a layer `convs.0.lin`.
pub(super) fn find_naming(
    names: &[&str],
    slots: impl Fn(WeightFormat) -> &'static [Slot],
) -> Result<WeightFormat> {
    let weight_ends = |naming| {
        let weights = slots(naming).iter().filter(|slot| slot.default.is_none());
        weights.flat_map(|slot| slot.names.iter().copied())
    };
    let longest = |name: &str, naming| {
        weight_ends(naming).filter(|end| prefix_of(name, end).is_some()).map(str::len).max()
    };
    let find = |is: fn(Option<usize>, Option<usize>) -> bool| {
        names.iter().find(|name| is(longest(name, WeightFormat::Pyg), longest(name, WeightFormat::Dgl)))
    };
    match (find(|pyg, dgl| dgl < pyg), find(|pyg, dgl| pyg < dgl)) {
        (Some(_), None) => Ok(WeightFormat::Pyg),
        (None, Some(_)) => Ok(WeightFormat::Dgl),
        (Some(pyg), Some(dgl)) => {
            Err(Error::Weights(WeightsError::MixedNames { pyg: pyg.to_string(), dgl: dgl.to_string() }))
        }
        (None, None) => Err(Error::Weights(WeightsError::UnknownNames {
            expected: TensorNames(
                weight_ends(WeightFormat::Pyg)
                    .chain(weight_ends(WeightFormat::Dgl))
                    .map(str::to_owned)
                    .collect(),
            ),
            got: TensorNames::of(names),
        })),
    }
}

/// Returns the names of the tensors of each layer, input layer first. Two names for one parameter are an error, unless
/// `equal` returns true for their tensors.
pub(super) fn find_layers<'n>(
    names: &[&'n str],
    slots: &[Slot],
    n_layers: usize,
    equal: impl Fn(&str, &str) -> bool,
) -> Result<Vec<LayerNames<'n>>> {
    let mut layers: BTreeMap<&str, Vec<Option<&str>>> = BTreeMap::new();
    let mut surplus = Vec::new();
    for name in names {
        let Some((slot, prefix)) = place(name, slots) else {
            surplus.push(*name);
            continue;
        };
        let tensor = &mut layers.entry(prefix).or_insert_with(|| vec![None; slots.len()])[slot];
        if let Some(one) = tensor.replace(name).filter(|one| !equal(one, name)) {
            return Err(Error::Weights(WeightsError::AmbiguousTensors {
                one: one.to_owned(),
                other: name.to_string(),
            }));
        }
    }
    if layers.len() != n_layers {
        // A prefix with only a bias is not a layer of the model, but for example a norm.
        let is_layer = |tensors: &[Option<&str>]| {
            tensors.iter().zip(slots).any(|(tensor, slot)| tensor.is_some() && slot.default.is_none())
        };
        surplus.extend(layers.values().filter(|tensors| !is_layer(tensors)).flatten().flatten());
    }
    if !surplus.is_empty() {
        return Err(Error::Weights(WeightsError::SurplusTensors { names: TensorNames::of(&surplus) }));
    }
    let mut layers: Vec<(&str, Vec<Option<&str>>)> = layers.into_iter().collect();
    if layers.len() != n_layers {
        let prefixes: Vec<&str> = layers.iter().map(|(prefix, _)| *prefix).collect();
        return Err(Error::Weights(WeightsError::LayerCount {
            expected: n_layers,
            got: layers.len(),
            layers: TensorNames::of(&prefixes),
        }));
    }
    order(&mut layers)?;
    Ok(layers.into_iter().map(|(prefix, tensors)| LayerNames { prefix, tensors }).collect())
}

/// Returns the slot with the longest suffix of the name, and the prefix before it.
fn place<'n>(name: &'n str, slots: &[Slot]) -> Option<(usize, &'n str)> {
    let ends = slots.iter().enumerate().flat_map(|(idx, slot)| slot.names.iter().map(move |end| (idx, end)));
    let places = ends.filter_map(|(idx, end)| Some((idx, prefix_of(name, end)?)));
    places.min_by_key(|(_, prefix)| prefix.len())
}

/// Returns the prefix of a name before the suffix `end`, if it is empty or ends in a dot.
fn prefix_of<'n>(name: &'n str, end: &str) -> Option<&'n str> {
    name.strip_suffix(end).filter(|prefix| prefix.is_empty() || prefix.ends_with('.'))
}

/// Sorts layers by the numbers in their prefixes. Returns an error if two prefixes differ in more than their numbers,
/// or if their numbers are equal.
fn order<T>(layers: &mut [(&str, T)]) -> Result<()> {
    layers.sort_by(|(one, _), (other, _)| numbers(one).cmp(&numbers(other)));
    for pair in layers.windows(2) {
        let one = pair[0].0;
        let other = pair[1].0;
        if without_numbers(one) != without_numbers(other) || numbers(one) == numbers(other) {
            return Err(Error::Weights(WeightsError::LayerOrder {
                one: one.to_owned(),
                other: other.to_owned(),
            }));
        }
    }
    Ok(())
}

/// Returns the numbers in a text in a form that compares numerically: the number of digits without leading zeros, then
/// these digits.
fn numbers(text: &str) -> Vec<(usize, &str)> {
    let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    let without_zeros = runs.map(|run| run.trim_start_matches('0'));
    without_zeros.map(|digits| (digits.len(), digits)).collect()
}

/// Returns the text with each number replaced by one `0`.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('0') => {}
            '0'..='9' => out.push('0'),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered<'n>(prefixes: &[&'n str]) -> Result<Vec<&'n str>> {
        let mut layers: Vec<(&str, ())> = prefixes.iter().map(|prefix| (*prefix, ())).collect();
        order(&mut layers)?;
        Ok(layers.into_iter().map(|(prefix, _)| prefix).collect())
    }

    #[test]
    fn layers_are_ordered_by_their_numbers() {
        let cases = [
            (vec!["convs.10.", "convs.2.", "convs.0."], vec!["convs.0.", "convs.2.", "convs.10."]),
            (vec!["conv3.", "conv1."], vec!["conv1.", "conv3."]),
            (vec!["b.1.c.0.", "b.0.c.12.", "b.0.c.3."], vec!["b.0.c.3.", "b.0.c.12.", "b.1.c.0."]),
            (
                vec!["m99999999999999999999.", "m100000000000000000000."],
                vec!["m99999999999999999999.", "m100000000000000000000."],
            ),
        ];
        for (prefixes, expected) in cases {
            assert_eq!(ordered(&prefixes).ok(), Some(expected));
        }
    }

    #[test]
    fn rejects_an_ambiguous_order_of_layers() {
        for prefixes in [["encoder.", "decoder."], ["conv1.", "conv01."], ["conv.", "conv1."], ["a1.", "b2."]]
        {
            assert!(
                matches!(ordered(&prefixes), Err(Error::Weights(WeightsError::LayerOrder { .. }))),
                "{prefixes:?}"
            );
        }
    }
}
