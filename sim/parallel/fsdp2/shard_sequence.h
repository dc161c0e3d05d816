#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "sim/parallel/fsdp2/shard_unit.h"

namespace stepsim {

/// What a rank's host does for a unit, in order. The first four are hooks that it enters.
enum class ShardAct {
  PreForward,
  PostForward,
  PreBackward,
  PostBackward,
  Unshard,        ///< Issues the all-gather.
  Wait,           ///< Waits for it and copies the parameters out.
  Reshard,        ///< Frees the gathered parameters, but for a slice where the unit keeps one.
  ReduceScatter,  ///< Of all gradients that the unit has.
  AllReduce       ///< Of the scattered gradients, among the replicas.
};

struct ShardEvent {
  ShardAct act = ShardAct::PreForward;
  int unit = 0;
  /// An Unshard starts from slices; a Reshard leaves one.
  bool slice = false;

  bool operator==(const ShardEvent&) const = default;
};

/// The switches of one backward, which a training loop turns between its micro-batches.
struct ShardSwitches {
  bool gradient_sync = true;           ///< set_requires_gradient_sync
  bool all_reduce = true;              ///< set_requires_all_reduce
  bool reshard_after_backward = true;  ///< set_reshard_after_backward
  bool last_backward = true;           ///< set_is_last_backward
};

/// The ranks that units are sharded and replicated over.
struct ShardMesh {
  int shards = 1;
  int replicas = 1;
  bool replicates = false;  ///< The mesh has a dimension of replicas, even if there is just one.
  bool single_gathers =
      false;  ///< One shard rank gathers and scatters, too, as before PyTorch 2.8.
};

/// Tells whether gradients are reduce-scattered.
[[nodiscard]] inline bool scatters(const ShardMesh& mesh) {
  return mesh.shards > 1 || mesh.single_gathers;
}

/// What PyTorch's fully_shard does from call to call: which units are gathered, freed and reduced,
/// and in which order. A forward is told as the units that it enters and leaves; its backward
/// follows from that by the rules of autograd: hooks on outputs and inputs fire in the reverse
/// order of their registration, those on one tensor in the order of registration. Checked against
/// the events of PyTorch 2.15.
class ShardSequence {
 public:
  /// `units`: the root first, then in the order of named_modules(). One without parameters has no
  /// group, and nothing is done for it. They must outlive this.
  ShardSequence(std::span<const ShardUnit> units, ShardMesh mesh);

  /// Begins a forward; returns its number. `gradients`: false under no_grad(). `input_gradient`:
  /// the input of the model needs one.
  std::size_t begin_forward(bool gradients = true, bool input_gradient = false);
  /// A module of the unit is called; of a unit of several modules, one of them.
  void enter(int unit);
  /// The module returns; of a unit of several modules, the last of them.
  void leave(int unit);
  /// The backward of a loss made of these forwards, in the order in which they were begun.
  void backward(std::span<const std::size_t> forwards, const ShardSwitches& switches = {});
  /// The backward of the last forward.
  void backward(const ShardSwitches& switches = {});

  [[nodiscard]] const std::vector<ShardEvent>& events() const { return events_; }
  void clear_events() { events_.clear(); }

 private:
  enum class State { Idle, Forward, PreBackward, PostBackward };

  /// What a group remembers.
  struct Group {
    State state = State::Idle;
    bool gathered = false;
    bool pending = false;  ///< Its all-gather has been issued, and not been waited for.
    bool sliced = false;   ///< This rank has a slice of it.
    bool open = false;     ///< Between the first entry of a call and its return.
    bool has_gradients = false;
    int uses = 0;                        ///< Calls in this backward that are not done with.
    std::vector<std::size_t> positions;  ///< In the order of the forwards.
  };

  /// A hook that autograd holds.
  struct Hook {
    bool on_output = false;
    int unit = 0;
    bool same_tensor = false;  ///< As the hook before it.
  };

  struct Forward {
    bool gradients = true;
    bool carries_gradient = false;  ///< What is computed now needs one.
    std::vector<Hook> hooks;
    bool just_left = false;      ///< Nothing has run since the last return.
    bool last_has_hook = false;  ///< The last return has a hook.
    std::vector<int> calls;      ///< Units whose calls' outputs need a gradient.
  };

  [[nodiscard]] bool trains(int unit) const;
  void note(ShardAct act, int unit, bool slice = false);
  void unshard(int unit, State state);
  void wait(int unit);
  void reshard(int unit, bool to_slice);
  void prefetch_before(int unit);
  void run_output_hook(int unit);
  void run_input_hook(int unit);
  void post_backward(int unit);
  void finish_backward();

  std::span<const ShardUnit> units_;
  ShardMesh mesh_;
  ShardSwitches switches_;
  std::vector<Group> groups_;
  std::vector<Forward> forwards_;
  std::vector<int> order_;  ///< The units in the order in which forwards were left.
  std::vector<ShardEvent> events_;
};

}  // namespace stepsim
