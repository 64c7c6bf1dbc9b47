//! Proposals for tables of events: edges with a time, a kind and a label.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use kiln_tables::{ImportOptions, ImportReport, Proposal, ProposalOptions, TargetSpec, import, propose_spec};

use crate::helpers::Tables;

/// The names of the columns of payments.
type Header = [&'static str; 6];

const HEADER: Header = ["payer", "payee", "at", "amount", "kind", "is_fraud"];

/// Writes 40 payments between 7 accounts in the format of the name, of which 4 are frauds.
fn put_payments(tables: &Tables, name: &str, header: Header) {
    let rows = payments(|payment| format!("2026-01-{:02} 10:00:00", payment / 2 + 1));
    put(tables, name, header, &rows);
}

fn payments(time: impl Fn(usize) -> String) -> Vec<[String; 6]> {
    let payment = |payment: usize| {
        [
            format!("a{}", payment % 7),
            format!("a{}", (payment * 3 + 1) % 7),
            time(payment),
            format!("{payment}.5"),
            ["card", "cash", "transfer"][payment % 3].to_owned(),
            (payment % 10 == 3).to_string(),
        ]
    };
    (0..40).map(payment).collect()
}

fn put(tables: &Tables, name: &str, header: Header, rows: &[[String; 6]]) {
    let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
    let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
    tables.put_table(name, &header, &rows);
}

fn propose(tables: &Tables, names: &[&str]) -> Proposal {
    let paths: Vec<_> = names.iter().map(|name| tables.path(name)).collect();
    let options = ProposalOptions { spec: tables.path("bank.yaml"), ..ProposalOptions::default() };
    propose_spec(&paths, &options).unwrap()
}

fn imported(tables: &Tables, text: &str) -> ImportReport {
    let spec = tables.path("bank.yaml");
    std::fs::write(&spec, text).unwrap();
    let report = import(&spec, tables.path("set"), &ImportOptions::default());
    std::fs::remove_dir_all(tables.path("set")).unwrap_or_default();
    report.unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the nodes, the edges, and the items of the parts of the split, if there is one.
fn sizes(report: &ImportReport) -> String {
    let all = report.node_types.iter().chain(&report.relations);
    let sizes = all.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ");
    let split = report.edge_split.as_ref().map(|split| [split.n_train, split.n_val, split.n_test]);
    split.map_or(sizes.clone(), |parts| format!("{sizes}, split {parts:?}"))
}

#[test]
fn one_table_of_events_is_imported_with_its_times_target_and_split() {
    for end in ["csv", "parquet", "arrow", "jsonl"] {
        let tables = Tables::new();
        let name = format!("payments.{end}");
        put_payments(&tables, &name, HEADER);
        let text = propose(&tables, &[&name]).to_string();
        for expected in [
            "- {name: node, from: relations}",
            "src: {type: node, column: payer}",
            "dst: {type: node, column: payee}",
            "reverse: rev_payments",
            "\n    time: {column: at}",
            "- {column: amount, transform: standardize}",
            "- {column: kind, transform: {one_hot: {max_categories: 3}}}",
            "# - is_fraud: looks like a target",
            "\n    target: {class: {column: is_fraud}}  # 2 classes: false 36, true 4",
            "\n    split: {time: {column: at, quantiles: {val: 0.7, test: 0.85}}}",
            "\n    # split: {random: {seed: 0, train: 0.6, val: 0.2, test: 0.2}}",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        // 40 payments on 20 days: the border of the validation is the day of payment 28, that of the test the day of payment 34.
        let report = imported(&tables, &text);
        assert_eq!(sizes(&report), "node 7, payments 40, rev_payments 40, split [28, 6, 6]", "{end}");
    }
}

#[test]
fn ends_times_and_targets_have_many_names() {
    // The names, those of the ends, the node type, and the time.
    let cases: [(Header, [&str; 2], &str, &str); 6] = [
        (["src", "dst", "time", "amount", "kind", "label"], ["src", "dst"], "node", "{column: time}"),
        (
            ["to_account_id", "from_account_id", "created_at", "value", "type", "fraud"],
            ["from_account_id", "to_account_id"],
            "account",
            "{column: created_at}",
        ),
        (
            ["Sender_account", "Receiver_account", "Date", "Amount", "Payment_type", "Is_laundering"],
            ["Sender_account", "Receiver_account"],
            "account",
            "{column: Date}",
        ),
        (
            ["nameOrig", "nameDest", "datetime", "amount", "type", "isFraud"],
            ["nameOrig", "nameDest"],
            "node",
            "{column: datetime}",
        ),
        (
            ["source", "target", "ts", "amount", "kind", "labels"],
            ["source", "target"],
            "node",
            "{column: ts}",
        ),
        (["u", "v", "event_time", "w2", "kind", "is_fraud"], ["u", "v"], "node", "{column: event_time}"),
    ];
    for (header, [src, dst], node_type, time) in cases {
        let tables = Tables::new();
        put_payments(&tables, "payments.parquet", header);
        let proposal = propose(&tables, &["payments.parquet"]);
        let relation = &proposal.spec.relations[0];
        assert_eq!([&relation.src.column, &relation.dst.column], [src, dst], "{proposal}");
        assert_eq!([&relation.src.node_type, &relation.dst.node_type], [node_type; 2], "{proposal}");
        assert!(proposal.to_string().contains(&format!("    time: {time}  # ")), "{proposal}");
        let target = TargetSpec::Class { column: header[5].to_owned() };
        assert_eq!(relation.target.as_ref(), Some(&target), "{proposal}");
        let report = imported(&tables, &proposal.to_string());
        assert!(sizes(&report).ends_with("payments 40, rev_payments 40, split [28, 6, 6]"), "{proposal}");
    }
}

#[test]
fn integers_are_times_in_their_unit_and_the_first_column_may_be_one() {
    for (first, step, expected) in [
        (0_i64, 1, "time: {column: step, unit: integer}"),
        (1_700_000_000_000, 1000, "time: {column: step, unit: integer}"),
    ] {
        let tables = Tables::new();
        let rows = payments(|payment| (first + step * payment as i64).to_string());
        let rows: Vec<[String; 6]> = rows
            .into_iter()
            .map(|[src, dst, time, amount, kind, label]| [time, src, dst, amount, kind, label])
            .collect();
        put(&tables, "payments.csv", ["step", "customer", "merchant", "amount", "category", "fraud"], &rows);
        let text = propose(&tables, &["payments.csv"]).to_string();
        assert!(text.contains(expected), "{text}");
        // The numbers after the training are none that the statistics of a feature know.
        assert!(text.contains("# - step: times, which are no dates"), "{text}");
        assert!(text.contains("src: {type: customer, column: customer}"), "{text}");
        assert!(sizes(&imported(&tables, &text)).ends_with("split [28, 6, 6]"), "{text}");
    }
    let tables = Tables::new();
    put(
        &tables,
        "payments.csv",
        ["payer", "payee", "ts", "amount", "kind", "fraud"],
        &payments(|payment| (1_700_000_000_000 + 86_400_000 * payment as i64).to_string()),
    );
    let text = propose(&tables, &["payments.csv"]).to_string();
    assert!(text.contains("time: {column: ts, unit: milliseconds}"), "{text}");
    assert!(text.contains(
        "{column: ts, transform: {time: {parts: [hour, day_of_week, month], unit: milliseconds}}}"
    ));
    assert!(sizes(&imported(&tables, &text)).ends_with("split [28, 6, 6]"), "{text}");
}

#[test]
fn guesses_are_comments_that_are_imported_once_uncommented() {
    let cases: [(Header, Option<usize>, &[&str]); 5] = [
        (
            ["payer", "payee", "at", "amount", "kind", "rating"],
            None,
            &["    # target: {class: {column: rating}}", "    # split: {time: {column: at, quantiles"],
        ),
        (
            ["payer", "payee", "at", "amount", "label", "is_fraud"],
            None,
            &["    # target: {class: {column: label}}", "    # target: {class: {column: is_fraud}}"],
        ),
        (
            ["payer", "payee", "at", "amount", "kind", "class"],
            None,
            &["    # target: {class: {column: class}}"],
        ),
        // A missing time would be a bad row.
        (HEADER, Some(2), &["    # time: {column: at}", "    # split: {time: {column: at, quantiles"]),
        (
            ["payer", "payee", "valid_until", "amount", "kind", "fraud"],
            None,
            &["    # time: {column: valid_until}"],
        ),
    ];
    for (header, missing, expected) in cases {
        let tables = Tables::new();
        let mut rows = payments(|payment| format!("2026-01-{:02}", payment / 2 + 1));
        if let Some(column) = missing {
            rows[5][column].clear();
        }
        put(&tables, "payments.csv", header, &rows);
        let proposal = propose(&tables, &["payments.csv"]);
        let text = proposal.to_string();
        assert!(expected.iter().all(|line| text.contains(line)), "{text}");
        let has_target = proposal.spec.relations[0].target.is_some();
        assert_eq!(has_target, text.contains("    split: {random:"), "{text}");
        let before = imported(&tables, &text);
        assert_eq!(before.edge_split.is_some(), has_target, "{text}");
        // The first target and the first split of the comments.
        let mut edited = text.clone();
        for line in ["# target: ", "# split: "] {
            if !has_target {
                edited = edited.replacen(line, &line[2..], 1);
            }
        }
        let split = imported(&tables, &edited).edge_split.unwrap();
        assert_eq!(split.n_train + split.n_val + split.n_test, 40, "{edited}");
    }
}

#[test]
fn targets_of_nodes_and_of_edges_are_for_the_user_to_choose() {
    let tables = Tables::new();
    put_payments(&tables, "payments.csv", HEADER);
    let accounts: String = (0..7).map(|account| format!("a{account},{}\n", account % 2)).collect();
    tables.put("accounts.csv", &format!("id,label\n{accounts}"));
    let proposal = propose(&tables, &["accounts.csv", "payments.csv"]);
    let text = proposal.to_string();
    assert!(proposal.spec.relations[0].target.is_none(), "{text}");
    assert!(text.contains("# target: {class: {column: is_fraud}}"), "{text}");
    assert!(text.contains("src: {type: account, column: payer}"), "{text}");
    // Nodes without a column to predict have no split.
    tables.put("countries.csv", "id\nat\nde\n");
    let countries = propose(&tables, &["countries.csv"]).to_string();
    assert!(!countries.contains("split"), "{countries}");
    assert_eq!(sizes(&imported(&tables, &text)), "account 7, payments 40, rev_payments 40");
}

#[test]
fn a_key_of_the_events_is_no_node_type_and_no_feature() {
    let tables = Tables::new();
    let rows: String =
        (0..20).map(|row| format!("{row},a{},a{},{}\n", row % 5, (row * 2 + 1) % 5, row % 4 == 0)).collect();
    tables.put("payments.csv", &format!("payment_id,from_account,to_account,fraud\n{rows}"));
    let text = propose(&tables, &["payments.csv"]).to_string();
    assert!(text.contains("# - payment_id: another value in each row, like a key"), "{text}");
    let report = imported(&tables, &text);
    assert_eq!(report.node_types, [("account".to_owned(), 5)], "{text}");
    // If another table refers to the payments, they are nodes.
    tables.put("chargebacks.csv", "chargeback_id,payment_id\nx,3\ny,4\n");
    let report = imported(&tables, &propose(&tables, &["payments.csv", "chargebacks.csv"]).to_string());
    assert!(report.node_types.contains(&("payment".to_owned(), 20)), "{:?}", report.node_types);
}

#[test]
fn relations_by_the_kind_are_imported_once_uncommented() {
    let tables = Tables::new();
    put_payments(&tables, "payments.csv", HEADER);
    let text = propose(&tables, &["payments.csv"]).to_string();
    let (nodes, _) = text.split_once("relations:\n").unwrap();
    let kinds: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with("  # - {name: "))
        .map(|line| line.replacen("# ", "", 1))
        .collect();
    assert_eq!(kinds.len(), 3, "{text}");
    let edited = format!("{nodes}relations:\n{}\n", kinds.join("\n"));
    let expected = "node 7, payments_card 14, rev_payments_card 14, payments_cash 13, rev_payments_cash 13, \
        payments_transfer 13, rev_payments_transfer 13";
    assert_eq!(sizes(&imported(&tables, &edited)), expected, "{edited}");
}

/// What looks like a label or a time, and may be something else, is a comment: a random split of events would pass messages over
/// later ones.
#[test]
fn what_may_be_no_label_and_no_time_of_the_event_is_a_comment() {
    let is_live =
        |text: &str, key: &str| text.lines().any(|line| line.trim_start().starts_with(&format!("{key}:")));
    for (header, time_of, label_of) in [
        // A number that is measured, and rows without a label.
        (["payer", "payee", "at", "amount", "kind", "days_since_fraud"], "2026-01-", "%"),
        (["payer", "payee", "at", "amount", "kind", "label"], "2026-01-", "-"),
        // A time that is not that of the payment, and one in a form that is not read as times.
        (["payer", "payee", "card_expiry_date", "amount", "kind", "is_fraud"], "2026-01-", ""),
        (["payer", "payee", "created_at", "amount", "kind", "is_fraud"], "week ", ""),
    ] {
        let tables = Tables::new();
        let mut rows = payments(|payment| match time_of {
            "week " => format!("week {payment}"),
            _ => format!("2026-01-{:02} 10:00:00", payment / 2 + 1),
        });
        for (payment, row) in rows.iter_mut().enumerate() {
            match label_of {
                "%" => row[5] = (payment * 7 % 31).to_string(),
                "-" => row[5] = (payment as i32 % 3 - 1).to_string(),
                _ => {}
            }
        }
        put(&tables, "payments.csv", header, &rows);
        let text = propose(&tables, &["payments.csv"]).to_string();
        assert!(!is_live(&text, "target") && !is_live(&text, "split"), "{header:?}\n{text}");
        assert!(text.contains("target: "), "{header:?}\n{text}");
    }
}
