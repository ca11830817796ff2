//! Times, sizes and tables as people read them.
//!
//! In: moments, bytes, rows. Out: text. Always: a time is told as its distance from now and as the clock's, in the zone of
//! this machine; columns stand under each other.

use crate::output::Style;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

/// The text of a field; empty if there is none.
pub(crate) fn word<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// What a thread is called: its name, or its id.
pub(crate) fn called(standing: &Value) -> &str {
    standing["name"].as_str().unwrap_or_else(|| word(standing, "thread"))
}

/// So many of something.
pub(crate) fn count(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A size in bytes.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// The distance of a moment from now, both in milliseconds since the Unix epoch.
pub(crate) fn distance(at_ms: u64, now_ms: u64) -> String {
    let apart_s = at_ms.abs_diff(now_ms) / 1000;
    let apart = match apart_s {
        0 => return "now".to_owned(),
        1..120 => format!("{apart_s} s"),
        120..7_200 => format!("{} min", apart_s / 60),
        7_200..172_800 => format!("{} h", apart_s / 3600),
        _ => format!("{} days", apart_s / 86_400),
    };
    if at_ms > now_ms { format!("in {apart}") } else { format!("{apart} ago") }
}

/// A moment on the clock of this machine.
pub(crate) fn clock(at_ms: u64) -> String {
    let moment = i64::try_from(at_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let Some(moment) = moment else { return "beyond the calendar".to_owned() };
    moment.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
}

/// A moment as its distance and on the clock.
pub(crate) fn moment(at_ms: u64, now_ms: u64) -> String {
    format!("{} ({})", distance(at_ms, now_ms), clock(at_ms))
}

/// The time now, in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// A column of a table.
#[derive(Clone, Copy)]
pub(crate) enum Column {
    /// Text.
    Left(&'static str),
    /// Numbers.
    Right(&'static str),
}

/// A table with its head, one line a row; the last column is not filled up.
pub(crate) fn table(style: Style, columns: &[Column], rows: &[Vec<String>]) -> String {
    let heads: Vec<&str> = columns
        .iter()
        .map(|column| match column {
            Column::Left(head) | Column::Right(head) => *head,
        })
        .collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.chain([heads[at].chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let line = |cells: &[&str]| {
        let padded =
            cells.iter().zip(columns).zip(&widths).enumerate().map(|(at, ((cell, column), &width))| match column {
                Column::Right(_) => format!("{cell:>width$}"),
                Column::Left(_) if at + 1 == columns.len() => (*cell).to_owned(),
                Column::Left(_) => format!("{cell:<width$}"),
            });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut table = format!("{}\n", style.dim(line(&heads)));
    for row in rows {
        let cells: Vec<&str> = row.iter().map(String::as_str).collect();
        table.push_str(&line(&cells));
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn distances_are_told_as_people_do() {
        let now_ms = 1_000_000_000_000;
        for (apart_s, said) in [
            (0, "now"),
            (5, "5 s ago"),
            (119, "119 s ago"),
            (120, "2 min ago"),
            (7_200, "2 h ago"),
            (172_800, "2 days ago"),
        ] {
            assert_eq!(distance(now_ms - apart_s * 1000, now_ms), said);
        }
        assert_eq!(distance(now_ms + 90_000, now_ms), "in 90 s");
        assert_eq!(distance(u64::MAX, now_ms).split(' ').next(), Some("in"));
        assert_eq!(clock(u64::MAX), "beyond the calendar");
        assert_eq!([0, 999, 1_000, 2_500_000, 3_000_000_000].map(size), ["0 B", "999 B", "1.0 kB", "2.5 MB", "3.0 GB"]);
    }

    #[test]
    fn columns_stand_under_each_other_whatever_is_in_them() {
        let rows = [["ä…", "1", "end"], ["long one", "20", ""]].map(|row| row.map(str::to_owned).to_vec());
        let columns = [Column::Left("NAME"), Column::Right("COUNT"), Column::Left("LAST")];
        let table = table(Style::plain(), &columns, &rows);
        assert_eq!(table, "NAME      COUNT  LAST\nä…            1  end\nlong one     20\n");
    }
}
