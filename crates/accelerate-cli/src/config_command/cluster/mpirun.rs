//! Whether MPI starts the processes on CPU machines.

use accelerate_plan::env::{Environment, HOME};

use super::job::{Job, Machine};
use crate::config_command::{
    ask::{Ask, question},
    error::Result,
    record::Section,
};

pub(super) fn interview(ask: &mut dyn Ask, job: &Job, record: &mut Section) -> Result<()> {
    if job.machine != Machine::MultiCpu {
        return Ok(());
    }
    let q = question(
        "Should `mpirun` start the processes?",
        "needs an MPI on every machine",
    );
    if ask.yes_no(q, false)? {
        let q = question(
            "Where is the hostfile for `mpirun`?",
            "it lists the machines and how many processes each may run",
        );
        let path = ask.text(q, Some("~/hostfile"))?;
        let mut section = Section::default();
        let home = Environment::from_process().get(&HOME)?;
        section.set("mpirun_hostfile", expand_home(path, home.as_deref()));
        record.set_section("mpirun_config", section);
    }
    Ok(())
}

/// `~` and `~/...` are below the home folder; what cannot be expanded stays as it is.
fn expand_home(path: String, home: Option<&str>) -> String {
    match (path.strip_prefix('~'), home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            format!("{}{rest}", home.trim_end_matches('/'))
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_folder_is_put_in() {
        for (path, expected) in [
            ("~/hostfile", "/home/me/hostfile"),
            ("~", "/home/me"),
            ("~other/hostfile", "~other/hostfile"),
            ("/etc/hosts", "/etc/hosts"),
        ] {
            assert_eq!(expand_home(path.to_owned(), Some("/home/me/")), expected);
        }
        assert_eq!(expand_home("~/hostfile".to_owned(), None), "~/hostfile");
    }
}
