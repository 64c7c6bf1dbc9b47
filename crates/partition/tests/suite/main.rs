//! Graphs in parts: who owns which node, parts on disk, and damage to them.

mod assign;
mod common;
mod damage;
mod parts;
