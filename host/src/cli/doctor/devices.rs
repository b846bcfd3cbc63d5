//! The devices that a plugin's libraries find, by their full names. A broken driver can end the process that asks, or
//! hang it, so it is asked in a child with a deadline, and what happens to that child is a warning here.

use std::path::Path;

use super::Line;
use super::machine::{asks, nodes};
use super::probe::{self, Tried};
use crate::fleet::probe::{Depth, Subject};

/// One line for each plugin that can list its devices, and one for each model that will not get the device it asks for.
pub(super) fn lines(subjects: &[Subject<'_>], executable: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for subject in subjects.iter().filter(|s| s.lists_devices) {
        if seen.contains(&subject.plugin) {
            continue;
        }
        seen.push(subject.plugin);
        let label = format!("devices of {}", subject.plugin);
        match probe::run(executable, subject.name, Depth::Devices) {
            Tried::Well { devices, .. } => {
                let asked = subjects.iter().filter(|s| s.plugin == subject.plugin);
                let asked: Vec<_> = asked.map(|s| s.device).collect();
                let there = [nodes("/dev/dri", "renderD"), nodes("/dev/accel", "accel")].concat();
                lines.push(judged(label, &devices, &asked, &there));
            }
            Tried::Failed(why) => lines.push(Line::warn(
                label,
                format!("could not be listed: {why}"),
                "if a model's own line is well, it serves without them; else look at the drivers",
            )),
        }
    }
    lines
}

/// What to say of these devices (`NAME: FULL NAME`), given what models ask for and which device files there are.
fn judged(label: String, devices: &[String], asked: &[&str], there: &[String]) -> Line {
    let named = |name: &str| {
        let of = |device: &String| device.split([':', '.']).next() == Some(name);
        devices.iter().any(of)
    };
    let list = if devices.is_empty() { "none".to_owned() } else { devices.join("; ") };
    let missing = ["GPU", "NPU"].into_iter().find(|name| !named(name) && asked.iter().any(|d| asks(d, name)));
    if let Some(name) = missing {
        let found = format!("{list}; no {name}, which a model asks for");
        return Line::warn(
            label,
            found,
            format!("install the {name}'s driver and its user-space part, or choose --device CPU"),
        );
    }
    let only_cpu = !devices.is_empty() && devices.iter().all(|d| d.starts_with("CPU"));
    if only_cpu && !there.is_empty() {
        let found = format!("{list}; only the CPU, though this machine has {}", there.join(", "));
        let way = "install the user-space driver of that device, and let this user read and write its file";
        return Line::warn(label, found, way);
    }
    match devices.is_empty() {
        true => Line::warn(label, "none", "look at the installation of the plugin's libraries"),
        false => Line::ok(label, list),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_cpu_alone_is_a_warning_where_the_machine_or_a_model_speaks_of_more() {
        let cpu = || vec!["CPU: A Processor 9000".to_owned()];
        let both = || vec![cpu().remove(0), "GPU.0: A Graphics 12".to_owned()];
        let render = || vec!["/dev/dri/renderD128".to_owned()];
        let line = |devices: Vec<String>, asked: &[&str], there: Vec<String>| {
            judged("d".into(), &devices, asked, &there)
        };
        for (line, verdict, words) in [
            (line(cpu(), &["CPU"], vec![]), Verdict::Ok, "A Processor 9000"),
            (line(both(), &["GPU.0"], render()), Verdict::Ok, "A Graphics 12"),
            (line(cpu(), &["CPU"], render()), Verdict::Warn, "/dev/dri/renderD128"),
            (line(cpu(), &["AUTO:GPU,CPU"], vec![]), Verdict::Warn, "no GPU"),
            (line(both(), &["NPU"], render()), Verdict::Warn, "no NPU"),
            (line(vec![], &["CPU"], vec![]), Verdict::Warn, "none"),
        ] {
            assert_eq!(line.verdict, verdict, "{line:?}");
            assert!(line.found.contains(words), "{line:?}");
        }
    }
}
