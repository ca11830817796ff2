//! Where the machines of a cluster are: which cloud, where in it, in which project.
//!
//! In: what a cluster file says. Out: that it is still so. Always: written down before the first machine is made and as long as
//! there are any, because Terraform looks only where it is told to: at another place it would find none, and those that are there
//! would go on and cost.

use super::Cloud;
use crate::command::Failure;
use serde::{Deserialize, Serialize};
use slackwater::host::directory;
use std::path::{Path, PathBuf};

/// Where machines are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Site {
    kind: String,
    place: String,
    project: Option<String>,
}

impl Site {
    fn of(cloud: &Cloud) -> Self {
        Self { kind: cloud.kind.name().to_owned(), place: cloud.place.clone(), project: cloud.project.clone() }
    }

    /// Looks whether the machines that a cluster has are where it asks for some; it may ask for none.
    ///
    /// # Errors
    /// Names where they are.
    pub(super) fn check(wanted: Option<&Cloud>, workplace: &Path) -> Result<(), Failure> {
        let wanted = wanted.map(Self::of);
        let Some(there) = directory::read::<Self>(&file(workplace)).map_err(Failure::because)? else {
            return Ok(());
        };
        let fault = match wanted {
            Some(wanted) if wanted == there => return Ok(()),
            Some(wanted) => format!(
                "the file asks for some of {wanted}: Terraform would not find those that are there, and they would go on and cost. Give the old place back"
            ),
            None => "is to be started without them: they have its threads, and would go on and cost. Give the file that names them".to_owned(),
        };
        Err(Failure::Failed(format!(
            "the cluster has machines of {there}, and {fault}, destroy them before with `slackwater cluster destroy`, or give the new cluster another --directory"
        )))
    }

    /// Writes down where machines are going to be.
    pub(super) fn keep(cloud: &Cloud, workplace: &Path) -> Result<(), Failure> {
        directory::store(&file(workplace), &Self::of(cloud)).map_err(Failure::because)
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}", self.kind, self.place)?;
        self.project.iter().try_for_each(|project| write!(f, ", project {project}"))
    }
}

/// The file that says it.
pub(super) fn file(workplace: &Path) -> PathBuf {
    workplace.join("site.json")
}
