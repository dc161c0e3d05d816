#include "sim/batching/policies/balanced.h"
#include "sim/batching/policies/min_max.h"
#include "sim/batching/policies/planned_shapes.h"
#include "sim/batching/policies/planner.h"
#include "sim/batching/policies/policy_table.h"

namespace stepsim {

std::vector<PolicyKind> balancing_policies() {
  return {
      {.name = "planner",
       .summary = "windows of the sampler's order, sorted by length, cut into steps of equal "
                  "samples (each dealt over the ranks with the least highest predicted time) or of "
                  "equal time; use weighting = \"sample\"",
       .source = "stepsim plan",
       .is_common = true,
       .parameters = {required_integer("batch_size"),
                      integer_or("window", 64),
                      optional_integer("max_tokens"),
                      choice("steps", {"equal_samples", "equal_time"}),
                      choice("cost", {"step_time", "tokens"})},
       .epoch = planner_epoch,
       .token_budget = value_of("max_tokens"),
       .step_cost_use = planner_step_cost_use},
      {.name = "planned_shapes",
       .summary = "every step has one shape on all ranks: lengths to pad to are chosen so that "
                  "padding and what new shapes cost take least, and a batch of each holds as many "
                  "samples as take the same time",
       .source = "stepsim plan",
       .is_common = true,
       .parameters = {required_integer("batch_size"),
                      optional_integer("shapes"),
                      integer_or("length_multiple", 1),
                      optional_integer("max_tokens"),
                      choice("cost", {"step_time", "tokens"})},
       .epoch = PolicyKind::ChoosePadding{planned_shapes_epoch},
       .token_budget = value_of("max_tokens"),
       .step_cost_use = planner_step_cost_use},
      {.name = "min_max",
       .summary = "each step takes a prefix of every rank's buffer, global_batch samples in all, "
                  "so that the highest cost of a rank is least; needs weighting = \"sample\"",
       .source = "stepsim plan; dynamic min-max micro-batch allocation",
       .parameters = {required_integer("global_batch"),
                      integer_or("buffer", 64),
                      optional_integer("b_max"),
                      optional_integer("max_tokens"),
                      choice("cost", {"tokens", "tokens_sq", "quadratic", "step_time"}),
                      optional_number("quadratic_tokens"),
                      choice("tie_break", {"variance", "none", "min_sum", "leximax"})},
       .epoch = min_max_epoch,
       .check = check_min_max,
       .token_budget = value_of("max_tokens"),
       .step_cost_use = min_max_step_cost_use},
      {.name = "batch_rebalance",
       .summary =
           "each global batch of ranks * micro_batches * batch_size samples is sorted and cut "
           "so that the highest padded cost of a micro-batch is least (exact); with several "
           "micro-batches a step, ranks get them by largest differencing; needs weighting = "
           "\"sample\"",
       .source = "Hugging Face Trainer batch_rebalance",
       .is_common = true,
       .parameters = {required_integer("batch_size"), integer_or("micro_batches", 1)},
       .epoch = batch_rebalance_epoch},
      {.name = "karmarkar_karp",
       .summary = "each global batch is dealt to the ranks by largest differencing of the samples' "
                  "workloads, batch_size samples a rank",
       .source = "verl, slime sequence-length balancing",
       .is_common = true,
       .parameters = {required_integer("batch_size"),
                      choice("workload", {"verl", "tokens", "tokens_sq"})},
       .epoch = karmarkar_karp_epoch},
      {.name = "lpt",
       .summary = "each global batch is dealt to the ranks, longest sample first, each to the rank "
                  "of least workload; needs weighting = \"sample\"",
       .source = "fairchem balanced partition; TRL async GRPO (tokens_sq)",
       .parameters = {required_integer("batch_size"),
                      choice("workload", {"tokens", "tokens_sq", "verl"})},
       .epoch = lpt_epoch},
      {.name = "load_balancing",
       .summary = "samples by length in groups of one sample a rank, groups shuffled",
       .source = "Bagua, ONNX Runtime LoadBalancingDistributedSampler",
       .parameters = {required_integer("batch_size")},
       .epoch = load_balancing_epoch},
      {.name = "dynapipe",
       .summary = "each global batch is sorted and cut into micro-batches of least padded tokens "
                  "and overhead_tokens each, which are dealt to the ranks by largest differencing; "
                  "every round of them is a step; needs weighting = \"sample\"",
       .source = "DynaPipe ordered partition",
       .parameters = {required_integer("batch_size"),
                      integer_or("overhead_tokens", 256, 0),
                      optional_integer("max_tokens"),
                      integer_or("pipeline_stages", 1)},
       .epoch = dynapipe_epoch,
       .token_budget = value_of("max_tokens")},
  };
}

}  // namespace stepsim
