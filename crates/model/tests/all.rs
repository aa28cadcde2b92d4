//! Tests of the models, in one program to save link time.

mod equations;
mod fluid_models;
mod terms;
