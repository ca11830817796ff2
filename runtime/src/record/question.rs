//! What people are asked on behalf of a call, what they answer, and what they are shown beside.
//!
//! In: what tools, the runtime and people say. Out: records of [`super::Record`]. Always: as for all records, fields and
//! variants keep their places.

use super::Origin;
use crate::id::{CallId, InputId, Number};
use serde::{Deserialize, Serialize};

/// Something that a person is asked on behalf of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The call that cannot go on without it.
    pub call: CallId,
    /// Who asks.
    pub origin: Origin,
    /// What is asked.
    pub asks: Asks,
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asks {
    /// Whether the call may be done at all. No tool has been asked to do it yet.
    Approval {
        /// Why somebody has to be asked.
        reason: String,
    },
    /// Which of these it is to be. The tool waits for the answer.
    Choice {
        /// What is asked.
        prompt: String,
        /// What can be answered.
        choices: Vec<String>,
        /// The place of the default among the choices, from 0.
        default: u32,
        /// Where the tool wants to be told.
        respond_to: String,
    },
    /// To authorize the tool somewhere. The tool notices that itself.
    Authorization {
        /// Where a person goes.
        url: String,
    },
}

/// A person's answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The sender's name for it.
    pub id: InputId,
    /// Who answered.
    pub origin: Origin,
    /// The question: the number of its record.
    pub question: Number,
    /// What was answered.
    pub answer: Decision,
}

/// What a person answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call may be done.
    Approve,
    /// It may not.
    Deny {
        /// Why, for the model.
        reason: Option<String>,
    },
    /// This one of the choices.
    Choose {
        /// Its place among them, from 0.
        index: u32,
    },
}

/// Something that a tool has for clients that show views. The model does not see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewUpdate {
    /// The call that it belongs to.
    pub call: CallId,
    /// Who sent it.
    pub origin: Origin,
    /// Which kind of view, for example `diff`.
    pub view_type: String,
    /// What it shows: the tool's own JSON as text.
    pub content: String,
}
