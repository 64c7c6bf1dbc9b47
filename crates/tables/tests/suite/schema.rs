//! The JSON schema of specs accepts what the reader accepts, and has the same keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kiln_tables::ImportSpec;
use serde_json::Value;

const SCHEMA: &str = include_str!("../../spec.schema.json");
pub(crate) const FULL: &str = include_str!("full.yaml");

/// Targets and splits that a spec can have besides those of `full.yaml`.
const OTHERS: [(&str, &str); 7] = [
    ("target: {class: {column: y}}", "target: {regression: {columns: [y, z]}}"),
    ("target: {class: {column: y}}", "target: {multi_label: {column: y, separator: \",\"}}"),
    ("split: {column: {column: s}}", "split: {masks: {train: s, val: t, test: u}}"),
    ("split: {column: {column: s}}", "split: {steps: {column: s, val_from: -3, test_from: 35}}"),
    ("split: {column: {column: s}}", "split: {time: {column: s, quantiles: {val: 0.8, test: 0.9}}}"),
    // The keys of earlier specs, which are written as `val` and `test`.
    (
        "split: {column: {column: s}}",
        "split: {time: {column: s, val_from: '2024-01-01', test_from: '2024-02-01'}}",
    ),
    ("split: {column: {column: s}}", "split: {random: {seed: 1, train: 0.5, val: 0.25, test: 0.25}}"),
];
const TIME: (&str, &str) = (
    "split: {column: {column: s}}",
    "split: {time: {column: s, unit: seconds, zone: '+01:00', train: 2023-01-01, val: 2024-01-01, test: '2024-02-01'}}",
);

/// The keys of each object of the schema that occurred, by the address of the object's definition.
type Seen<'a> = BTreeMap<*const Value, (&'a Value, BTreeSet<String>)>;

/// Checks the keywords that the schema uses.
fn check<'a>(root: &'a Value, schema: &'a Value, value: &Value, seen: &mut Seen<'a>) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).expect("a reference should exist");
        return check(root, target, value, seen);
    }
    if let Some(choices) = schema["enum"].as_array() {
        return if choices.contains(value) {
            Ok(())
        } else {
            Err(format!("{value} is not one of {choices:?}"))
        };
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let errors: Vec<String> =
            choices.iter().filter_map(|choice| check(root, choice, value, seen).err()).collect();
        return if errors.len() < choices.len() { Ok(()) } else { Err(errors.join("; ")) };
    }
    let has_type = match schema["type"].as_str().expect("a schema should have a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        other => panic!("unknown type {other}"),
    };
    if !has_type {
        return Err(format!("{value} is not of type {}", schema["type"]));
    }
    let within = |key: &str, holds: &dyn Fn(f64) -> bool| schema[key].as_f64().is_none_or(holds);
    if let Some(number) = value.as_f64()
        && !(within("minimum", &|min| min <= number) && within("maximum", &|max| number <= max))
    {
        return Err(format!("{number} is out of range"));
    }
    for item in value.as_array().into_iter().flatten() {
        check(root, &schema["items"], item, seen)?;
    }
    if !within("minItems", &|min| value.as_array().is_none_or(|items| min <= items.len() as f64)) {
        return Err("too few items".into());
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    for (key, value) in object {
        let keys = &mut seen.entry(schema).or_insert((schema, BTreeSet::new())).1;
        let (property, key) = match schema["properties"].get(key) {
            Some(property) => (property, key.as_str()),
            // The values of keys of any name.
            None => (schema.get("additionalProperties").filter(|of| of.is_object()).ok_or(key)?, ""),
        };
        keys.extend((!key.is_empty()).then(|| key.to_owned()));
        check(root, property, value, seen)?;
    }
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.filter(|key| !object.contains_key(*key)).try_for_each(|key| Err(format!("{key} is missing")))
}

/// Returns the number of object definitions below a schema.
fn n_objects(schema: &Value) -> usize {
    let children: usize = match schema {
        Value::Object(keys) => keys.values().map(n_objects).sum(),
        Value::Array(items) => items.iter().map(n_objects).sum(),
        _ => 0,
    };
    children + usize::from(schema["type"] == "object")
}

#[test]
fn schema_has_the_keys_of_the_reader() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut seen = Seen::new();
    for (old, new) in OTHERS.into_iter().chain([TIME, ("", "")]) {
        let text = FULL.replacen(old, new, 1);
        // A split by time is the only one.
        let others = if new.contains("time:") { "    split: {column: {column: part}}\n" } else { "" };
        let text = text.replacen(others, "", 1);
        let spec = ImportSpec::parse(Path::new("full.yaml"), text.as_bytes()).unwrap();
        // The written spec has a key for each field, because all fields differ from their defaults.
        let value = serde_json::to_value(&spec).unwrap();
        check(&schema, &schema, &value, &mut seen).unwrap_or_else(|error| panic!("{error}\n{text}"));
    }
    assert_eq!(seen.len(), n_objects(&schema), "each object of the schema should occur in a spec");
    for (definition, keys) in seen.values() {
        let properties: BTreeSet<String> =
            definition["properties"].as_object().into_iter().flat_map(|keys| keys.keys().cloned()).collect();
        assert_eq!(&properties, keys);
    }
}

#[test]
fn schema_and_reader_reject_the_same_specs() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let full = ImportSpec::parse(Path::new("full.yaml"), FULL.as_bytes()).unwrap();
    let full = serde_json::to_value(full).unwrap();
    for (pointer, value) in [
        ("/nodes", serde_json::json!([])),
        ("/nodes/0/columns/0/transform", "log".into()),
        ("/nodes/0/columns/3/transform/one_hot/max_categories", 0.into()),
        ("/nodes/0/columns/7/transform/time/parts", serde_json::json!(["year"])),
        ("/nodes/0/columns/8/transform/text/max_n", 9.into()),
        ("/nodes/0/drop/0", "all".into()),
        ("/nodes/0/csv/decimal", ";".into()),
        ("/nodes/0/csv", serde_json::json!({ "quote": "'" })),
        ("/nodes/0/where/kind", serde_json::json!([])),
        ("/nodes/1/from", "tables".into()),
        ("/nodes/0/key_type", 1.into()),
        ("/relations/0/files", serde_json::json!([])),
        ("/relations/0/src", serde_json::json!({ "type": "user" })),
        ("/relations/0/dst", serde_json::json!({ "type": "tag", "column": "t", "key": "t" })),
    ] {
        let mut spec = full.clone();
        *spec.pointer_mut(pointer).unwrap() = value;
        assert!(
            check(&schema, &schema, &spec, &mut Seen::new()).is_err(),
            "{pointer}: the schema accepts it"
        );
        // JSON is YAML.
        let text = serde_json::to_string(&spec).unwrap();
        let read = ImportSpec::parse(Path::new("spec.yaml"), text.as_bytes());
        assert!(read.is_err(), "{pointer}: the reader accepts it");
    }
    let text = serde_json::to_string_pretty(&full).unwrap();
    ImportSpec::parse(Path::new("spec.json"), text.as_bytes()).unwrap();
}
