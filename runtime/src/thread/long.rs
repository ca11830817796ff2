//! What is too long to be shown: results and events by their beginning and end, with a handle for the rest.
//!
//! In: items on their way into the history, `read_result`, and prompts that did not fit. Out: items that are short enough, and
//! parts of what was left out. Always: the record keeps all of it, and so does the thread while it is in memory; a cut never
//! splits a character; pictures are shown whole or named with their size.

use super::{Answer, Step, Thread};
use crate::history::{AnsweredBy, History, Item};
use crate::id::CallId;
use crate::record::Content;
use std::ops::Range;
use std::sync::Arc;

/// How long the text of one result or event may be in the model's view, in bytes. What is longer is shown by its beginning
/// and end. Part of the rules of the fold, and therefore not configurable.
pub const RESULT_SHOWN_BYTES_MAX: usize = 32 * 1_024;

/// How long a picture or PDF of a result or event may be, in bytes of base64. One that is longer is named and not shown.
pub const PICTURE_SHOWN_BYTES_MAX: usize = 5 * 1_024 * 1_024;

/// How long another file of a result or event may be, in bytes of base64: as much text as is shown. One that is longer is named.
pub const FILE_SHOWN_BYTES_MAX: usize = RESULT_SHOWN_BYTES_MAX / 3 * 4;

/// How long one text may be after a prompt did not fit and nothing was left to summarize, in bytes.
pub const FITTED_BYTES_MAX: usize = 4 * 1_024;

/// How long a picture or file may be then, in bytes of base64.
pub const FITTED_PICTURE_BYTES_MAX: usize = 64 * 1_024;

/// How much one `read_result` reads at most, in bytes.
pub const READ_BYTES_MAX: usize = 24 * 1_024;

impl Thread {
    /// The item as the model sees it. What is left out of it is kept under a handle.
    pub(super) fn shown(&mut self, item: &Arc<Item>) -> Arc<Item> {
        let id = match &**item {
            Item::Result(answer) => answer.call,
            Item::Event(event) => event.id,
            Item::User { .. } | Item::Assistant { .. } | Item::Summary(_) => return item.clone(),
        };
        self.cut_down(item, id, RESULT_SHOWN_BYTES_MAX, PICTURE_SHOWN_BYTES_MAX)
    }

    /// Cuts what is longest in the history, because a prompt does not fit and nothing can be summarized: in what tools and
    /// others said, or in what users said. Returns whether there was anything to cut.
    pub(super) fn cut_history(&mut self, step: &Step, of_users: bool) -> bool {
        let mut cut: u16 = 0;
        let items: Vec<Arc<Item>> = self.history.to_vec().into_iter().cloned().collect();
        let mut history = History::default();
        for item in items {
            let may = match &*item {
                Item::User { .. } => of_users,
                Item::Result(_) | Item::Event(_) => !of_users,
                Item::Assistant { .. } | Item::Summary(_) => false,
            };
            let id = CallId { number: step.number, index: cut };
            let shown = match may {
                true => self.cut_down(&item, id, FITTED_BYTES_MAX, FITTED_PICTURE_BYTES_MAX),
                false => item.clone(),
            };
            cut = cut.saturating_add(u16::from(!Arc::ptr_eq(&shown, &item)));
            history.push(shown);
        }
        if cut > 0 {
            self.history = history;
        }
        cut > 0
    }

    fn cut_down(&mut self, item: &Arc<Item>, id: CallId, bytes_max: usize, picture_max: usize) -> Arc<Item> {
        let content = match &**item {
            Item::User { content, .. } => content,
            Item::Result(answer) => &answer.content,
            Item::Event(event) => &event.content,
            Item::Assistant { .. } | Item::Summary(_) => return item.clone(),
        };
        let texts = || content.iter().filter_map(text_of);
        let is_long = texts().map(str::len).sum::<usize>() > bytes_max;
        if !is_long && !content.iter().any(|piece| is_too_large(piece, picture_max)) {
            return item.clone();
        }
        let mut pieces = Vec::new();
        if is_long {
            // The depth is part of the name: a child knows what its ancestors left out under their names.
            let handle = match self.path().len() {
                0 => format!("result_{}_{}", id.number, id.index),
                depth => format!("result_{depth}_{}_{}", id.number, id.index),
            };
            let whole = texts().collect::<Vec<_>>().join("\n");
            pieces.push(Content::Text(ends(&whole, &handle, bytes_max)));
            self.left_out.insert(handle, whole.into());
        }
        pieces.extend(content.iter().filter(|piece| !is_long || text_of(piece).is_none()).map(|piece| match piece {
            Content::Image { media_type, data } if is_too_large(piece, picture_max) => Content::Text(format!(
                "[A picture ({media_type}) of {} bytes in base64 was here, which is too large to be shown.]",
                data.len()
            )),
            Content::File { name, media_type, data } if is_too_large(piece, picture_max) => Content::Text(format!(
                "[The file {name} ({media_type}) of {} bytes in base64 was here, which is too large to be shown.]",
                data.len()
            )),
            piece => piece.clone(),
        }));
        let mut item = Item::clone(item);
        match &mut item {
            Item::User { content, .. } => *content = pieces,
            Item::Result(answer) => answer.content = pieces,
            Item::Event(event) => event.content = pieces,
            Item::Assistant { .. } | Item::Summary(_) => {}
        }
        Arc::new(item)
    }

    /// What `read_result` does.
    pub(super) fn read(&self, handle: &str, offset: u64, length: Option<u64>) -> Answer {
        let Some(whole) = self.left_out.get(handle) else {
            return Answer::refusal(format!(
                "There is no {handle} to read: handles stand between the beginning and the end of what was too long to be shown."
            ));
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if start >= whole.len() {
            return Answer::refusal(format!(
                "{handle} has {} bytes: there is nothing at {offset}. Give a smaller offset.",
                whole.len()
            ));
        }
        let length = length.map_or(READ_BYTES_MAX, |length| usize::try_from(length).unwrap_or(usize::MAX));
        let Range { start, end } = part(whole, start, length.min(READ_BYTES_MAX));
        let more = if end < whole.len() { format!("; go on with offset {end}") } else { String::new() };
        let text = format!("[Bytes {start} to {end} of {} of {handle}{more}]\n{}", whole.len(), &whole[start..end]);
        Answer::text(AnsweredBy::BuiltIn, text)
    }
}

fn text_of(piece: &Content) -> Option<&str> {
    match piece {
        Content::Text(text) => Some(text),
        Content::Image { .. } | Content::File { .. } => None,
    }
}

fn is_too_large(piece: &Content, picture_max: usize) -> bool {
    match piece {
        Content::Text(_) => false,
        Content::Image { data, .. } => data.len() > picture_max,
        Content::File { data, media_type, .. } if media_type == "application/pdf" => data.len() > picture_max,
        Content::File { data, .. } => data.len() > picture_max.min(FILE_SHOWN_BYTES_MAX),
    }
}

/// The beginning and the end of a text, and between them what to do about the rest.
fn ends(whole: &str, handle: &str, bytes_max: usize) -> String {
    let head = part(whole, 0, bytes_max / 2).end;
    let tail = whole.ceil_char_boundary(whole.len() - bytes_max / 4);
    format!(
        "{}\n\n[… {} of {} bytes are left out here; read them with read_result, handle {handle}, from offset {head} …]\n\n{}",
        &whole[..head],
        tail - head,
        whole.len(),
        &whole[tail..]
    )
}

/// Which whole characters stand there: as many as fit, at least one.
fn part(whole: &str, start: usize, length: usize) -> Range<usize> {
    let start = whole.floor_char_boundary(start);
    let end = whole.floor_char_boundary(start.saturating_add(length));
    start..if end > start { end } else { whole.ceil_char_boundary(start + 1) }
}
