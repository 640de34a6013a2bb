//! The two forms of a scenario's name: for the command line, and for a reader.

/// The module, without the crate, and the function.
pub fn path(module: &str, name: &str) -> String {
    let module = module.split_once("::").map_or(module, |(_, module)| module);
    format!("{module}::{name}")
}

/// The module and the sentence.
pub fn title(module: &str, name: &str) -> String {
    let path = path(module, name);
    let (module, name) = path.rsplit_once("::").unwrap_or(("", &path));
    format!("{module}: {}", name.replace('_', " "))
}
