mod cached;
mod fake;
mod floors;
mod inputs;
mod lockstep;
mod patches;
