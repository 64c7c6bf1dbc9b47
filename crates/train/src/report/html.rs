//! Formatting of text, numbers and tables as HTML.

/// The number of table rows above which the table scrolls.
const MAX_ROWS: usize = 40;

/// Escapes all characters with a meaning in HTML, in content and in quoted attributes. Characters that are not allowed
/// in a document become the replacement character.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(c),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a number with this many decimals; NaN and infinities become words.
pub(super) fn number(value: f64, n_decimals: usize) -> String {
    if value.is_nan() {
        "not a number".into()
    } else if value.is_infinite() {
        if value < 0.0 { "minus infinity" } else { "infinity" }.into()
    } else {
        format!("{value:.n_decimals$}")
    }
}

/// Formats a loss, an accuracy or another score with four decimals.
pub(super) fn score(value: f64) -> String {
    number(value, 4)
}

/// Formats a score that may be undefined.
pub(super) fn score_or_undefined(value: Option<f64>) -> String {
    value.map_or("undefined".into(), score)
}

/// Formats a count with thousands separators.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if 0 < i && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a duration in seconds, minutes or hours, depending on its length.
pub(super) fn duration(seconds: f64) -> String {
    const HOUR: f64 = 3600.0;
    if !(120.0..1e15).contains(&seconds) {
        let n_decimals = if seconds < 10.0 { 2 } else { 1 };
        let number = number(seconds, n_decimals);
        return if seconds.is_finite() { format!("{number} s") } else { number };
    }
    let whole = seconds.round() as u64;
    if seconds < 2.0 * HOUR {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole % 3600 / 60)
    }
}

/// Formats a number of bytes in MiB or GiB.
pub(super) fn memory(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 10_240.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// Formats a rate or another large number, without decimals.
pub(super) fn rounded(value: f64) -> String {
    if (0.0..1e15).contains(&value) { count(value.round() as u64) } else { number(value, 0) }
}

/// Renders a table that scrolls if it exceeds its space. The headings and rows are HTML.
pub(super) fn table(class: &str, head: &[&str], rows: impl IntoIterator<Item = String>) -> String {
    let head: String = head.iter().map(|cell| format!("<th scope=\"col\">{cell}</th>")).collect();
    let rows: Vec<String> = rows.into_iter().collect();
    let tall = if MAX_ROWS < rows.len() { " tall" } else { "" };
    let rows = rows.concat();
    format!(
        "<div class=\"scroll{tall}\"><table class=\"{class}\">\
        <thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// Renders a row from its heading and its cells, both HTML.
pub(super) fn row(heading: &str, cells: &str) -> String {
    format!("<tr><th scope=\"row\">{heading}</th>{cells}</tr>\n")
}

/// Renders a right-aligned cell for a number.
pub(super) fn cell(html: &str) -> String {
    format!("<td>{html}</td>")
}

/// Renders a left-aligned cell for text.
pub(super) fn text_cell(html: &str) -> String {
    format!("<td class=\"text\">{html}</td>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_counts_durations_and_memory() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let seconds = [0.126, 75.04, 120.0, 3599.6, 7200.0, 90_061.0, f64::NAN, f64::INFINITY, -1.0];
        let expected =
            ["0.13 s", "75.0 s", "2 min 00 s", "60 min 00 s", "2 h 00 min", "25 h 01 min", "not a number"];
        assert_eq!(seconds.map(duration)[..7], expected);
        assert_eq!(seconds.map(duration)[7..], ["infinity", "-1.00 s"]);
        assert_eq!(score(f64::NEG_INFINITY), "minus infinity");
        assert_eq!([20_480.4, f64::NAN, -1.0].map(rounded), ["20,480", "not a number", "-1"]);
        assert_eq!([3 << 20, 20 << 30].map(memory), ["3 MiB", "20.0 GiB"]);
    }

    #[test]
    fn escapes_markup_and_forbidden_characters() {
        assert_eq!(escape("a<b>&\"'\u{0}\u{ffff}é\n"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd}é\n");
    }
}
