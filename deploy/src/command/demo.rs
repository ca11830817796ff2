use super::Failure;
#[derive(clap::Args)]
pub(crate) struct Arguments {}
pub(crate) fn run(_: Arguments) -> Result<(), Failure> {
    Ok(())
}
