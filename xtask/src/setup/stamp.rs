//! The note that a folder is whole: what it was made from, and the size of each file.

use std::fs;
use std::io;
use std::path::Path;

use crate::failure::Failure;

/// The name of the note within its folder.
const NAME: &str = ".stamp";

/// Notes that `folder` is now whole and was made by `recipe`.
pub(super) fn write(folder: &Path, recipe: &str) -> Result<(), Failure> {
    let path = folder.join(NAME);
    let failed = |error| Failure::because(format!("cannot write `{}`", path.display()), error);
    let mut lines = vec![recipe.to_owned()];
    list(folder, "", &mut lines).map_err(failed)?;
    // Renamed into place: a note cut off by a crash could say too little.
    let aside = folder.join(".stamp.partial");
    fs::write(&aside, lines.join("\n") + "\n").map_err(failed)?;
    fs::rename(&aside, &path).map_err(failed)
}

/// Whether `folder` was made by `recipe` and every file still has its size.
pub(super) fn holds(folder: &Path, recipe: &str) -> bool {
    let Ok(text) = fs::read_to_string(folder.join(NAME)) else {
        return false;
    };
    let mut lines = text.lines();
    lines.next() == Some(recipe)
        && lines.all(|line| {
            line.split_once(' ').is_some_and(|(size, name)| {
                fs::metadata(folder.join(name)).is_ok_and(|file| file.len().to_string() == size)
            })
        })
}

/// Adds a line for each file below `folder`, whose path from the top is `prefix`.
fn list(folder: &Path, prefix: &str, lines: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &format!("{name}/"), lines)?;
        } else if !name.starts_with(NAME) {
            lines.push(format!("{} {name}", fs::metadata(entry.path())?.len()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_only_for_the_same_recipe_and_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        assert!(!holds(folder, "a==1"));
        fs::create_dir(folder.join("sub")).unwrap();
        fs::write(folder.join("sub/with space"), "123").unwrap();
        write(folder, "a==1").unwrap();
        assert!(holds(folder, "a==1"));
        assert!(!holds(folder, "a==2"));

        fs::write(folder.join("sub/with space"), "12").unwrap();
        assert!(!holds(folder, "a==1"));
        fs::remove_file(folder.join("sub/with space")).unwrap();
        assert!(!holds(folder, "a==1"));
    }

    #[test]
    fn writing_it_again_does_not_count_itself() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "1").unwrap();
        write(dir.path(), "a").unwrap();
        write(dir.path(), "a==1 b==2").unwrap();
        assert!(holds(dir.path(), "a==1 b==2"));
    }
}
