//! Tests of the models, in one program: each program more is linked once more.

mod equations;
mod laws;
mod terms;
