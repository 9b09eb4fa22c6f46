mod cases;
mod drains;
mod fleet;
mod simulated;
mod world;
