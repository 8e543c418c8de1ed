use super::*;

fn drawn(curves: &Curves) -> String {
    picture::draw(curves).unwrap()
}

#[test]
fn lines_of_one_panel_share_it() {
    let curves = Curves::new("a <b> & c")
        .line("loss/training", &[(1, 2.0), (2, 1.0), (3, 0.5)])
        .line("rate", &[(1, 1e-5), (3, 5e-4)])
        .line("loss/evaluation", &[(3, 0.7)]);
    assert_eq!(curves.panels.len(), 2);
    let svg = drawn(&curves);
    for text in ["a &lt;b&gt; &amp; c", "training", "evaluation", "rate"] {
        assert!(svg.contains(text), "`{text}` is not in {svg}");
    }
    assert_eq!(svg.matches("<circle").count(), 1, "one lone point: {svg}");
}

#[test]
fn gaps_are_left_and_nothing_to_draw_is_told() {
    let line = |points: &[(u64, f64)]| drawn(&Curves::new("t").line("loss", points));
    let polylines = |svg: &str| svg.matches("<polyline").count();
    let whole = line(&[(1, 1.0), (2, 1.5), (3, 2.0), (4, 1.0), (5, 2.0)]);
    let broken = line(&[(1, 1.0), (2, 1.5), (3, f64::NAN), (4, 1.0), (5, 2.0)]);
    assert_eq!(polylines(&broken), polylines(&whole) + 1);
    let constant = line(&[(7, 0.0)]);
    assert!(constant.contains("<circle"));
    let nothing = Curves::new("t").line("loss", &[(1, f64::INFINITY)]);
    let error = nothing.save("/nowhere/at/all.svg").unwrap_err().to_string();
    assert!(error.contains("no line with a finite value"), "{error}");
    let error = Curves::new("t")
        .line("loss", &[(1, 1.0)])
        .save("/nowhere/at/all.svg");
    assert!(matches!(error, Err(CurvesError::Write { .. })), "{error:?}");
}

#[test]
fn many_points_are_thinned_and_peaks_stay() {
    let mut points: Vec<(u64, f64)> = (0..100_000).map(|step| (step, 1.0)).collect();
    points[54_321].1 = 9.0;
    points[54_399].1 = -9.0;
    points[77_777].1 = f64::NAN;
    let thinned = thinning::thinned(&points);
    assert!(thinned.len() <= 2000, "{}", thinned.len());
    assert!(thinned.contains(&(54_321, 9.0)) && thinned.contains(&(54_399, -9.0)));
    assert_eq!(
        thinned.iter().filter(|(_, value)| value.is_nan()).count(),
        1
    );
    assert!(thinned.is_sorted_by_key(|(step, _)| *step));
}
