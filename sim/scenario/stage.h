#pragma once

namespace stepsim {

/// The stages of a run, each made of the one before: lengths and the batches of an epoch; those of
/// the steps; the prices of their ops and of DDP's own work; buckets, schedules and the prices of
/// collectives; the played steps.
enum class Stage { Formed, Planned, Priced, Reduced, Played };

}  // namespace stepsim
