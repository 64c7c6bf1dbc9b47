//! A first spec of tables: what it proposes, and that it imports as it is.

use std::path::PathBuf;

use kiln_tables::{
    ColumnTransform, Error, ImportOptions, ImportReport, ImportSpec, KeyType, NodeOrigin, Proposal,
    ProposalOptions, import, propose_spec,
};

use crate::helpers::Tables;

/// What some tables are, their names and content, and the sizes of the set.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

/// Tables of a shop with missing values, texts, dates, a constant, an empty column and a dangling key.
fn put_shop(tables: &Tables, end: &str) -> Vec<String> {
    let users: Vec<Vec<String>> = (0..12)
        .map(|user| {
            let age = if user % 4 == 0 { String::new() } else { (20 + user).to_string() };
            let plan = ["free", "pro"][user % 2].to_owned();
            let joined = format!("2024-01-{:02} 12:30:00", user + 1);
            vec![format!("u{user}"), age, plan, joined, "EU".to_owned(), String::new()]
        })
        .collect();
    let items: Vec<Vec<String>> = (0..6)
        .map(|item| {
            let title = format!("garden gnome number {item}");
            let kind = ["outdoor", "indoor"][item % 2].to_owned();
            vec![
                item.to_string(),
                title,
                format!("{item}.5"),
                kind,
                (item % 3).to_string(),
                (item < 4).to_string(),
            ]
        })
        .collect();
    let ratings: Vec<Vec<String>> = (0..24)
        .map(|rating| {
            let item = if rating == 7 { 99 } else { rating % 6 };
            let stars = (rating % 5).to_string();
            vec![format!("u{}", rating % 12), item.to_string(), stars, ["view", "buy"][rating % 2].to_owned()]
        })
        .collect();
    let header_of_users = ["id", "age", "plan", "joined", "region", "note"];
    let header_of_items = ["id", "title", "price", "kind", "brand_id", "train_mask"];
    put(tables, &format!("users.{end}"), &header_of_users, &users);
    put(tables, &format!("items.{end}"), &header_of_items, &items);
    put(tables, &format!("ratings.{end}"), &["user", "item_id", "stars", "event"], &ratings);
    ["users", "items", "ratings"].map(|name| format!("{name}.{end}")).to_vec()
}

fn put(tables: &Tables, name: &str, header: &[&str], rows: &[Vec<String>]) {
    let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
    let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
    tables.put_table(name, header, &rows);
}

fn propose(tables: &Tables, names: &[&str]) -> Result<Proposal, Error> {
    let paths: Vec<PathBuf> = names.iter().map(|name| tables.path(name)).collect();
    propose_spec(&paths, &options(tables))
}

fn options(tables: &Tables) -> ProposalOptions {
    ProposalOptions { spec: tables.path("shop.yaml"), ..ProposalOptions::default() }
}

/// Proposes a spec, and imports the tables by it as it is.
fn imported(tables: &Tables, names: &[&str]) -> (Proposal, ImportReport) {
    let proposal = propose(tables, names).unwrap();
    let spec = tables.path("shop.yaml");
    std::fs::write(&spec, proposal.to_string()).unwrap();
    assert_eq!(ImportSpec::read(&spec).unwrap(), proposal.spec);
    let report = import(&spec, tables.path("set"), &ImportOptions::default());
    std::fs::remove_dir_all(tables.path("set")).unwrap_or_default();
    (proposal.clone(), report.unwrap_or_else(|error| panic!("{error}\n{proposal}")))
}

/// Returns the nodes and edges of a report.
fn sizes(report: &ImportReport) -> String {
    let all = report.node_types.iter().chain(&report.relations);
    all.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

#[test]
fn proposals_of_each_format_are_imported_and_the_same() {
    let mut golden = String::new();
    for end in ["csv", "parquet", "arrow", "jsonl"] {
        let tables = Tables::new();
        let names = put_shop(&tables, end);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (proposal, report) = imported(&tables, &names);
        assert_eq!(
            sizes(&report),
            "user 12, item 6, brand 3, item_brand 6, rev_item_brand 6, ratings 23, rev_ratings 23",
            "{end}"
        );
        let text = proposal.to_string().replace(&tables.path("shop.yaml").display().to_string(), "shop.yaml");
        let text = text.replace(&format!(".{end}"), ".csv");
        match golden.is_empty() {
            true => golden = text,
            false => assert_eq!(text, golden, "{end}"),
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/proposal.yaml");
    if std::env::var("KILN_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(path, &golden).unwrap();
    }
    assert_eq!(golden, std::fs::read_to_string(path).unwrap(), "KILN_GOLDEN=write rewrites proposal.yaml");
}

#[test]
fn a_proposed_target_and_split_are_imported_once_uncommented() {
    let tables = Tables::new();
    let names = put_shop(&tables, "csv");
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let text = propose(&tables, &names).unwrap().to_string();
    let feature = "      - {column: kind, transform: {one_hot: {max_categories: 2}}}";
    assert!(text.contains(feature), "{text}");
    let text = text.replace(feature, "      #");
    let text = text.replace("# target: {class: {column: kind}}", "target: {class: {column: kind}}");
    let items = text.find("- name: item").unwrap();
    let split = "# split: {random:";
    let at = items + text[items..].find(split).unwrap();
    let text = format!("{}{}", &text[..at], text[at..].replacen("# ", "", 1));
    let report = tables.import_with(&text, "set", &ImportOptions::default()).unwrap();
    let split = report.split.unwrap();
    assert_eq!(split.n_train + split.n_val + split.n_test, 6, "{text}");
}

#[test]
fn keys_and_references_are_found_by_names_and_values() {
    // The tables, and the sizes of the set.
    let cases: [Case<'_>; 10] = [
        (
            "columns of the same names in both tables, whose integers are keys of both",
            &[
                ("users.csv", "id,name\n1,a\n2,b\n3,c\n"),
                ("items.csv", "id,name\n1,x\n2,y\n3,z\n"),
                ("likes.csv", "item,user\n1,3\n2,3\n2,1\n"),
            ],
            "user 3, item 3, likes 3, rev_likes 3",
        ),
        (
            "one table alone, with a key of its own table",
            &[("people.csv", "id,age,manager_id\n1,50,\n2,40,1\n3,30,1\n4,35,2\n")],
            "person 4, person_manager 3, rev_person_manager 3",
        ),
        ("one table without a relation", &[("items.csv", "key,size\na,1\nb,2\n")], "item 2"),
        (
            "edges alone",
            &[("buys.csv", "user_id,item_id\n1,a\n1,b\n2,a\n")],
            "user 2, item 2, buys 3, rev_buys 3",
        ),
        ("edges of one type", &[("cites.csv", "src,dst\n1,2\n2,3\n1,3\n")], "node 3, cites 3, rev_cites 3"),
        ("edges without a header", &[("edges.csv", "1,2\n2,3\n1,3\n")], "node 3, edges 3, rev_edges 3"),
        (
            "row names of R, which the header leaves out",
            &[("cars.csv", "\"id\",\"hp\"\n\"1\",\"a\",110\n\"2\",\"b\",93\n")],
            "car 2",
        ),
        (
            "an empty table",
            &[
                ("users.csv", "id,age\n"),
                ("items.csv", "id,x\na,1\nb,2\n"),
                ("buys.csv", "user_id,item_id\n"),
            ],
            "user 0, item 2, buys 0, rev_buys 0",
        ),
        (
            "a key with a duplicate and a missing value",
            &[(
                "users.csv",
                "id,age\na,1\nb,2\nb,3\n,4\nc,5\nd,5\ne,5\nf,5\ng,5\nh,5\ni,5\nj,5\nk,5\nl,5\nm,5\n",
            )],
            "user 13",
        ),
        (
            "integers and the same integers with zeros",
            &[
                ("users.csv", "user_id,age\n1,20\n2,30\n10,20\n"),
                ("buys.csv", "user_id,item\n001,a\n010,b\n002,a\n002,b\n"),
            ],
            "user 3, item 2, buys 4, rev_buys 4",
        ),
    ];
    for (name, files, expected) in cases {
        let tables = Tables::new();
        for (file, text) in files {
            tables.put(file, text);
        }
        let names: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
        let (proposal, report) = imported(&tables, &names);
        assert_eq!(sizes(&report), expected, "{name}\n{proposal}");
    }
}

#[test]
fn forms_of_files_are_written_into_the_spec() {
    let tables = Tables::new();
    std::fs::create_dir_all(tables.path("sales/year=2023")).unwrap();
    std::fs::create_dir_all(tables.path("sales/year=2024")).unwrap();
    tables.put("shops.csv", "shop_id;city;area\ns1;Köln;12,5\ns2;Bonn;NA\n");
    tables.put("articles-1.tsv", "article_id\tcode\tgroup\n1\tx\t7|8\n2\ty\t8\n");
    tables.put("articles-2.tsv", "article_id\tcode\tgroup\n3\tx\t7|9\n4\ty\t8|9\n");
    tables.put("sales/year=2023/a.csv.gz", "shop_id,article_id,weight,n\ns1,1,0.5,3\ns2,2,1.5,4\n");
    tables.put("sales/year=2024/a.csv.zst", "shop_id,article_id,weight\ns1,3,0.25\ns2,4,1\n");
    let names = ["shops.csv", "articles-1.tsv", "articles-2.tsv", "sales"];
    let (proposal, report) = imported(&tables, &names);
    assert_eq!(sizes(&report), "shop 2, article 4, sales 4, rev_sales 4", "{proposal}");
    let text = proposal.to_string();
    for expected in [
        "csv: {separator: \";\", decimal: \",\"}",
        "missing: [NA]",
        "files: [articles-1.tsv, articles-2.tsv]",
        "{column: group, transform: {multi_hot: {max_categories: 3, separator: \"|\"}}}",
        "files: [sales]",
        "weight: weight",
        "- {column: year, transform: standardize}",
        "- {column: \"n\", transform: standardize}  # 3 to 4, 2 different values, 50.0 % missing",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
}

#[test]
fn splits_groups_and_ambiguous_ends_have_comments() {
    let tables = Tables::new();
    let rows: String = (0..20)
        .map(|row| {
            format!("{row},{},{},{},{},{},train\n", row % 3, row < 12, row >= 12, row % 2 == 0, row / 5)
        })
        .collect();
    tables.put("nodes_a.csv", &format!("id,label,train_mask,test_mask,has_x,step,part\n{rows}"));
    let keys: String = (0..20).map(|row| format!("{row},{}\n", row % 2)).collect();
    tables.put("nodes_b.csv", &format!("id,flag\n{keys}"));
    tables.put("links.csv", "p_id,q_id\n1,2\n2,3\n3,1\n1,1\n");
    let (proposal, _) = imported(&tables, &["nodes_a.csv", "nodes_b.csv", "links.csv"]);
    let text = proposal.to_string();
    for expected in [
        "# target: {class: {column: label}}  # 3 classes: 0 7, 1 7, 2 6; it is not in `columns`",
        "# split: {masks: {train: train_mask, test: test_mask}}",
        "# split: {steps: {column: step, val_from: 3, test_from: 3}}",
        "# - part: looks like a split (train 20)",
        "src: {type: a, column: p_id}  # 100 % of 3 values are keys of a; and of b: check which type it is",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert!(proposal.spec.nodes.iter().all(|node| node.target.is_none()));
}

#[test]
fn a_key_of_integers_has_its_type_and_keys_without_a_table_are_a_type() {
    let tables = Tables::new();
    tables.put("users.csv", "user_id,age\n1,20\n2,30\n10,20\n");
    tables.put(
        "buys.csv",
        "user_id,item,ts,note\n001,a,1700000000,x\n010,b,1700000100,x\n010,a,1700000200,x\n",
    );
    let spec = propose(&tables, &["users.csv", "buys.csv"]).unwrap().spec;
    assert_eq!(spec.nodes[0].key_type, KeyType::Integer);
    assert_eq!(spec.nodes[1].from, Some(NodeOrigin::Relations));
    let of_edges = &spec.relations[0].columns;
    assert!(
        matches!(of_edges[0].transform, ColumnTransform::Time { .. }) && of_edges.len() == 1,
        "{of_edges:?}"
    );
    assert!(matches!(spec.nodes[0].columns[0].transform, ColumnTransform::Standardize));
}

#[test]
fn a_small_memory_limit_compares_samples_and_says_so() {
    let tables = Tables::new();
    let users: String = (0..20_000).map(|user| format!("u{user},{}\n", user % 7)).collect();
    let buys: String = (0..40_000).map(|buy| format!("u{},i{}\n", buy % 20_000, buy % 9_000)).collect();
    tables.put("users.csv", &format!("id,x\n{users}")).put("buys.csv", &format!("user,item\n{buys}"));
    let paths = ["users.csv", "buys.csv"].map(|name| tables.path(name));
    let small = ProposalOptions { memory_bytes: 26 << 20, ..options(&tables) };
    let text = propose_spec(&paths, &small).unwrap().to_string();
    assert!(text.contains("different values by a sample of them"), "{text}");
    assert!(text.contains("values are keys of user by a sample of the values"), "{text}");
    assert!(text.contains("drop: [dangling]  # rows whose key no node has: a sample"), "{text}");
    let tiny = ProposalOptions { memory_bytes: 1 << 20, ..options(&tables) };
    assert!(matches!(propose_spec(&paths, &tiny), Err(Error::Memory { .. })));
}

#[test]
fn tables_that_cannot_be_proposed_are_errors() {
    let tables = Tables::new();
    tables.put("users.csv", "id,x\na,1\n").put("numbers.csv", "x,y\n0.5,1.5\n0.5,1.5\n");
    std::fs::create_dir(tables.path("some")).unwrap();
    tables.put("some/a.csv", "x,y\n0.5,1.5\n").put("some/b.csv", "z\n0.5\n");
    tables.put("users.xlsx", "x").put("none.csv", "").put("short.csv", "a,b\n\"x,1\n");
    let error_of = |names: &[&str]| {
        let error = propose(&tables, names).unwrap_err().to_string();
        error.replace(&format!("{}/", tables.path("").display().to_string().trim_end_matches('/')), "")
    };
    for (names, expected) in [
        (&["user.csv"][..], "did you mean `users.csv`?"),
        (
            &["user"],
            "table `user`: `user` does not exist, expected a file, a folder or a pattern (did you mean `users.csv`?)",
        ),
        (&["*.parquet"], "`*.parquet` matches no table"),
        (&["numbers.csv"], "no node type: numbers.csv: no column of different texts or integers"),
        (
            &["some"],
            "(a folder or a pattern is one table, here of 2 files: pass the files of several tables one by one)",
        ),
        (&[], "no node type: "),
        (&["none.csv"], "none.csv: the file is empty"),
        (&["short.csv"], "short.csv: row 1 has a quote that is never closed"),
        (&["users.csv", "users.csv"], "users.csv` is named twice: remove one of them"),
        (&["users.csv", "users.xlsx"], "users.xlsx` is no table by its name"),
    ] {
        let error = error_of(names);
        assert!(error.contains(expected), "{names:?}: {error}");
    }
}

#[test]
fn a_spec_is_written_to_a_new_file_only() {
    let tables = Tables::new();
    tables.put("users.csv", "id,x\na,1\n");
    let proposal = propose(&tables, &["users.csv"]).unwrap();
    proposal.write(&options(&tables)).unwrap();
    assert_eq!(std::fs::read_to_string(tables.path("shop.yaml")).unwrap(), proposal.to_string());
    let error = proposal.write(&options(&tables)).unwrap_err().to_string();
    assert!(error.ends_with("shop.yaml exists: choose another path, existing files are kept"), "{error}");
    let table = ProposalOptions { spec: tables.path("new.csv"), ..options(&tables) };
    assert!(table.check_path().unwrap_err().to_string().contains("is the name of a table"));
}
