use std::cmp::Reverse;
use std::fmt::{self, Write as _};
use std::time::Duration;

use super::averages::{EventAverages, FunctionEventAvg};
use super::units::{flops_unit, memory, microseconds, share, time};
use crate::{Error, Result};

const NAME_WIDTH: usize = 55;
const SHAPES_WIDTH: usize = 80;
const USUAL_WIDTH: usize = 12;

/// In what unit a table shows times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
}

/// By what a table is sorted, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SortBy {
    CpuTime,
    CpuTimeTotal,
    SelfCpuTimeTotal,
    DeviceTime,
    DeviceTimeTotal,
    SelfDeviceTimeTotal,
    CpuMemoryUsage,
    SelfCpuMemoryUsage,
    DeviceMemoryUsage,
    SelfDeviceMemoryUsage,
    Count,
    Flops,
}

impl SortBy {
    const ALL: [(&'static str, Self); 12] = [
        ("cpu_time", Self::CpuTime),
        ("cpu_time_total", Self::CpuTimeTotal),
        ("self_cpu_time_total", Self::SelfCpuTimeTotal),
        ("device_time", Self::DeviceTime),
        ("device_time_total", Self::DeviceTimeTotal),
        ("self_device_time_total", Self::SelfDeviceTimeTotal),
        ("cpu_memory_usage", Self::CpuMemoryUsage),
        ("self_cpu_memory_usage", Self::SelfCpuMemoryUsage),
        ("device_memory_usage", Self::DeviceMemoryUsage),
        ("self_device_memory_usage", Self::SelfDeviceMemoryUsage),
        ("count", Self::Count),
        ("flops", Self::Flops),
    ];

    fn of(name: &str) -> Result<Self> {
        let general = ["cuda", "xpu", "privateuse1"]
            .iter()
            .fold(name.to_owned(), |name, device| {
                name.replace(device, "device")
            });
        Self::ALL
            .iter()
            .find(|(known, _)| *known == general)
            .map(|(_, sort_by)| *sort_by)
            .ok_or_else(|| Error::Argument {
                operation: "Table::sort_by",
                expected: Self::ALL.map(|(known, _)| known).join(", "),
                found: format!("`{name}`"),
            })
    }

    fn value(self, average: &FunctionEventAvg) -> i128 {
        let nanoseconds = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        match self {
            Self::CpuTime => nanoseconds(average.cpu_time()),
            Self::CpuTimeTotal => nanoseconds(average.cpu_time_total),
            Self::SelfCpuTimeTotal => nanoseconds(average.self_cpu_time_total),
            Self::DeviceTime => nanoseconds(average.device_time()),
            Self::DeviceTimeTotal => nanoseconds(average.device_time_total),
            Self::SelfDeviceTimeTotal => nanoseconds(average.self_device_time_total),
            Self::CpuMemoryUsage => average.cpu_memory_usage.into(),
            Self::SelfCpuMemoryUsage => average.self_cpu_memory_usage.into(),
            Self::DeviceMemoryUsage => average.device_memory_usage.into(),
            Self::SelfDeviceMemoryUsage => average.self_device_memory_usage.into(),
            Self::Count => average.count.into(),
            Self::Flops => average.flops.into(),
        }
    }
}

/// Sums over events as a table, to be printed.
///
/// # Source
/// `EventList.table`. A sort key that does not exist is an error that lists those that do.
#[derive(Debug, Clone)]
pub struct Table<'a> {
    averages: &'a EventAverages,
    sort_by: Option<SortBy>,
    row_limit: Option<usize>,
    header: Option<String>,
    time_unit: Option<TimeUnit>,
}

impl<'a> Table<'a> {
    pub(super) fn new(averages: &'a EventAverages) -> Self {
        Self {
            averages,
            sort_by: None,
            row_limit: Some(100),
            header: None,
            time_unit: None,
        }
    }

    /// Sorts by a column, such as `self_cpu_time_total`, the largest first.
    ///
    /// # Errors
    /// [`Error::Argument`] for a name that is none, with those there are.
    pub fn sort_by(mut self, name: &str) -> Result<Self> {
        self.sort_by = Some(SortBy::of(name)?);
        Ok(self)
    }

    /// Shows this many rows, not 100; `None` shows all.
    #[must_use]
    pub fn row_limit(mut self, rows: Option<usize>) -> Self {
        self.row_limit = rows;
        self
    }

    /// A line above the table.
    #[must_use]
    pub fn header(mut self, text: impl Into<String>) -> Self {
        self.header = Some(text.into());
        self
    }

    /// Shows all times in one unit.
    #[must_use]
    pub fn time_unit(mut self, unit: TimeUnit) -> Self {
        self.time_unit = Some(unit);
        self
    }

    fn rows(&self) -> Vec<&FunctionEventAvg> {
        let mut rows: Vec<_> = self.averages.averages.iter().collect();
        if let Some(sort_by) = self.sort_by {
            rows.sort_by_key(|average| Reverse(sort_by.value(average)));
        }
        rows
    }

    fn columns(&self) -> Vec<Column<'_>> {
        let all = &self.averages.averages;
        let unit = self.time_unit;
        let cpu = self.averages.self_cpu_time_total();
        let device = self.averages.self_device_time_total();
        let width = |longest: Option<usize>, most: usize| (longest.unwrap_or(0) + 4).min(most);
        let names = all.iter().map(|average| average.key.chars().count()).max();
        let mut columns = vec![
            Column::of("Name", width(names, NAME_WIDTH), |a| cut_name(&a.key)),
            Column::usual("Self CPU %", move |a| share(a.self_cpu_time_total, cpu)),
            Column::usual("Self CPU", move |a| total_time(a.self_cpu_time_total, unit)),
            Column::usual("CPU total %", move |a| match a.is_async {
                true => "0".to_owned(),
                false => share(a.cpu_time_total, cpu),
            }),
            Column::usual("CPU total", move |a| total_time(a.cpu_time_total, unit)),
            Column::usual("CPU time avg", move |a| {
                mean_time(a.cpu_time_total, a.count, unit)
            }),
        ];
        if self.has_device_time() {
            columns.extend([
                Column::usual("Self CUDA", move |a| {
                    total_time(a.self_device_time_total, unit)
                }),
                Column::usual("Self CUDA %", move |a| {
                    share(a.self_device_time_total, device)
                }),
                Column::usual("CUDA total", move |a| total_time(a.device_time_total, unit)),
                Column::usual("CUDA time avg", move |a| {
                    mean_time(a.device_time_total, a.count, unit)
                }),
            ]);
        }
        if self.averages.has_memory {
            columns.push(Column::usual("CPU Mem", |a| memory(a.cpu_memory_usage)));
            columns.push(Column::usual("Self CPU Mem", |a| {
                memory(a.self_cpu_memory_usage)
            }));
            if all
                .iter()
                .any(|average| average.self_device_memory_usage > 0)
            {
                columns.push(Column::usual("CUDA Mem", |a| memory(a.device_memory_usage)));
                columns.push(Column::usual("Self CUDA Mem", |a| {
                    memory(a.self_device_memory_usage)
                }));
            }
        }
        columns.push(Column::usual("# of Calls", |a| a.count.to_string()));
        let shapes = all
            .iter()
            .filter_map(|average| average.input_shapes.as_deref());
        if let Some(longest) = shapes.map(str::len).max() {
            let width = width(Some(longest), SHAPES_WIDTH);
            columns.push(Column::of("Input Shapes", width, move |a| {
                let text = a.input_shapes.as_deref().unwrap_or_default();
                text.chars().take(width).collect()
            }));
        }
        columns.extend(self.flops());
        columns
    }

    fn flops(&self) -> Option<Column<'_>> {
        let counted = self.averages.averages.iter().map(|average| average.flops);
        let fewest = counted.filter(|flops| *flops > 0).min()?;
        let (scale, unit) = flops_unit(fewest);
        self.averages.has_flops.then(|| {
            Column::of(&format!("Total {unit}"), USUAL_WIDTH, move |a| {
                match a.flops {
                    0 => "--".to_owned(),
                    #[expect(clippy::cast_precision_loss, reason = "three decimals are shown")]
                    flops => format!("{:8.3}", flops as f64 * scale),
                }
            })
        })
    }

    fn has_device_time(&self) -> bool {
        self.averages
            .averages
            .iter()
            .any(|average| !average.self_device_time_total.is_zero())
    }
}

fn total_time(total: Duration, unit: Option<TimeUnit>) -> String {
    time(microseconds(total), unit)
}

#[expect(clippy::cast_precision_loss, reason = "three decimals are shown")]
fn mean_time(total: Duration, count: u64, unit: Option<TimeUnit>) -> String {
    time(microseconds(total) / count.max(1) as f64, unit)
}

/// A name of at most what fits, with dots where it was longer.
fn cut_name(name: &str) -> String {
    if name.chars().count() < NAME_WIDTH - 3 {
        return name.to_owned();
    }
    let mut cut: String = name.chars().take(NAME_WIDTH - 3).collect();
    cut.push_str("...");
    cut
}

/// What stands in a column.
type Cell<'a> = Box<dyn Fn(&FunctionEventAvg) -> String + 'a>;

struct Column<'a> {
    title: String,
    width: usize,
    cell: Cell<'a>,
}

impl<'a> Column<'a> {
    fn of(title: &str, width: usize, cell: impl Fn(&FunctionEventAvg) -> String + 'a) -> Self {
        Self {
            title: title.to_owned(),
            width,
            cell: Box::new(cell),
        }
    }

    fn usual(title: &str, cell: impl Fn(&FunctionEventAvg) -> String + 'a) -> Self {
        Self::of(title, USUAL_WIDTH, cell)
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        if rows.is_empty() {
            return Ok(());
        }
        let columns = self.columns();
        let line = |cells: &mut dyn Iterator<Item = String>| {
            columns
                .iter()
                .zip(cells)
                .fold(String::new(), |mut line, (column, cell)| {
                    let _ = write!(line, "{cell:>width$}  ", width = column.width);
                    line
                })
        };
        let dashes = line(&mut columns.iter().map(|column| "-".repeat(column.width)));
        if let Some(header) = &self.header {
            writeln!(f, "{}\n{header}", "=".repeat(dashes.trim_end().len()))?;
        }
        let titles = line(&mut columns.iter().map(|column| column.title.clone()));
        writeln!(f, "{dashes}\n{titles}\n{dashes}")?;
        for row in rows.iter().take(self.row_limit.unwrap_or(usize::MAX)) {
            writeln!(
                f,
                "{}",
                line(&mut columns.iter().map(|column| (column.cell)(row)))
            )?;
        }
        let cpu = self.averages.self_cpu_time_total();
        writeln!(
            f,
            "{dashes}\nSelf CPU time total: {}",
            total_time(cpu, self.time_unit)
        )?;
        if self.has_device_time() {
            let device = self.averages.self_device_time_total();
            writeln!(
                f,
                "Self CUDA time total: {}",
                total_time(device, self.time_unit)
            )?;
        }
        Ok(())
    }
}
