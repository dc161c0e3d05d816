#pragma once

#include <string_view>

#include "costmodel/io/json_file.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// The format's name, which its version follows. A profile names the lowest version that can hold
/// it, so that older programs read all they can. since_version() says which version added a form
/// of cost.
inline constexpr std::string_view kProfileFormat = "stepsim-profile/";
/// This version added a model's recorded passes, quantiles of the noise, and shared cores.
inline constexpr int kRecordedVersion = 3;
/// This version added what new shapes cost.
inline constexpr int kShapesVersion = 4;
/// This version added links fitted to step times, and what several ranks add to a recorded model.
inline constexpr int kLinksVersion = 5;
/// This version added ranks that are steadily slower than others.
inline constexpr int kUnequalRanksVersion = 6;
/// This version added rare stalls.
inline constexpr int kStallsVersion = 7;
/// This version added what the host takes to put in a recorded model's ops.
inline constexpr int kRecordedHostVersion = 8;
/// This version added stalls that come by the clock.
inline constexpr int kStallsByClockVersion = 9;
/// This version added what other programs took while steps were recorded.
inline constexpr int kCrowdedVersion = 10;
/// This version added compute that grows with the ranks of a node.
inline constexpr int kNodeRanksVersion = 11;
/// This version added what the host takes for the units of sharded training.
inline constexpr int kUnitHostVersion = 12;
/// This version added how many of the launches that were timed are copies of gradients.
inline constexpr int kLaunchedCopiesVersion = 13;
/// This version added compilers, whose graphs serve more than one shape, to the costs of shapes.
inline constexpr int kCompilersVersion = 14;

/// Writes the member "recorded" of a profile.
[[nodiscard]] Json recorded_json(const RecordedModel& recorded);
/// Reads that member. It checks that the features are known, that the fit and every draw have a
/// coefficient for each and none is negative, the ranges, and the model. Raises InputError.
[[nodiscard]] RecordedModel read_recorded(JsonReader reader);
/// Writes an element of the member "new_shapes".
[[nodiscard]] Json shape_cost_json(const ShapeCost& cost);
/// Reads such an element. Raises InputError: a name is unknown, a time is negative or missing, a
/// cache has no entries.
[[nodiscard]] ShapeCost read_shape_cost(JsonReader reader);
/// Writes the member "links" of a profile.
[[nodiscard]] Json links_json(const FittedLinks& links);
/// Reads that member. Raises InputError: a speed that is not positive, draws of other lengths.
[[nodiscard]] FittedLinks read_links(JsonReader reader);
/// Writes the member "units" of a profile's host.
[[nodiscard]] Json unit_host_json(const UnitHostTimes& times);
/// Reads that member. Raises InputError: a time is missing, negative or above one hour.
[[nodiscard]] UnitHostTimes read_unit_host(JsonReader reader);
/// Reads "launched_copies" of a host, 0 where it is not told. Raises InputError: it is no share
/// below 1.
[[nodiscard]] double read_launched_copies(JsonReader& reader);
/// Writes the member "errors" of a fit.
[[nodiscard]] Json errors_json(const FitErrors& errors);
/// Reads the member "errors" of `reader`; without one all errors are absent.
[[nodiscard]] FitErrors read_errors(JsonReader& reader);

}  // namespace stepsim
