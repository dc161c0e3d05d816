#pragma once

namespace stepsim {

/// The options of a DDP module that decide what an iteration does beside the model's own work.
struct IterationOptions {
  bool static_graph = false;
  bool find_unused_parameters = false;
  bool has_buffers = false;  ///< The model has buffers and broadcast_buffers is on.
  bool rebuilds = true;      ///< false: buckets that never change (hand-written loops).
};

/// When the all-reduces of an iteration are launched.
enum class Launching {
  None,       ///< Under no_sync: hooks return at once.
  ByHooks,    ///< Each when its bucket becomes ready.
  AfterGraph  ///< First iteration of static_graph: all of it after the backward.
};

/// What DDP does in one forward and backward.
struct Iteration {
  bool synchronises = true;         ///< False under no_sync: gradients stay on their rank.
  bool rebuilds = false;            ///< Two blocking broadcasts run before the forward.
  bool broadcasts_buffers = false;  ///< Rank 0 broadcasts the buffers before the forward.
  bool uses_rebuilt = false;        ///< This backward reduces the rebuilt bucket list.
  bool traverses_graph = false;     ///< DDP walks the autograd graph after the forward.
  bool sends_bitmap = false;        ///< One all-reduce of 4 bytes a parameter is added.
  Launching launching = Launching::ByHooks;

  bool operator==(const Iteration&) const = default;
};

/// The states that a DDP module goes through from one iteration to the next.
///
/// DDP rebuilds its buckets once, in the first forward after the first synchronised backward that
/// recorded the order of the gradients; with static_graph that is the second backward, and with
/// find_unused_parameters alone it never rebuilds. A forward broadcasts the buffers if the previous
/// forward was a synchronising training forward, or if there was none. Source: the reducer and the
/// Python module of PyTorch 1.13 to 2.4.
class IterationSequence {
 public:
  explicit IterationSequence(IterationOptions options) : options_(options) {}

  /// The next training iteration; `synchronises` = false: its forward ran inside no_sync().
  Iteration next(bool synchronises = true);

 private:
  [[nodiscard]] bool records_order() const;

  IterationOptions options_;
  bool sync_parameters_ = true;  ///< require_forward_param_sync
  bool recorded_ = false;        ///< The order of the gradients is known.
  bool rebuilt_ = false;
  int synchronised_ = 0;  ///< Backward passes with all-reduces so far.
};

}  // namespace stepsim
