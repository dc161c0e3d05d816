#pragma once

#include <string>
#include <vector>

#include "costmodel/base/units.h"
#include "costmodel/network/collective_cost.h"
#include "costmodel/records/profile.h"

namespace stepsim {

/// An element type by the name that PyTorch's profiler gives it.
struct CostFileType {
  std::string name;  ///< "BFloat16"
  std::int64_t bytes = 0;
};

/// Raises InputError for a name that is not one of PyTorch's.
[[nodiscard]] CostFileType parse_cost_file_type(const std::string& name);

/// The ranks of a process group.
struct CostFileGroup {
  std::vector<int> ranks;  ///< Ascending.
  int nodes = 1;           ///< On so many nodes.
};

/// Returns the groups that the profile's collectives were measured on: ranks 0 .. n - 1 for each n.
[[nodiscard]] std::vector<CostFileGroup> measured_groups(const Profile& profile);
/// Returns the most ranks that a node has in the profile's tables of collectives; 0: no tables.
[[nodiscard]] int ranks_per_node(const Profile& profile);

struct CostFileChoice {
  std::vector<CostFileGroup> groups;
  std::vector<CollectiveKind> kinds;  ///< AllReduce, AllGather, ReduceScatter or AllToAll.
  std::vector<CostFileType> types;
  Bytes largest;  ///< The largest output to price.
};

/// What a cost file says of one collective on one group.
struct CostFileRow {
  CollectiveKind kind = CollectiveKind::AllReduce;
  std::size_t group = 0;  ///< An index of CostFileChoice::groups.
  std::string source;     ///< CollectivePrice::text of the largest size that was priced.
  double error = 0;       ///< The fraction that is stated for that price.
  /// The smallest and the largest output that was priced, in bytes, and their times in seconds.
  Bytes smallest;
  Bytes largest;
  double shortest_s = 0;
  double longest_s = 0;
  int sizes = 0;        ///< Sizes of each type; 0: nothing could be priced.
  std::string refusal;  ///< Why, then.
};

struct CostFile {
  std::string text;  ///< The JSON.
  std::vector<CostFileRow> rows;
  std::int64_t costs = 0;
};

/// Makes the file that the overlap scheduler of PyTorch's Inductor takes its costs from
/// (torch/_inductor/fx_passes/profile_guided_estimation.py, PyTorch 2.15). A cost is the transfer,
/// from the last rank's arrival to the end, without waiting.
///
/// PyTorch interpolates between two sizes linearly in logarithms and knows no latency below the
/// smallest size. So there are at least four sizes an octave from one element on, and those that
/// were measured.
/// Raises InputError: none of the collectives can be priced.
[[nodiscard]] CostFile inductor_costs(const Profile& profile, const CostFileChoice& choice);

}  // namespace stepsim
