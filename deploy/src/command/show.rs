//! `slackwater show`: what the model sees of a thread, or the records beneath it.
//!
//! In: a thread. Out: its items in full, or its records in a table; or JSON. Always: the items are those of the thread's next
//! prompt, in order; changes nothing and wakes nobody.

use super::Failure;
use super::ask::{About, PAGE, Source, Where};
use super::words::{Column, clock, size, table, word};
use crate::output::{self, Style};
use serde_json::{Value, json};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater show demo                         what the model sees
  slackwater show demo --records --last 20     the newest records: number, time, kind, size, origin
  slackwater show demo --json | jq '.items[] | select(.role == \"tool\")'

The system text and the tools' descriptions are left out: they are the same for every thread. It asks the runtime that runs
on the data directory, or reads the directory when none does. It changes nothing and wakes nobody.")]
pub(crate) struct Arguments {
    /// The thread, by name or id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// The records in place of what they make
    #[arg(long)]
    records: bool,
    /// Only so many, the newest
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    super::block_on(async {
        let source = arguments.place.open().await?;
        let style = Style::stdout();
        let (field, shown) = match arguments.records {
            true => ("records", records(&source, &arguments).await?),
            false => ("items", items(&source, &arguments).await?),
        };
        if arguments.json {
            output::line(json!({"thread": arguments.thread, field: shown}));
        } else if arguments.records {
            output::text(record_table(&shown, style));
        } else {
            shown.iter().for_each(|item| output::text(told(item, style)));
        }
        Ok(())
    })
}

async fn items(source: &Source, arguments: &Arguments) -> Result<Vec<Value>, Failure> {
    let mut after = 0;
    if let Some(last) = arguments.last {
        let first = source.about(&arguments.thread, About::View(0, 1)).await?;
        let total = first["total"].as_u64().unwrap_or_default() as usize;
        after = total.saturating_sub(last as usize);
    }
    let mut items = Vec::new();
    loop {
        let page = source.about(&arguments.thread, About::View(after, PAGE)).await?;
        items.extend(page["items"].as_array().cloned().unwrap_or_default());
        match page["next"].as_u64() {
            Some(next) => after = next as usize,
            None => return Ok(items),
        }
    }
}

async fn records(source: &Source, arguments: &Arguments) -> Result<Vec<Value>, Failure> {
    let mut after = 0;
    if let Some(last) = arguments.last {
        let standing = source.about(&arguments.thread, About::Standing).await?;
        after = standing["last"].as_u64().unwrap_or_default().saturating_sub(u64::from(last));
    }
    let mut records = Vec::new();
    loop {
        let page = source.about(&arguments.thread, About::Records(after, PAGE)).await?;
        records.extend(page["records"].as_array().cloned().unwrap_or_default());
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => return Ok(records),
        }
    }
}

fn record_table(records: &[Value], style: Style) -> String {
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            let number = |field: &str| record[field].as_u64().unwrap_or_default();
            let origin = format!("{} ({})", word(&record["origin"], "who"), word(&record["origin"], "proof"));
            vec![
                number("number").to_string(),
                clock(number("at_ms")),
                word(record, "kind").to_owned(),
                size(number("bytes")),
                origin,
                word(record, "gist").to_owned(),
            ]
        })
        .collect();
    let columns = [
        Column::Right("NUMBER"),
        Column::Left("TIME"),
        Column::Left("KIND"),
        Column::Right("SIZE"),
        Column::Left("ORIGIN"),
        Column::Left("SAYS"),
    ];
    table(style, &columns, &rows)
}

/// An item as a person reads it: who, and what, in full.
fn told(item: &Value, style: Style) -> String {
    let mut body = Vec::new();
    let text = word(item, "text");
    match word(item, "role") {
        "assistant" => {
            if !word(item, "reasoning").is_empty() {
                body.push(style.dim(word(item, "reasoning")));
            }
            body.extend(Some(text.to_owned()).filter(|text| !text.is_empty()));
            for call in item["calls"].as_array().into_iter().flatten() {
                body.push(format!(
                    "\u{2192} {}({})  {}",
                    word(call, "name"),
                    call["arguments"],
                    style.dim(word(call, "id"))
                ));
            }
            if item["cut"] == true {
                body.push(style.dim("(cut here)"));
            }
        }
        "tool" => {
            let by = if word(item, "by") == "tool" { String::new() } else { format!(" [{}]", word(item, "by")) };
            body.push(format!("\u{2190} {}  {}{by}", word(item, "name"), style.dim(word(item, "call"))));
            body.push(text.to_owned());
        }
        "event" => {
            body.push(format!("\u{2190} {}({})", word(&item["call"], "name"), item["call"]["arguments"]));
            body.push(text.to_owned());
        }
        _ => body.push(text.to_owned()),
    }
    for piece in item["content"].as_array().into_iter().flatten().filter(|piece| piece.get("text").is_none()) {
        let (kind, of) =
            piece.as_object().and_then(|piece| piece.iter().next()).map_or(("", piece), |(kind, of)| (kind, of));
        let length = of["data"].as_str().map_or(0, str::len) as u64 / 4 * 3;
        body.push(format!("[{kind} {}, {}]", word(of, "media_type"), size(length)));
    }
    let mark = match (item["inherited"] == true, item["pending"] == true) {
        (true, _) => " (inherited)",
        (_, true) => " (not answered yet)",
        _ => "",
    };
    let place = item["place"].as_u64().unwrap_or_default() + 1;
    let mut told =
        format!("{} {}{}\n", style.dim(format!("{place:>4}")), style.bold(word(item, "role")), style.dim(mark));
    for line in body.iter().flat_map(|piece| piece.lines()) {
        told.push_str(format!("     {line}").trim_end());
        told.push('\n');
    }
    told
}
