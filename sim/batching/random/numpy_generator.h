#pragma once

#include <cstdint>
#include <vector>

namespace stepsim {

/// The bit generators of numpy.random.Generator that data loaders use.
enum class BitGenerator {
  Philox,  ///< Philox4x64-10, Generator(Philox(seed)).
  Pcg64    ///< PCG64 XSL-RR, default_rng(seed).
};

/// Generator.permutation(n), bit for bit. Throws std::invalid_argument: n outside 0 .. 2^32 - 1.
///
/// Sources: O'Neill, "PCG" (HMC-CS-2014-0905); Salmon et al., "Parallel random numbers: as easy as
/// 1, 2, 3" (SC 2011); numpy's SeedSequence after O'Neill's seed_seq_fe.
[[nodiscard]] std::vector<std::int64_t> generator_permutation(BitGenerator generator,
                                                              std::int64_t n,
                                                              std::uint64_t seed);

}  // namespace stepsim
