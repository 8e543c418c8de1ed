use std::fs;
use std::io::Write as _;
use std::path::Path;

use accelerate::data::Collate as _;
use flate2::{Compression, write::GzEncoder};
use image::{Rgb, RgbImage};

use super::*;

/// A file of digits: digit `d` is row `d % 8` in full ink.
fn digits(folder: &Path, lines: &[String]) {
    let file = fs::File::create(folder.join(digits::FILE)).unwrap();
    let mut packed = GzEncoder::new(file, Compression::fast());
    writeln!(packed, "{}", lines.join("\n")).unwrap();
    packed.finish().unwrap();
}

fn line(digit: u8) -> String {
    let values = (0..64u8).map(|place| if place / 8 == digit % 8 { "16" } else { "0" });
    let values: Vec<&str> = values.collect();
    format!("{},{digit}", values.join(","))
}

#[test]
fn digits_are_read_and_held_out_evenly() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..20).map(|number| line(number % 10)).collect();
    digits(folder.path(), &lines);
    let images = Images::open(folder.path()).unwrap();
    assert_eq!((images.len(), images.classes().len()), (20, 10));
    let (training, held_out) = images.split(0.2).unwrap();
    assert_eq!((training.len(), held_out.len()), (16, 4));
    let labels = |images: &Images| {
        let each = (0..images.len()).map(|index| images.get(index).unwrap().1);
        each.collect::<Vec<_>>()
    };
    assert_eq!(labels(&held_out), [4, 9, 4, 9]);
    assert!(!labels(&training).contains(&9));

    let eight = training.with_transform(Transform::resize(8));
    let (image, label) = eight.get(3).unwrap();
    assert_eq!(label, 3);
    assert_eq!(image.get_pixel(5, 3), &Rgb([255; 3]));
    assert_eq!(image.get_pixel(5, 4), &Rgb([0; 3]));
    let (pixels, labels) = ImageBatches
        .collate(vec![eight.get(0).unwrap(), eight.get(3).unwrap()])
        .unwrap();
    assert_eq!(pixels.size(), [2, 3, 8, 8]);
    assert!((pixels.double_value(&[1, 0, 3, 0]) - (1.0 - 0.485) / 0.229).abs() < 1e-6);
    assert!((pixels.double_value(&[0, 2, 3, 0]) + 0.406 / 0.225).abs() < 1e-6);
    assert_eq!(Vec::<i64>::try_from(labels).unwrap(), [0, 3]);
}

#[test]
fn folders_are_classes() {
    let folder = tempfile::tempdir().unwrap();
    for (class, colour) in [("blue", [0, 0, 255]), ("red", [255, 0, 0])] {
        fs::create_dir(folder.path().join(class)).unwrap();
        for name in ["b.PNG", "a.png"] {
            let image = RgbImage::from_pixel(5, 7, Rgb(colour));
            image
                .save_with_format(
                    folder.path().join(class).join(name),
                    image::ImageFormat::Png,
                )
                .unwrap();
        }
    }
    fs::write(folder.path().join("red/notes.txt"), "no image").unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    let images = Images::open(folder.path()).unwrap();
    assert_eq!(images.classes(), ["blue", "red"]);
    assert_eq!(images.len(), 4);
    let images = images.with_transform(Transform::resize(4));
    let (image, label) = images.get(3).unwrap();
    assert_eq!((image.dimensions(), label), ((4, 4), 1));
    assert_eq!(image.get_pixel(0, 0), &Rgb([255, 0, 0]));

    fs::write(folder.path().join("red/b.PNG"), "broken").unwrap();
    let error = images.get(3).unwrap_err();
    let cause =
        std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
    assert!(cause.contains("red/b.PNG"), "{error}: {cause}");
}

#[test]
fn random_parts_stay_inside_and_differ() {
    let image = RgbImage::from_fn(20, 10, |x, y| Rgb([x as u8, y as u8, 0]));
    let transform = Transform::resize(6)
        .with_random_crop(0.3)
        .with_random_flip(true);
    let results: Vec<RgbImage> = (0..30).map(|_| transform.apply(&image)).collect();
    assert!(results.iter().all(|result| result.dimensions() == (6, 6)));
    assert!(results.iter().any(|result| result != &results[0]));
    let rising = |result: &RgbImage| result.get_pixel(0, 0)[0] < result.get_pixel(5, 0)[0];
    let mirrored = results.iter().filter(|result| !rising(result)).count();
    assert!((5..25).contains(&mirrored), "{mirrored} of 30 are mirrored");
    // The smallest image that there is.
    let dot = RgbImage::from_pixel(1, 1, Rgb([9; 3]));
    assert_eq!(transform.apply(&dot).get_pixel(5, 5), &Rgb([9; 3]));
}

#[test]
fn bad_data_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Images::open(folder.path()).unwrap_err();
    assert!(
        matches!(error, ImagesError::Classes { found: 0, .. }),
        "{error}"
    );
    let error = Images::open(folder.path().join("nowhere")).unwrap_err();
    assert!(error.to_string().contains("cargo xtask setup"), "{error}");
    for broken in [
        "1,2,3".to_owned(),
        line(3).replace("16,", "17,"),
        line(3).replace(",3", ",x"),
    ] {
        digits(folder.path(), &[line(1), broken]);
        let error = Images::open(folder.path()).unwrap_err();
        assert!(
            matches!(error, ImagesError::Line { line: 2, .. }),
            "{error}"
        );
    }
    digits(folder.path(), &[line(1), line(2)]);
    let error = Images::open(folder.path()).unwrap().split(0.0).unwrap_err();
    assert!(
        matches!(error, ImagesError::TooFew { found: 2, .. }),
        "{error}"
    );
}
