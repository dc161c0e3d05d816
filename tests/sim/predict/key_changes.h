#pragma once

#include <string>
#include <vector>

namespace stepsim::test {

using Overrides = std::vector<std::string>;

/// What a key changes.
enum class Effect {
  Figures,  ///< The predicted step, its interval or its memory.
  Nothing   ///< No prediction: texts, and what only other commands read.
};

/// A key's other value, `after`, in a scenario where it matters.
struct KeyChange {
  std::string key;
  std::string after;
  Overrides before = {};
  Effect effect = Effect::Figures;
};

[[nodiscard]] Overrides with(Overrides overrides, const Overrides& more);

/// A profile with a price for every op, in one file for the whole test; `scale` makes it slower.
[[nodiscard]] std::string path_of_prices(double scale);

/// A change of every key, by the scenario of blocks.
[[nodiscard]] std::vector<KeyChange> block_changes();
/// Changes the keys of [new_shapes]. Versions alone change no figure: they refuse or allow
/// mechanisms.
[[nodiscard]] std::vector<KeyChange> shape_changes();
/// Changes the keys that a model of blocks does not have, in the scenario of the decoder.
[[nodiscard]] std::vector<KeyChange> decoder_changes();

}  // namespace stepsim::test
