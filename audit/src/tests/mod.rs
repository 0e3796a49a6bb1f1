mod cached;
mod fake;
mod inputs;
mod lockstep;
mod patches;
