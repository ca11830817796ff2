//! Keeps the house: what may import what, and how a file looks.
