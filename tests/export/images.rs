//! The images of an export, built and entered without a container engine, by buildah.
//!
//! In: an export whose programs are built. Out: images in a storage of the test's own, each with a program that starts. Always:
//! the base is made of Debian's packages where no registry can be asked, under the name that the Dockerfiles use.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// buildah with a storage of its own, without namespaces and overlays: both are refused in many places.
pub(crate) struct Buildah(PathBuf);

impl Buildah {
    /// Nothing, with a word for whoever runs the test, where it cannot be used.
    pub(crate) fn found(place: &Path) -> Option<Self> {
        for (program, argument) in [("buildah", "--version"), ("mmdebstrap", "--version")] {
            if Command::new(program).arg(argument).output().is_err() {
                eprintln!("skipped: {program} is not installed (apt-get install buildah crun mmdebstrap)");
                return None;
            }
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: building images without an engine needs root");
            return None;
        }
        Some(Self(place.join("storage")))
    }

    /// Runs it, and insists that it goes well unless the outcome is looked at.
    pub(crate) fn try_run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.0.join("root")).arg("--runroot").arg(self.0.join("run"));
        command.args(["--storage-driver", "vfs"]).args(arguments).env("BUILDAH_ISOLATION", "chroot");
        command.output().unwrap()
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.try_run(arguments);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "buildah {arguments:?}: {out}\n{err}");
        out.trim().to_owned()
    }

    /// Makes the base image out of packages.
    pub(crate) fn make_base(&self, image: &str, suite: &str) {
        let archive = self.0.with_extension("tar");
        let mut command = Command::new("mmdebstrap");
        command.args(["--quiet", "--variant=minbase", "--mode=root", suite]).arg(&archive);
        assert!(command.status().unwrap().success(), "mmdebstrap");
        let container = self.run(&["from", "scratch"]);
        self.run(&["add", &container, archive.to_str().unwrap(), "/"]);
        self.run(&["commit", "--quiet", &container, &format!("docker.io/library/{image}")]);
        self.run(&["rm", &container]);
        std::fs::remove_file(archive).unwrap();
    }

    /// Builds an image as its Dockerfile says, and returns a container of it.
    pub(crate) fn build(&self, context: &Path, file: &str, tag: &str) -> String {
        let dockerfile = context.join(file);
        let arguments = ["bud", "--quiet", "--pull-never", "--file", dockerfile.to_str().unwrap(), "--tag", tag];
        self.run(&[&arguments[..], &[context.to_str().unwrap()]].concat());
        self.run(&["from", "--pull-never", &format!("localhost/{tag}")])
    }
}
