//! Reads files: TOML text into a tree whose nodes know their position, trees into structs, traces and captures into numbers.

pub mod capture;
pub mod de;
pub mod files;
pub mod series;
pub mod source;
pub mod tree;
pub mod video;

/// Everything that a scenario is read from.
#[derive(Debug)]
pub struct Input {
    /// Text and overrides.
    pub source: source::Source,
    /// Tree of the text, before any override.
    pub base: tree::Node,
    /// Files around the scenario file.
    pub files: files::Files,
    /// Parameter names of AQMs outside the registry, which overrides may name.
    pub parameters: Vec<String>,
}
