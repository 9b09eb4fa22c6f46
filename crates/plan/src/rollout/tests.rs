mod cases;
mod simulated;
mod world;
