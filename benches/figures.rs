//! Figures, as people read them or as one line of JSON each.
//!
//! In: what was measured, in several runs. Out: the median with the lowest and the highest, on standard output. Always: a
//! figure has a name, a unit, and the floor that was measured in the same run, if there is one.

use serde_json::{Value, json};

/// Where figures are shown.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub json: bool,
}

impl Figures {
    /// What follows, in words; not in JSON.
    pub fn head(&self, words: &str) {
        if !self.json {
            println!("{words}");
        }
    }

    /// Shows a figure and returns its median.
    pub fn show(&self, measure: &str, values: Vec<f64>, unit: &str, floor: Option<f64>) -> f64 {
        let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let value = median(values);
        if self.json {
            let floor = floor.map_or(Value::Null, |floor| json!(rounded(floor)));
            println!("{}", json!({"measure": measure, "value": rounded(value), "unit": unit, "floor": floor}));
        } else {
            let floor = floor.map_or(String::new(), |floor| format!("floor {}", shown(floor)));
            let spread = format!("({} to {})", shown(low), shown(high));
            println!("{measure:36} {:>12} {unit:6} {spread:26} {floor}", shown(value));
        }
        value
    }
}

/// The value in the middle.
pub fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which this part of them lies.
pub fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * part) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

fn rounded(value: f64) -> f64 {
    if value.abs() >= 100.0 { value.round() } else { (value * 1000.0).round() / 1000.0 }
}

fn shown(value: f64) -> String {
    rounded(value).to_string()
}
