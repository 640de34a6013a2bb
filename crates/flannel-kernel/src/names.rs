//! The kernel's numbers of devices and their names, both ways, for a moment: a device may come back under the
//! same name with another number.

use flannel_plan::link_name::LinkName;
use flannel_plan::observation::LinkFact;

/// Which device has which number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    by_index: Vec<(u32, LinkName)>,
}

impl Names {
    /// The names in a dump.
    pub(crate) fn of(links: &[LinkFact]) -> Self {
        links.iter().map(|fact| (fact.index, fact.link.name)).collect()
    }

    /// The name of a number.
    pub(crate) fn name(&self, index: u32) -> Option<LinkName> {
        let place = self.by_index.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(self.by_index[place].1)
    }

    /// Gives a number another name, or none, and returns the one that it had.
    pub(crate) fn set(&mut self, index: u32, name: Option<LinkName>) -> Option<LinkName> {
        match (self.by_index.binary_search_by_key(&index, |(index, _)| *index), name) {
            (Ok(place), Some(name)) => Some(std::mem::replace(&mut self.by_index[place].1, name)),
            (Ok(place), None) => Some(self.by_index.remove(place).1),
            (Err(place), Some(name)) => {
                self.by_index.insert(place, (index, name));
                None
            }
            (Err(_), None) => None,
        }
    }
}

impl FromIterator<(u32, LinkName)> for Names {
    fn from_iter<I: IntoIterator<Item = (u32, LinkName)>>(names: I) -> Self {
        let mut by_index: Vec<_> = names.into_iter().collect();
        by_index.sort_unstable();
        Self { by_index }
    }
}
