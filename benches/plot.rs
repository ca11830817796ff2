//! Plots, as SVG.
//!
//! In: lines of points. Out: a picture with axes that are logarithmic on both sides. Always: readable on light and dark
//! ground; the same points give the same bytes.

use std::fmt::Write as _;
use std::path::Path;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 90.0;
const BELOW: f64 = 56.0;
const ABOVE: f64 = 40.0;
const RIGHT: f64 = 24.0;
const COLOURS: [&str; 4] = ["#2a78b5", "#c8553d", "#588b4c", "#8a6bb0"];

/// A line: its name, and its points.
pub type Line = (String, Vec<(f64, f64)>);

/// Writes a plot.
pub fn write(path: &Path, title: &str, (x_name, y_name): (&str, &str), lines: &[Line]) -> std::io::Result<()> {
    let all = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let x = Axis::over(all().map(|(x, _)| x), LEFT, WIDTH - RIGHT);
    let y = Axis::over(all().map(|(_, y)| y), HEIGHT - BELOW, ABOVE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#777\">\n"
    );
    let text = |svg: &mut String, x: f64, y: f64, rest: &str, words: &str| {
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {rest}>{words}</text>");
    };
    let rule = |svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)| {
        let _ = writeln!(
            svg,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#999\" stroke-opacity=\"0.4\"/>"
        );
    };
    text(&mut svg, LEFT, 22.0, "font-size=\"15\"", title);
    for tick in x.ticks() {
        rule(&mut svg, (x.place(tick), ABOVE), (x.place(tick), HEIGHT - BELOW));
        text(&mut svg, x.place(tick), HEIGHT - BELOW + 18.0, "text-anchor=\"middle\"", &short(tick));
    }
    for tick in y.ticks() {
        rule(&mut svg, (LEFT, y.place(tick)), (WIDTH - RIGHT, y.place(tick)));
        text(&mut svg, LEFT - 8.0, y.place(tick) + 4.0, "text-anchor=\"end\"", &short(tick));
    }
    text(&mut svg, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0, "text-anchor=\"middle\"", x_name);
    let middle = (ABOVE + HEIGHT - BELOW) / 2.0;
    let turned = format!("text-anchor=\"middle\" transform=\"rotate(-90 18 {middle:.1})\"");
    text(&mut svg, 18.0, middle, &turned, y_name);
    for (at, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let places: Vec<_> = points.iter().map(|&(px, py)| format!("{:.1},{:.1}", x.place(px), y.place(py))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            places.join(" ")
        );
        for place in &places {
            let (px, py) = place.split_once(',').expect("invariant: a place has two parts");
            let _ = writeln!(svg, "<circle cx=\"{px}\" cy=\"{py}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
        text(&mut svg, LEFT + 12.0, ABOVE + 18.0 + 16.0 * at as f64, &format!("fill=\"{colour}\""), name);
    }
    svg.push_str("</svg>\n");
    std::fs::write(path, svg)
}

/// A logarithmic axis, from one power of ten to another.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let low = low.max(1e-9).log10().floor();
        Self { low, high: high.log10().ceil().max(low + 1.0), from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.log10() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10_f64.powi(power))
    }
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{}G", value / 1e9),
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{value}"),
    }
}
