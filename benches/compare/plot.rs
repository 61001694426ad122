//! The picture of a comparison, as SVG: a bar for each allocator, the means large, the workloads small.
//!
//! By a library that writes SVG and not by one of charts, for the sake of the style sheet: the same file
//! is light on a light page and dark on a dark one.

use crate::support::fail;
use serde_json::Value;
use std::path::Path;
use svg::Document;
use svg::node::element::{Line, Rectangle, Style, Text};

const LABELS: f64 = 210.0;
const COLUMN: f64 = 36.0;
const GAP: f64 = 28.0;
const MARGIN: f64 = 16.0;
/// Of the title and the slanted names of the allocators.
const HEAD: f64 = 150.0;
/// The bars of a workload end here, and say how far they would have gone.
const MOST: f64 = 3.0;

const STYLE: &str = "\
text { font-family: system-ui, sans-serif; font-size: 12px; fill: #24292f }
.page { fill: #ffffff }
.small { font-size: 9.5px; fill: #57606a }
.title { font-size: 15px; font-weight: 600 }
.peer { fill: #a3adb8 }
.ours { fill: #0969da }
.line { stroke: #57606a; stroke-width: 1; stroke-dasharray: 3 3 }
.base { stroke: #afb8c1; stroke-width: 1 }
.failed { fill: #cf222e; font-weight: 700 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.page { fill: #0d1117 }
.small { fill: #9198a1 }
.peer { fill: #656d76 }
.ours { fill: #4493f8 }
.line { stroke: #9198a1 }
.base { stroke: #3d444d }
.failed { fill: #f85149 }
}";

/// One bar, or what stands in its place.
enum Bar {
    Ratio(f64),
    Failed,
    Nothing,
}

impl Bar {
    fn of(ratio: &Value) -> Bar {
        ratio.as_f64().map_or(Bar::Nothing, Bar::Ratio)
    }

    fn ratio(&self) -> f64 {
        match self {
            Bar::Ratio(ratio) => *ratio,
            _ => 0.0,
        }
    }
}

struct Picture {
    svg: Document,
    names: Vec<String>,
    ours: Vec<bool>,
    y: f64,
}

/// Tenths of a pixel are enough.
fn at(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

fn text(x: f64, y: f64, class: &str, text: &str) -> Text {
    Text::new(text)
        .set("x", at(x))
        .set("y", at(y))
        .set("class", class)
}

impl Picture {
    fn section(&self, section: usize) -> f64 {
        LABELS + section as f64 * (self.names.len() as f64 * COLUMN + GAP)
    }

    fn width(&self) -> f64 {
        self.section(2) - GAP + MARGIN + 50.0
    }

    fn add(&mut self, node: impl svg::Node) {
        svg::Node::append(&mut self.svg, node);
    }

    fn line(&mut self, section: usize, y: f64, class: &str) {
        let from = self.section(section);
        let to = from + self.names.len() as f64 * COLUMN;
        self.add(
            Line::new()
                .set("x1", at(from))
                .set("x2", at(to))
                .set("y1", at(y))
                .set("y2", at(y))
                .set("class", class),
        );
    }

    fn heads(&mut self) {
        for (section, title) in ["CPU time", "peak resident memory"].into_iter().enumerate() {
            let x = self.section(section);
            self.add(text(x, 26.0, "title", title));
            self.add(text(
                x,
                42.0,
                "small",
                "over the best peer's: less is better",
            ));
            for i in 0..self.names.len() {
                let (x, y) = (x + (i as f64 + 0.55) * COLUMN, HEAD - 8.0);
                let name = self.names[i].clone();
                let slanted = format!("rotate(-50 {} {})", at(x), at(y));
                self.add(text(x, y, "", &name).set("transform", slanted));
            }
        }
        self.y = HEAD;
    }

    /// One row of both sections: its name, what it is, and a bar for each allocator.
    fn row(&mut self, name: &str, what: &str, height: f64, bars: [Vec<Bar>; 2], large: bool) {
        let base = self.y + height;
        let class = if large { "title" } else { "" };
        self.add(text(MARGIN, base - height / 3.0, class, name));
        self.add(text(MARGIN, base - height / 3.0 + 13.0, "small", what));
        let longest = bars.iter().flatten().map(Bar::ratio).fold(2.0, f64::max);
        let most = if large { longest } else { MOST };
        let unit = (height - 14.0) / most;
        for (section, bars) in bars.into_iter().enumerate() {
            for (i, bar) in bars.into_iter().enumerate() {
                let x = self.section(section) + i as f64 * COLUMN;
                let middle = x + COLUMN / 2.0;
                let centred =
                    |y, class, said| text(middle, y, class, said).set("text-anchor", "middle");
                match bar {
                    Bar::Nothing => {}
                    Bar::Failed => self.add(centred(base - 4.0, "failed", "×")),
                    Bar::Ratio(ratio) => {
                        let tall = ratio.min(most) * unit;
                        let class = if self.ours[i] { "ours" } else { "peer" };
                        self.add(
                            Rectangle::new()
                                .set("x", at(x + 7.0))
                                .set("y", at(base - tall))
                                .set("width", COLUMN - 14.0)
                                .set("height", at(tall))
                                .set("class", class),
                        );
                        if large || ratio >= 1.255 {
                            let said =
                                format!("{ratio:.prec$}", prec = if ratio < 10.0 { 2 } else { 0 });
                            self.add(centred(base - tall - 3.0, "small", &said));
                        }
                    }
                }
            }
            self.line(section, base, "base");
            self.line(section, base - unit, "line");
        }
        self.y = base + 14.0;
    }
}

pub fn draw(from: &Path, to: &Path) {
    let json = std::fs::read_to_string(from);
    let json = json.unwrap_or_else(|e| fail(format!("{}: {e}", from.display())));
    let results: Value =
        serde_json::from_str(&json).unwrap_or_else(|e| fail(format!("{}: {e}", from.display())));
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let (allocators, rows) = (list(&results["allocators"]), list(&results["rows"]));
    if allocators.is_empty() || rows.is_empty() {
        fail(format!("{}: no results of this benchmark", from.display()));
    }
    let word = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let mut picture = Picture {
        svg: Document::new().add(Style::new(STYLE)).add(
            Rectangle::new()
                .set("class", "page")
                .set("width", "100%")
                .set("height", "100%"),
        ),
        names: allocators.iter().map(|a| word(&a["name"])).collect(),
        ours: allocators.iter().map(|a| a["peer"] == false).collect(),
        y: 0.0,
    };
    picture.heads();
    let means = |key: &str| allocators.iter().map(|a| Bar::of(&a[key])).collect();
    let what = format!("{} workloads, {} rounds", rows.len(), results["rounds"]);
    let bars = [means("cpu_mean"), means("memory_mean")];
    picture.row("geometric mean", &what, 120.0, bars, true);
    for row in &rows {
        let bars = ["cpu_ratio", "memory_ratio"].map(|key| {
            let bar = |name: &String| {
                let cells = list(&row["cells"]);
                let cell = cells.iter().find(|c| word(&c["allocator"]) == *name);
                match cell {
                    Some(c) if c["failure"].is_string() => Bar::Failed,
                    Some(c) => Bar::of(&c[key]),
                    None => Bar::Nothing,
                }
            };
            picture.names.iter().map(bar).collect()
        });
        picture.row(
            &word(&row["workload"]),
            &word(&row["what"]),
            48.0,
            bars,
            false,
        );
    }
    let note =
        "dashed: the best peer; ×: crashed, hung or computed something else, and is in no mean";
    let y = picture.y + 8.0;
    picture.add(text(MARGIN, y, "small", note));
    let (width, height) = (picture.width().ceil(), (y + MARGIN).ceil());
    let svg = picture
        .svg
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height);
    svg::save(to, &svg).unwrap_or_else(|e| fail(format!("{}: {e}", to.display())));
    println!("{} drawn from {}", to.display(), from.display());
}
