//! One program, many names: what it does is chosen by the name it is called by and `CNI_COMMAND`.

fn main() {}
