//! A table: aligned on the screen, or as comma-separated values.

use std::fmt;

/// Columns with a heading, and rows of as many cells.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

struct Column {
    heading: &'static str,
    // For programs.
    name: &'static str,
    numeric: bool,
}

/// A cell, once for people and once for programs.
pub(crate) struct Cell {
    shown: String,
    raw: String,
}

// === impl Table ===

impl Table {
    /// Headings that begin with `>` are those of numbers, which stand on the right. After a `|` comes
    /// the name for programs where that is another one.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        let columns = headings.iter().map(|text| {
            let plain = text.trim_start_matches('>');
            let (heading, name) = plain.split_once('|').unwrap_or((plain, plain));
            Column {
                heading,
                name,
                numeric: text.starts_with('>'),
            }
        });
        Self {
            columns: columns.collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn csv(&self) -> String {
        let headings = self.columns.iter().map(|column| quoted(column.name));
        let mut csv = headings.collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            let cells = row.iter().map(|cell| quoted(&cell.raw));
            csv += &(cells.collect::<Vec<_>>().join(",") + "\n");
        }
        csv
    }
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| row[column].shown.as_str());
                let all = cells.chain([self.columns[column].heading]);
                all.map(|text| text.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for ((text, column), &width) in cells.zip(&self.columns).zip(&widths) {
                if !line.is_empty() {
                    line += "  ";
                }
                line += &match column.numeric {
                    true => format!("{text:>width$}"),
                    false => format!("{text:<width$}"),
                };
            }
            writeln!(f, "{}", line.trim_end())
        };
        line(&mut self.columns.iter().map(|column| column.heading))?;
        for row in &self.rows {
            line(&mut row.iter().map(|cell| cell.shown.as_str()))?;
        }
        Ok(())
    }
}

// === impl Cell ===

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            raw: text.clone(),
            shown: text,
        }
    }

    /// A whole number, in groups of three.
    pub(crate) fn count(count: u64) -> Self {
        Self {
            shown: grouped(count),
            raw: count.to_string(),
        }
    }

    pub(crate) fn decimal(number: f64, digits: usize) -> Self {
        Self::text(format!("{number:.digits$}"))
    }

    /// Nothing to say.
    pub(crate) fn none() -> Self {
        Self {
            shown: "-".into(),
            raw: String::new(),
        }
    }

    /// A decimal where there is one.
    pub(crate) fn maybe(number: Option<f64>, digits: usize) -> Self {
        number.map_or_else(Self::none, |number| Self::decimal(number, digits))
    }

    /// A histogram, a character for each count; for programs the counts.
    ///
    /// Equal steps are equal factors, for one arrival must be seen beside ten thousand.
    pub(crate) fn bars(counts: &[u64], highest: u64) -> Self {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let top = (highest.max(2) as f64).ln();
        let bar = |count: &u64| match *count {
            0 => ' ',
            count => BARS[((count as f64).ln() / top * 7.0).round().min(7.0) as usize],
        };
        Self {
            shown: counts.iter().map(bar).collect(),
            raw: counts
                .iter()
                .map(u64::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        }
    }

    /// Whether everybody got through; for programs how many did not.
    pub(crate) fn through(lost: u64) -> Self {
        Self {
            shown: match lost {
                0 => "yes".into(),
                lost => format!("LOST {}", grouped(lost)),
            },
            raw: lost.to_string(),
        }
    }
}

/// A number in groups of three digits: `12 345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}
