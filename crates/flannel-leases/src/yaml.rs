//! YAML that operators write, without what makes a few bytes cost more than the machine has. Takes a text, gives its
//! documents or what is wrong.

use yaml_rust2::parser::{Event, EventReceiver, Parser};
use yaml_rust2::{Yaml, YamlLoader};

/// Neither a kubeconfig nor the file of ip-masq-agent is half as deep. A key within a key takes twice the time.
const DEEPEST: usize = 12;

/// Whether names may stand for parts (`*NAME`): parts with names in them can become more than memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aliases {
    Taken,
    Refused,
}

#[derive(Default)]
struct Shape {
    depth: usize,
    deepest: usize,
    has_aliases: bool,
}

impl EventReceiver for Shape {
    fn on_event(&mut self, event: Event) {
        match event {
            Event::MappingStart(..) | Event::SequenceStart(..) => self.depth += 1,
            Event::MappingEnd | Event::SequenceEnd => self.depth = self.depth.saturating_sub(1),
            Event::Alias(_) => self.has_aliases = true,
            _ => {}
        }
        self.deepest = self.deepest.max(self.depth);
    }
}

/// Reads the documents of a text.
pub fn load(text: &str, aliases: Aliases) -> Result<Vec<Yaml>, String> {
    let wrong = |fault| format!("it is not YAML: {fault}");
    let mut shape = Shape::default();
    Parser::new_from_str(text).load(&mut shape, true).map_err(wrong)?;
    if shape.has_aliases && aliases == Aliases::Refused {
        return Err("it has an alias (*NAME): write out what it stands for".to_owned());
    }
    if shape.deepest > DEEPEST {
        return Err(format!("its parts lie {} deep in each other, {DEEPEST} are the most", shape.deepest));
    }
    YamlLoader::load_from_str(text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deep_is_refused_before_it_costs_anything() {
        let keys = "? ".repeat(60) + "a";
        let told = load(&keys, Aliases::Taken).unwrap_err();
        assert_eq!(told, "its parts lie 60 deep in each other, 12 are the most");
        assert_eq!(load("a: [b, {c: d}]", Aliases::Refused).map(|documents| documents.len()), Ok(1));
        assert!(
            load("a: &x 1\nb: *x", Aliases::Refused).is_err()
                && load("a: &x 1\nb: *x", Aliases::Taken).is_ok()
        );
    }
}
