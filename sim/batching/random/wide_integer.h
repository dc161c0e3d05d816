#pragma once

namespace stepsim {

/// 128 bits: sums of squares and products of costs, compared exactly.
__extension__ using WideInteger = __int128;

}  // namespace stepsim
