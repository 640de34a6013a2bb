//! Draws a topology with characters: spine, leaves, nodes and their addresses. Data in, text out.

use flannel_lab::{Rack, Topology};

/// Wider pictures break in most terminals, so they become a list.
const WIDEST: usize = 120;
/// Between two nodes, and between two racks.
const NODE_GAP: usize = 2;
const RACK_GAP: usize = 4;

/// A line of characters that can be written into at any place.
#[derive(Default)]
struct Row(Vec<char>);

impl Row {
    fn put(&mut self, at: usize, text: &str) {
        let end = at + text.chars().count();
        if self.0.len() < end {
            self.0.resize(end, ' ');
        }
        for (place, letter) in self.0[at..end].iter_mut().zip(text.chars()) {
            *place = letter;
        }
    }

    fn centre(&mut self, middle: usize, text: &str) {
        self.put(middle.saturating_sub(text.chars().count() / 2), text);
    }

    /// A bar from a parent above to its children below.
    fn branch(&mut self, parent: usize, children: &[usize]) {
        let (Some(first), Some(last)) = (children.iter().min(), children.iter().max()) else { return };
        let (first, last) = (*first.min(&parent), *last.max(&parent));
        for place in first..=last {
            let is_child = children.contains(&place);
            let letter = match (place == parent, is_child) {
                (true, true) if first == last => "│",
                (true, true) if place == first => "├",
                (true, true) if place == last => "┤",
                (true, true) => "┼",
                (true, false) if place == first => "└",
                (true, false) if place == last => "┘",
                (true, false) => "┴",
                (false, true) if place == first => "┌",
                (false, true) if place == last => "┐",
                (false, true) => "┬",
                (false, false) => "─",
            };
            self.put(place, letter);
        }
    }
}

/// The picture of a topology, or a list where it would be too wide.
pub fn picture(topology: &Topology) -> String {
    let width = column(topology);
    let columns = topology.nodes().count() * width + topology.racks.len() * RACK_GAP;
    if columns > WIDEST { list(topology) } else { drawing(topology, width) }
}

fn column(topology: &Topology) -> usize {
    let widths = topology.nodes().map(|node| node.name.len().max(node.v4().to_string().len()));
    widths.max().unwrap_or(0) + NODE_GAP
}

fn drawing(topology: &Topology, width: usize) -> String {
    let [mut spine, mut to_leaves, mut leaves, mut to_nodes, mut names, mut addresses] =
        <[Row; 6]>::default();
    let (mut left, mut leaf_places) = (RACK_GAP, Vec::new());
    for rack in &topology.racks {
        let places: Vec<_> = (0..rack.nodes.len()).map(|index| left + index * width + width / 2).collect();
        let middle = left + rack.nodes.len() * width / 2;
        leaves.centre(middle, &leaf_shown(rack));
        to_nodes.branch(middle, &places);
        for (node, place) in rack.nodes.iter().zip(&places) {
            names.centre(*place, &node.name);
            addresses.centre(*place, &node.v4().to_string());
        }
        leaf_places.push(middle);
        left += (rack.nodes.len() * width).max(leaf_shown(rack).len()) + RACK_GAP;
    }
    if let (Some(name), Some(first), Some(last)) = (topology.spine(), leaf_places.first(), leaf_places.last())
    {
        let middle = first.midpoint(*last);
        spine.centre(middle, name);
        to_leaves.branch(middle, &leaf_places);
    }
    let rows = [spine, to_leaves, leaves, to_nodes, names, addresses].map(|row| String::from_iter(row.0));
    rows.iter()
        .map(|row| row.trim_end())
        .filter(|row| !row.is_empty())
        .map(|row| format!("{row}\n"))
        .collect()
}

fn leaf_shown(rack: &Rack) -> String {
    format!("{} {}", rack.leaf, rack.gateway())
}

fn list(topology: &Topology) -> String {
    let line = |rack: &Rack| {
        let ends = [rack.nodes.first(), rack.nodes.last()]
            .map(|node| node.map(|node| format!("{} {}", node.name, node.v4())));
        let [first, last] = ends.map(Option::unwrap_or_default);
        format!("{}: {} nodes, {first} to {last}\n", leaf_shown(rack), rack.nodes.len())
    };
    topology.racks.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_drawn_as_two_racks_under_a_spine() {
        let expected = "
                               spine
                    ┌────────────┴────────────┐
            leaf01 10.0.0.254         leaf02 30.0.0.254
         ┌──────────┼──────────┐              │
      master1    worker1    worker2        worker3
     10.0.0.20  10.0.0.21  10.0.0.22      30.0.0.23
";
        assert_eq!(format!("\n{}", picture(&Topology::default())), expected);
    }

    #[test]
    fn a_large_lab_is_a_list() {
        let topology = Topology::flat(200).unwrap();
        assert_eq!(
            picture(&topology),
            "leaf01 10.0.255.254: 200 nodes, master1 10.0.0.20 to worker199 10.0.0.219\n"
        );
    }
}
